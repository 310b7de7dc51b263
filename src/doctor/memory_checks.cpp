// Memory: what is free, what a container may take, what processes share.
#include <sys/statvfs.h>

#include <algorithm>

#include "base/message.h"
#include "doctor/check.h"

namespace danlu::doctor {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

/// Reads /proc/meminfo, whose lines say "MemTotal:  65812932 kB".
uint64_t meminfo_bytes(const std::string& meminfo, const char* key) {
  const auto words = words_of(value_of(meminfo, key).value_or(""));
  const auto kibibytes = words.empty() ? std::nullopt : number_of(words.front());
  return kibibytes && *kibibytes > 0 ? static_cast<uint64_t>(*kibibytes) * 1024 : 0;
}

/// The word in brackets of "always [madvise] never".
std::string chosen_word(const std::string& line) {
  const size_t open = line.find('['), close = line.find(']');
  return open < close && close != line.npos ? line.substr(open + 1, close - open - 1) : "";
}

}  // namespace

Finding check_memory(const SystemRoots& roots) {
  const std::string meminfo = text_in(roots.proc / "meminfo").value_or("");
  const uint64_t available = available_memory_bytes(1, roots.control_group());
  const uint64_t total = meminfo_bytes(meminfo, "MemTotal");
  if (available == 0) {
    return {Verdict::kWarning,
            tr("{} does not say how much is free", (roots.proc / "meminfo").string()),
            tr("mount /proc in the container")};
  }
  Finding finding;
  finding.read = tr("{} may be taken, of {}", binary_size(available), binary_size(total));
  // The engine's libraries, and the buffers of their products, take 1.2 GB.
  if (available < kGiB) {
    finding.add(Verdict::kFailed, tr("the engine alone needs about {}", binary_size(kGiB)),
                tr("end what holds the memory, or raise the container's limit"));
  } else if (available < 4 * kGiB) {
    finding.add(Verdict::kWarning, tr("enough for small models only"),
                tr("danlu plan says what a training takes"));
  }
  const uint64_t swap = meminfo_bytes(meminfo, "SwapTotal");
  finding.add(Verdict::kOk, swap ? tr("swap {}", binary_size(swap)) : tr("no swap"));
  const std::string huge =
      chosen_word(line_in(roots.sys / "kernel/mm/transparent_hugepage/enabled").value_or(""));
  if (!huge.empty()) finding.add(Verdict::kOk, tr("transparent huge pages: {}", huge));
  const auto pages = number_of(value_of(meminfo, "HugePages_Total").value_or("0")).value_or(0);
  if (pages > 0) {
    const uint64_t held = static_cast<uint64_t>(pages) * meminfo_bytes(meminfo, "Hugepagesize");
    finding.add(Verdict::kOk,
                tr("{} set aside as huge pages, which runs do not use", binary_size(held)));
  }
  return finding;
}

Finding check_shm(const SystemRoots& roots) {
  const fs::path shm = roots.dev / "shm";
  struct statvfs room{};
  if (::statvfs(shm.c_str(), &room) != 0) {
    return {Verdict::kWarning, tr("{} is not there", shm.string()),
            tr("NCCL and HCCL between cards of one machine need it; Danlu on CPUs does not")};
  }
  const uint64_t size = room.f_blocks * static_cast<uint64_t>(room.f_frsize);
  const uint64_t free = room.f_bavail * static_cast<uint64_t>(room.f_frsize);
  Finding finding{Verdict::kOk,
                  tr("{}: {} free of {}", shm.string(), binary_size(free), binary_size(size)), ""};
  if (size <= 64 * kMiB) {
    finding.add(Verdict::kWarning, tr("that is what containers get unasked"),
                tr("start the container with --shm-size=16g or --ipc=host; Danlu on CPUs does not "
                   "need it"));
  } else if (free < kGiB) {
    finding.add(Verdict::kWarning, tr("less than {}", binary_size(kGiB)),
                tr("remove what dead processes left in {}", shm.string()));
  }
  return finding;
}

}  // namespace danlu::doctor
