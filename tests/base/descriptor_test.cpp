// Files on mounts that cannot sync. fsync is ours here: the program's symbol outweighs libc's.
#include "base/descriptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace {
thread_local int fsync_answers = 0;  // an errno; 0: really sync
}

extern "C" int fsync(int fd) {
  if (fsync_answers == 0) return static_cast<int>(::syscall(SYS_fsync, fd));
  errno = fsync_answers;
  return -1;
}

namespace danlu {
namespace {

struct FsyncAnswers {
  explicit FsyncAnswers(int code) { fsync_answers = code; }
  ~FsyncAnswers() { fsync_answers = 0; }
};

TEST(Descriptor, AMountThatCannotSyncStillTakesFiles) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory / "a";
  for (const int code : {EINVAL, ENOSYS, ENOTSUP}) {
    const FsyncAnswers answers(code);
    EXPECT_NO_THROW(write_file_atomic(path, std::to_string(code))) << code;
    EXPECT_EQ(read_file(path), std::to_string(code));
  }
}

TEST(Descriptor, ASyncThatLostDataIsAnError) {
  const test::TemporaryDirectory directory;
  const fs::path path = directory / "b";
  // EROFS: what ext4 says once an error has made it read-only.
  for (const int code : {EIO, ENOSPC, EROFS}) {
    const FsyncAnswers answers(code);
    EXPECT_THAT(test::error_of<IoError>([&] { write_file_atomic(path, "content"); }),
                testing::HasSubstr("b: cannot sync"));
    EXPECT_FALSE(fs::exists(path));
  }
}

TEST(Descriptor, ReadsAndWritesThroughPipesThatTakeLittleAtATime) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string sent(50'000, 'x');  // fits the pipe: no reader is needed yet
  ASSERT_TRUE(write_all(ends[1], sent.data(), sent.size()));
  ::close(ends[1]);
  std::string got(60'000, ' ');
  EXPECT_EQ(read_full(ends[0], got.data(), got.size()), 50'000);
  EXPECT_EQ(got.substr(0, sent.size()), sent);
  EXPECT_EQ(read_full(ends[0], got.data(), got.size()), 0);
  ::close(ends[0]);
  EXPECT_EQ(read_full(ends[0], got.data(), got.size()), -1);
  EXPECT_FALSE(write_all(ends[1], sent.data(), sent.size()));
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace danlu
