// What a process leaves when it is killed, and who may take it away. flock, rename, renameat2
// and close are ours here: the program's symbol outweighs libc's.
#include "base/temporary.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace {
thread_local int flock_answers = 0;               // an errno; 0: really lock
thread_local std::function<void()> before_flock;  // once
thread_local bool exchanges_names = true;
thread_local int renames_until_they_fail = -1;  // -1: they never do
thread_local bool close_fails = false;          // once
}  // namespace

extern "C" int close(int fd) {
  const int result = static_cast<int>(::syscall(SYS_close, fd));
  if (!std::exchange(close_fails, false)) return result;
  errno = EIO;
  return -1;
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (renames_until_they_fail != 0) {
    if (renames_until_they_fail > 0) --renames_until_they_fail;
    return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
  }
  errno = EIO;
  return -1;
}

extern "C" int renameat2(int from_at, const char* from, int to_at, const char* to,
                         unsigned flags) noexcept {
  if (exchanges_names || flags != RENAME_EXCHANGE)
    return static_cast<int>(::syscall(SYS_renameat2, from_at, from, to_at, to, flags));
  errno = EINVAL;
  return -1;
}

extern "C" int flock(int fd, int operation) {
  if (const auto act = std::exchange(before_flock, nullptr)) act();
  if (flock_answers == 0) return static_cast<int>(::syscall(SYS_flock, fd, operation));
  errno = flock_answers;
  return -1;
}

namespace danlu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TemporaryTest : public testing::Test {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(dir_)) out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }

  /// Does `work` in a process of its own, which is killed when that is done; between the two,
  /// `meanwhile` is called.
  static void killed_after(
      const std::function<void()>& work, const std::function<void()>& meanwhile = [] {}) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char told;
    EXPECT_EQ(::read(ready[0], &told, 1), 1);
    ::close(ready[0]);
    meanwhile();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  const test::TemporaryDirectory dir_;
};

TEST_F(TemporaryTest, OfADeadProcessIsSweptOfALivingOneIsNot) {
  killed_after(
      [&] {
        new AtomicFile(dir_ / "tokens.bin");
        const auto* model = new Temporary(dir_ / "model", Temporary::Kind::kDirectory);
        fs::create_directories(model->path() / "optim");
        std::ofstream(model->path() / "optim/state") << "x";
        fs::create_directory_symlink("/", model->path() / "last");
      },
      [&] {
        sweep_temporaries(dir_);
        EXPECT_EQ(names().size(), 2u) << "it lives";
      });
  EXPECT_EQ(names().size(), 2u);
  sweep_temporaries(dir_);
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_TRUE(fs::exists("/"));
}

TEST_F(TemporaryTest, TheNextWriterSweeps) {
  for (const auto& write : std::vector<std::function<void(const fs::path&)>>{
           [](const fs::path& in) { write_file_atomic(in / "a", "new"); },
           [](const fs::path& in) { write_directory_atomic(in / "a", [](const fs::path&) {}); },
           [](const fs::path& in) { require_writable_directory(in); }}) {
    const fs::path place = dir_ / unique_suffix();
    fs::create_directory(place);
    killed_after([&] { new AtomicFile(place / "b"); });
    ASSERT_FALSE(fs::is_empty(place));
    write(place);
    fs::remove_all(place / "a");
    EXPECT_TRUE(fs::is_empty(place));
  }
}

// As on a mount without fsync.
TEST_F(TemporaryTest, AFileThatCannotBeClosedDoesNotGetItsName) {
  write_file_atomic(dir_ / "a", "old");
  {
    AtomicFile file(dir_ / "a");
    file.write("new");
    close_fails = true;
    EXPECT_THAT(test::error_of<IoError>([&] { file.commit(); }), HasSubstr("a: cannot write: "));
  }
  EXPECT_THAT(names(), ElementsAre("a"));
  EXPECT_EQ(read_file(dir_ / "a"), "old");
}

