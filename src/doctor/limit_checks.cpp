// What the system lets one process have.
#include <fmt/format.h>

#include <limits>

#include "base/message.h"
#include "doctor/check.h"

namespace danlu::doctor {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

struct ProcessLimit {
  int64_t soft = kUnlimited, hard = kUnlimited;
};

/// Reads /proc/self/limits: "Max open files            1024                 524288 files".
std::optional<ProcessLimit> limit_named(const std::string& limits, const std::string& name) {
  for (const std::string& line : lines_of(limits)) {
    if (!line.starts_with(name)) continue;
    const auto words = words_of(std::string_view(line).substr(name.size()));
    if (words.size() < 2) return std::nullopt;
    const auto value = [](const std::string& word) {
      return word == "unlimited" ? kUnlimited : number_of(word).value_or(0);
    };
    return ProcessLimit{value(words[0]), value(words[1])};
  }
  return std::nullopt;
}

std::string limit_shown(int64_t value, bool is_size) {
  if (value == kUnlimited) return tr("unlimited");
  return is_size ? binary_size(static_cast<uint64_t>(value)) : fmt::format("{}", value);
}

bool has_cards(const SystemRoots& roots) {
  return fs::exists(roots.dev / "davinci_manager") || fs::exists(roots.dev / "nvidiactl");
}

}  // namespace

Finding check_limits(const SystemRoots& roots) {
  const auto limits = text_in(roots.proc / "self/limits");
  if (!limits) {
    return {Verdict::kWarning, tr("{} cannot be read", (roots.proc / "self/limits").string()),
            tr("mount /proc in the container")};
  }
  Finding finding;
  // A run raises its own limit of open files as far as it may.
  if (const auto files = limit_named(*limits, "Max open files")) {
    const bool few = files->hard < 65536;
    finding.add(few ? Verdict::kWarning : Verdict::kOk,
                tr("open files {}", limit_shown(files->hard, false)),
                few ? tr("jobs of many ranks need more: ulimit -Hn 65536, or --ulimit "
                         "nofile=65536 for a container")
                    : std::string());
  }
  if (const auto processes = limit_named(*limits, "Max processes")) {
    const bool few = processes->soft < 1024;
    finding.add(few ? Verdict::kWarning : Verdict::kOk,
                tr("threads and processes {}", limit_shown(processes->soft, false)),
                few ? tr("ulimit -u 4096, or fewer threads by OMP_NUM_THREADS") : std::string());
  }
  if (const auto locked = limit_named(*limits, "Max locked memory")) {
    const bool few = has_cards(roots) && locked->soft != kUnlimited;
    finding.add(few ? Verdict::kWarning : Verdict::kOk,
                tr("locked memory {}", limit_shown(locked->soft, true)),
                few ? tr("cards and RDMA lock memory: --ulimit memlock=-1") : std::string());
  }
  if (const auto space = limit_named(*limits, "Max address space");
      space && space->soft != kUnlimited) {
    const bool few = space->soft < int64_t{4} << 30;
    finding.add(
        few ? Verdict::kWarning : Verdict::kOk,
        tr("address space {}", limit_shown(space->soft, true)),
        few ? tr("the engine maps more than a gigabyte: ulimit -v unlimited") : std::string());
  }
  if (const auto core = limit_named(*limits, "Max core file size"))
    finding.add(Verdict::kOk, tr("core files {}", limit_shown(core->soft, true)));
  return finding;
}

}  // namespace danlu::doctor
