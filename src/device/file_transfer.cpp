#include "device/file_transfer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error.h"

namespace danlu::device::file_transfer {
namespace {

template <typename Transfer>
bool transfer_all(const Transfer& transfer, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end;) {
    const ssize_t moved = transfer(at, end - at);
    if (moved < 0 && errno == EINTR) continue;
    if (moved == 0) errno = EIO;
    if (moved <= 0) return false;
    // Where O_DIRECT stopped inside a block of the disk it cannot go on.
    at = at + moved == end ? end : (at + moved) / kAlignment * kAlignment;
  }
  return true;
}

}  // namespace

void fail(const std::filesystem::path& directory, const char* what, int error) {
  throw IoError(tr("{}: {}: {}", directory.string(), what, std::strerror(error)),
                tr("--offload_dir names a directory on a disk with room for what is offloaded"));
}

int past_the_cache(int file, bool& is_direct) {
  const std::string again = fmt::format("/proc/self/fd/{}", file);
  const int direct = ::open(again.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  is_direct = direct >= 0;
  if (!is_direct) return file;
  ::close(file);
  return direct;
}

bool read_all(int file, int64_t begin, int64_t end, std::byte* to) {
  return transfer_all(
      [&](int64_t at, int64_t size) {
        return ::pread(file, to + (at - begin), static_cast<size_t>(size), at);
      },
      begin, end);
}

bool write_all(int file, int64_t begin, int64_t end, const std::byte* from) {
  return transfer_all(
      [&](int64_t at, int64_t size) {
        return ::pwrite(file, from + (at - begin), static_cast<size_t>(size), at);
      },
      begin, end);
}

}  // namespace danlu::device::file_transfer