TEST_F(TemporaryTest, WhatWasTakenAsideIsPutBackWhereNothingCame) {
  const auto put_aside = [&](const char* name) {
    fs::create_directory(dir_ / name);
    std::ofstream(dir_ / name / "content") << "old";
    const auto* aside = new Temporary(dir_ / name, Temporary::Kind::kAside);
    fs::rename(dir_ / name, aside->path() / name);
  };
  killed_after([&] {
    put_aside("replaced");
    put_aside("lost");
    fs::create_directory(dir_ / "replaced");
    std::ofstream(dir_ / "replaced/content") << "new";
  });
  sweep_temporaries(dir_);
  EXPECT_THAT(names(), ElementsAre("lost", "replaced"));
  EXPECT_EQ(read_file(dir_ / "lost/content"), "old");
  EXPECT_EQ(read_file(dir_ / "replaced/content"), "new");
}

TEST_F(TemporaryTest, WhatWasTakenAsideAndCannotBePutBackIsNamedAndStays) {
  const auto replace = [&] {
    write_directory_atomic(dir_ / "model", [](const fs::path& at) {
      std::ofstream(at / "content") << "new";
      renames_until_they_fail = 1;
    });
  };
  fs::create_directory(dir_ / "model");
  std::ofstream(dir_ / "model/content") << "old";
  exchanges_names = false;
  const std::string error = test::error_of<IoError>(replace);
  exchanges_names = true;
  renames_until_they_fail = -1;
  ASSERT_EQ(names().size(), 1u);
  const fs::path aside = dir_ / names()[0] / "model";
  EXPECT_THAT(error, HasSubstr("what was there is in " + aside.string()));
  EXPECT_EQ(read_file(aside / "content"), "old");
  sweep_temporaries(dir_);
  EXPECT_THAT(names(), ElementsAre("model")) << "the next command puts it back";
  EXPECT_EQ(read_file(dir_ / "model/content"), "old");
}

// The same process id and an unlocked file: neither says that the owner is dead.
TEST_F(TemporaryTest, OfAnotherMachineOrAnEarlierStartIsNamedAndStays) {
  const std::string theirs =
      ".model.tmp-0123456789abcdef-" + std::to_string(::getpid()) + "-00112233aabbccdd";
  std::ofstream(dir_ / theirs) << "x";
  testing::internal::CaptureStderr();
  write_file_atomic(dir_ / "a", "");
  write_file_atomic(dir_ / "b", "");
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr(dir_.path().string() + ": left there by another machine"));
  EXPECT_THAT(told, HasSubstr(theirs));
  EXPECT_EQ(told.find(theirs), told.rfind(theirs)) << "once";
  EXPECT_THAT(names(), ElementsAre(theirs, "a", "b"));
}

TEST_F(TemporaryTest, WhereLocksDoNotWorkItIsNamedAndStays) {
  killed_after([&] { new AtomicFile(dir_ / "tokens.bin"); });
  const std::vector<std::string> left = names();
  for (const int code : {ENOLCK, EOPNOTSUPP, ENOSYS, EBADF}) {
    flock_answers = code;
    testing::internal::CaptureStderr();
    sweep_temporaries(dir_);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(left[0]));
    EXPECT_EQ(names(), left);
    write_file_atomic(dir_ / "a", "written all the same");
    write_directory_atomic(dir_ / "b", [](const fs::path&) {});
    flock_answers = 0;
    EXPECT_THAT(names(), ElementsAre(left[0], "a", "b"));
    fs::remove(dir_ / "a");
    fs::remove(dir_ / "b");
  }
}

TEST_F(TemporaryTest, WhatMayBeTheOnlyCopyIsNotToBeRemoved) {
  fs::create_directory(dir_ / "model");
  killed_after([&] {
    const auto* aside = new Temporary(dir_ / "model", Temporary::Kind::kAside);
    fs::rename(dir_ / "model", aside->path() / "model");
  });
  const std::vector<std::string> left = names();
  flock_answers = EBADF;  // NFS: a directory cannot be open for writing
  testing::internal::CaptureStderr();
  sweep_temporaries(dir_);
  flock_answers = 0;
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr(left.at(0) + " holds what was being replaced: move it back"));
  EXPECT_THAT(told, testing::Not(HasSubstr("remove them")));
  EXPECT_EQ(names(), left);
}

