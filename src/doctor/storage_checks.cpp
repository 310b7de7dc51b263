// Where runs write: room, and what the file system can do.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/message.h"
#include "base/temporary.h"
#include "doctor/check.h"

namespace danlu::doctor {
namespace {

/// The directory, or the nearest parent that is there: runs make what is missing.
fs::path existing_part(fs::path directory) {
  std::error_code none;
  directory = fs::absolute(directory, none);
  while (!fs::exists(directory, none) && directory.has_relative_path())
    directory = directory.parent_path();
  return directory;
}

/// Names the file system by the number that statfs gives; "" for those without surprises.
std::string network_file_system(const fs::path& directory) {
  struct statfs about{};
  if (::statfs(directory.c_str(), &about) != 0) return "";
  switch (static_cast<uint32_t>(about.f_type)) {
    case 0x6969:
      return "NFS";
    case 0x0BD00BD0:
      return "Lustre";
    case 0x65735546:
      return "FUSE";
    case 0x47504653:
      return "GPFS";
    case 0x00C36400:
      return "CephFS";
    case 0xFF534D42:
    case 0xFE534D42:
      return "SMB";
    default:
      return "";
  }
}

struct OpenFile {
  int fd;
  explicit OpenFile(const fs::path& path)
      : fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
};

/// What does not work there, each with its reason.
std::vector<std::string> what_fails(const fs::path& trial) {
  std::vector<std::string> failures;
  const auto fail = [&](const char* what) {
    failures.push_back(fmt::format("{} ({})", what, std::strerror(errno)));
  };
  const fs::path first = trial / "a", second = trial / "b";
  const OpenFile one(first), other(first);
  if (one.fd < 0 || !write_all(one.fd, "danlu", 5) || !sync_descriptor(one.fd)) {
    fail("write");
    return failures;
  }
  if (::flock(one.fd, LOCK_EX | LOCK_NB) != 0) {
    fail("flock");
  } else if (::flock(other.fd, LOCK_EX | LOCK_NB) == 0) {
    failures.emplace_back("flock (two holders)");
  }
  {
    const OpenFile old(second);
  }
  if (::rename(first.c_str(), second.c_str()) != 0) {
    fail("rename");
  } else if (!has_name(one.fd, second.c_str())) {
    failures.emplace_back("rename (another file)");
  }
  const fs::path link = trial / "c";
  if (::symlink("b", link.c_str()) != 0) fail("symlink");
  return failures;
}

Finding room_of(const fs::path& directory) {
  const fs::path place = existing_part(directory);
  struct statvfs room{};
  if (::statvfs(place.c_str(), &room) != 0) {
    return {Verdict::kFailed, fmt::format("{}: {}", place.string(), std::strerror(errno)),
            tr("name another place: --output_dir, --cache_dir, TMPDIR")};
  }
  const uint64_t free = room.f_bavail * static_cast<uint64_t>(room.f_frsize);
  Finding finding{Verdict::kOk, tr("{}: {} free", directory.string(), binary_size(free)), ""};
  if (::access(place.c_str(), W_OK) != 0) {
    finding.add(Verdict::kWarning, tr("not writable"),
                tr("name another place: --output_dir, --cache_dir, TMPDIR"));
  } else if (free < uint64_t{1} << 30) {
    finding.add(
        Verdict::kWarning, tr("less than {}", binary_size(uint64_t{1} << 30)),
        tr("make room in {}: a checkpoint holds the model several times", directory.string()));
  }
  if (room.f_files > 0 && room.f_favail < 1000) {
    finding.add(Verdict::kWarning, tr("{} more files may be made", room.f_favail),
                tr("remove files, or write elsewhere"));
  }
  return finding;
}

Finding abilities_of(const fs::path& directory) {
  const fs::path place = existing_part(directory);
  const std::string kind = network_file_system(place);
  const std::string shown =
      kind.empty() ? directory.string() : fmt::format("{} ({})", directory.string(), kind);
  // If this process is killed, the directory goes with the next command that writes there.
  const Temporary trial(place / "danlu-doctor", Temporary::Kind::kDirectory);
  if (trial.fd() < 0) {
    return {Verdict::kWarning, tr("{}: nothing can be made there: {}", shown, std::strerror(errno)),
            tr("name another place: --output_dir, --cache_dir, TMPDIR")};
  }
  const auto failures = what_fails(trial.path());
  if (failures.empty()) return {Verdict::kOk, shown, ""};
  std::string list;
  for (const std::string& failure : failures) list += (list.empty() ? "" : ", ") + failure;
  return {Verdict::kFailed, tr("{}: does not work: {}", shown, list),
          tr("write to a local disk; Lustre: mount it with -o flock")};
}

template <typename Examine>
Finding over_storage(const SystemRoots& roots, const Examine& examine) {
  if (roots.storage.empty()) return Finding::not_here(tr("no directory was named"));
  Finding all;
  for (const fs::path& directory : roots.storage) {
    const Finding one = examine(directory);
    all.add(one.verdict, one.read, one.remedy);
  }
  return all;
}

}  // namespace

Finding check_disk(const SystemRoots& roots) { return over_storage(roots, room_of); }

Finding check_locks(const SystemRoots& roots) {
  Finding finding = over_storage(roots, abilities_of);
  if (finding.verdict == Verdict::kOk)
    finding.read = tr("locks, links and renames work: {}", finding.read);
  return finding;
}

}  // namespace danlu::doctor
