// One process at a time: who holds a lock, and what is left of those who died with one.
#include "base/file_lock.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "base/error.h"
#include "support/temporary_directory.h"

namespace danlu {
namespace {

using ::testing::StartsWith;

using Folder = test::TemporaryDirectory;

TEST(FileLock, IsHeldByOneAndNamesIt) {
  const Folder folder;
  const fs::path file = folder / "lock";
  {
    const auto lock = FileLock::try_take(file);
    ASSERT_TRUE(lock);
    EXPECT_FALSE(FileLock::try_take(file));
    EXPECT_EQ(FileLock::holder(file), "process " + std::to_string(::getpid()));
  }
  EXPECT_FALSE(fs::exists(file)) << "given back";
  EXPECT_TRUE(FileLock::try_take(file));
}

TEST(FileLock, IsNotHeldOnceItsFileIsGoneOrAnothers) {
  const Folder folder;
  const fs::path file = folder / "lock";
  const auto lock = FileLock::try_take(file);
  ASSERT_TRUE(lock);
  EXPECT_TRUE(lock->is_held());
  fs::remove(file);
  EXPECT_FALSE(lock->is_held());
  const auto other = FileLock::try_take(file);
  EXPECT_FALSE(lock->is_held());
  EXPECT_TRUE(other->is_held());
}

TEST(FileLock, OfAKilledProcessIsFree) {
  const Folder folder;
  const fs::path file = folder / "lock";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::try_take(file);
    [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char told;
  ASSERT_EQ(::read(ready[0], &told, 1), 1);
  EXPECT_FALSE(FileLock::try_take(file));
  EXPECT_EQ(FileLock::holder(file), "process " + std::to_string(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(file)) << "nobody was left to remove it";
  EXPECT_TRUE(FileLock::try_take(file));
}

TEST(FileLock, WaitsForItsHolder) {
  const Folder folder;
  const fs::path file = folder / "lock";
  auto held = FileLock::try_take(file);
  std::atomic<bool> given_back = false;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    given_back = true;
    held.reset();
  });
  const FileLock lock = FileLock::wait_for(file, "the test");
  EXPECT_TRUE(given_back);
  other.join();
}

TEST(FileLock, OnlyOneOfManyGetsAFileThatComesAndGoes) {
  const Folder folder;
  const fs::path file = folder / "lock";
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int taken = 0; taken < 200;) {
        const auto lock = FileLock::try_take(file);
        if (!lock) continue;
        EXPECT_EQ(inside.fetch_add(1), 0);
        inside.fetch_sub(1);
        ++taken;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FileLock, SaysWhatItCannotMake) {
  const Folder folder;
  try {
    FileLock::try_take(folder / "none/lock");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), StartsWith((folder / "none/lock").string() + ": cannot create"));
  }
}

TEST(MadeDirectory, LeavesAFileThatSomebodyHasPutInItsPlace) {
  const Folder folder;
  {
    const MadeDirectory made(folder / "a");
    fs::rename(folder / "a", folder / "b");
    write_file_atomic(folder / "a", "mine");
  }
  EXPECT_EQ(read_file(folder / "a"), "mine");
}

TEST(MadeDirectory, TakesAwayWhatItMadeAndNobodyUsed) {
  const Folder folder;
  {
    const MadeDirectory made(folder / "a/b/c");
  }
  EXPECT_FALSE(fs::exists(folder / "a"));
  {
    const MadeDirectory made(folder / "a/b/c/");
    write_file_atomic(folder / "a/kept", "x");
  }
  EXPECT_TRUE(fs::exists(folder / "a/kept"));
  EXPECT_FALSE(fs::exists(folder / "a/b"));
  {
    const MadeDirectory made(folder / "a");
  }
  fs::remove(folder / "a/kept");
  {
    const MadeDirectory made(folder / "a");
  }
  EXPECT_TRUE(fs::exists(folder / "a")) << "it was there before";
}

}  // namespace
}  // namespace danlu