TEST_F(TemporaryTest, NamesThatAreNotOursAndLinksAreLeftAlone) {
  fs::path ours;
  killed_after([&] {
    const AtomicFile* file = new AtomicFile(dir_ / "a");
    (void)file;
  });
  ASSERT_EQ(names().size(), 1u);
  const std::string left = names()[0];
  fs::remove(dir_ / left);
  const std::vector<std::string> not_ours = {
      left.substr(1),                         // not hidden
      left + "x",                             // longer
      left.substr(0, left.size() - 1),        // shorter
      left.substr(0, left.size() - 1) + "G",  // no digit
      left + ".old.old",                      // an ending twice
      "." + left.substr(left.find("tmp-")),   // of nothing
      ".a.tmp-" + std::to_string(::getpid()) + "-00112233aabbccdd",
  };
  for (const std::string& name : not_ours) std::ofstream(dir_ / name) << "mine";
  std::ofstream(dir_ / "kept") << "mine";
  fs::create_symlink("kept", dir_ / left);
  sweep_temporaries(dir_);
  EXPECT_EQ(names().size(), not_ours.size() + 2);
  EXPECT_EQ(read_file(dir_ / "kept"), "mine");
  EXPECT_TRUE(fs::is_symlink(dir_ / left));
}

// A sweeper that comes between the making of a temporary and its lock must not take it away.
TEST_F(TemporaryTest, WhatASweeperTookBeforeItWasLockedIsMadeAgain) {
  for (const auto kind : {Temporary::Kind::kFile, Temporary::Kind::kDirectory}) {
    bool was_swept = false;
    before_flock = [&] {
      sweep_temporaries(dir_);
      was_swept = names().empty();
    };
    const Temporary made(dir_ / "a", kind);
    EXPECT_TRUE(was_swept);
    EXPECT_TRUE(fs::exists(made.path()));
  }
  EXPECT_THAT(names(), IsEmpty());
}

// A file that is made in procfs or in a directory that was removed answers as one that was swept.
TEST_F(TemporaryTest, WhereNothingCanBeMadeItSaysSo) {
  const fs::path here = fs::current_path();
  fs::create_directory(dir_ / "gone");
  fs::current_path(dir_ / "gone");
  fs::remove(dir_ / "gone");
  for (const auto kind : {Temporary::Kind::kFile, Temporary::Kind::kDirectory}) {
    for (const char* sibling : {"/proc/a", "a", "/none/a"}) {
      const Temporary none(sibling, kind);
      EXPECT_EQ(none.fd(), -1) << sibling;
      EXPECT_EQ(errno, ENOENT) << sibling;
      EXPECT_TRUE(none.path().empty());
    }
  }
  fs::current_path(here);
}

TEST_F(TemporaryTest, SweepersNeverTakeAFileThatIsBeingMade) {
  std::atomic<bool> is_done{false};
  std::thread sweeper([&] {
    while (!is_done) sweep_temporaries(dir_);
  });
  for (int i = 0; i < 500; ++i) {
    Temporary file(dir_ / "file", Temporary::Kind::kFile);
    ASSERT_GE(file.fd(), 0);
    ASSERT_TRUE(fs::exists(file.path())) << i;
    Temporary directory(dir_ / "directory", Temporary::Kind::kDirectory);
    ASSERT_GE(directory.fd(), 0);
    ASSERT_TRUE(fs::exists(directory.path())) << i;
    fs::rename(file.path(), dir_ / "published");
    ::close(file.release());
  }
  is_done = true;
  sweeper.join();
  EXPECT_THAT(names(), ElementsAre("published"));
}

TEST_F(TemporaryTest, ADirectoryIsRemovedInOneStep) {
  fs::create_directories(dir_ / "a/b");
  std::ofstream(dir_ / "a/b/c") << "x";
  fs::create_directory_symlink(dir_, dir_ / "a/link");
  remove_directory_atomic(dir_ / "a/");
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_THROW(remove_directory_atomic(dir_ / "a"), std::exception);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TemporaryTest, ANamelessFileHoldsWhatIsWritten) {
  const int fd = open_nameless(dir_);
  ASSERT_GE(fd, 0);
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_EQ(::write(fd, "abc", 3), 3);
  char back[4] = "";
  EXPECT_EQ(::pread(fd, back, 3, 0), 3);
  EXPECT_STREQ(back, "abc");
  ::close(fd);
  EXPECT_EQ(open_nameless(dir_ / "none"), -1);
}

}  // namespace
}  // namespace danlu
