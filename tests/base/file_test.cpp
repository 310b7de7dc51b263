#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace danlu {
namespace {

using testing::HasSubstr;

class FileTest : public testing::Test {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(dir_)) out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }

  const test::TemporaryDirectory dir_;
  const std::string pid_ = std::to_string(::getpid());
};

TEST_F(FileTest, MapsTheWholeFile) {
  write_file_atomic(dir_ / "a", "hello");
  MappedFile file(dir_ / "a");
  EXPECT_EQ(file.text(), "hello");
  MappedFile moved(std::move(file));
  EXPECT_EQ(moved.text(), "hello");
  EXPECT_EQ(file.size(), 0u);  // NOLINT(bugprone-use-after-move): moved-from is empty by contract
}

TEST_F(FileTest, AnEmptyFileMapsToNothing) {
  write_file_atomic(dir_ / "empty", "");
  EXPECT_EQ(MappedFile(dir_ / "empty").size(), 0u);
  EXPECT_EQ(read_file(dir_ / "empty"), "");
}

TEST_F(FileTest, MissingFilesAndDirectoriesAreErrorsThatNameThePath) {
  for (const fs::path& path : {dir_ / "nothing", dir_.path()}) {
    try {
      MappedFile file(path);
      FAIL() << path;
    } catch (const IoError& e) {
      EXPECT_THAT(e.what(), HasSubstr(path.string()));
    }
  }
  EXPECT_THROW(read_file(dir_ / "nothing"), IoError);
}

TEST_F(FileTest, WhatHasNoEndIsRefusedAtOnce) {
  const fs::path pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto error_of = [](const fs::path& path) -> std::string {
    try {
      read_file(path);
    } catch (const IoError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of(pipe), pipe.string() + ": a named pipe, not a regular file");
  EXPECT_EQ(error_of("/dev/zero"), "/dev/zero: a device, not a regular file");
  EXPECT_THROW(MappedFile{pipe}, IoError);
  EXPECT_EQ(read_file("/dev/null"), "");
  // What `<(command)` names: a pipe that is open already, though nothing was written yet.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    EXPECT_EQ(::write(ends[1], "text", 4), 4);
    ::close(ends[1]);
  });
  EXPECT_EQ(read_file("/dev/fd/" + std::to_string(ends[0])), "text");
  writer.join();
  ::close(ends[0]);
}

TEST_F(FileTest, AFileAppearsOnlyWithCommit) {
  {
    AtomicFile file(dir_ / "a");
    file.write("half");
    EXPECT_FALSE(fs::exists(dir_ / "a"));
  }
  EXPECT_THAT(names(), testing::IsEmpty()) << "an abandoned file leaves nothing";
  AtomicFile file(dir_ / "a");
  file.write("whole");
  EXPECT_EQ(file.bytes_written(), 5u);
  file.commit();
  EXPECT_EQ(read_file(dir_ / "a"), "whole");
  EXPECT_THAT(names(), testing::ElementsAre("a"));
}

TEST_F(FileTest, WritesLargerThanTheBufferArriveWhole) {
  std::string content;
  for (int i = 0; i < 400000; ++i) content += std::to_string(i);
  write_file_atomic(dir_ / "big", content);
  EXPECT_EQ(read_file(dir_ / "big"), content);
}

TEST_F(FileTest, AFullDiskLeavesTheOldFileIntact) {
  write_file_atomic(dir_ / "checkpoint", "old");
  const int code = test::with_file_size_limit(1 << 20, [&] {
    try {
      write_file_atomic(dir_ / "checkpoint", std::string(3 << 20, 'x'));
    } catch (const IoError& e) {
      const bool names_it =
          std::string(e.what()).find("checkpoint: cannot write") != std::string::npos;
      return names_it ? 42 : 1;
    }
    return 0;
  });
  EXPECT_EQ(code, 42) << "the write must fail with an IoError that names the file";
  EXPECT_EQ(read_file(dir_ / "checkpoint"), "old");
  EXPECT_THAT(names(), testing::ElementsAre("checkpoint"));
}

TEST_F(FileTest, AFileAboveTheLimitOfItsSizeIsToldTheLimit) {
  const int code = test::with_file_size_limit(51'200, [&] {
    try {
      write_file_atomic(dir_ / "report", std::string(60'000, 'x'));
    } catch (const IoError& e) {
      return e.hint() == "no file may be larger than 51.2 kB here: raise the limit (ulimit -f)" ? 42
                                                                                                : 1;
    }
    return 0;
  });
  EXPECT_EQ(code, 42);
  EXPECT_EQ(hint_of_full(ENOSPC, "make room"), "make room");
  EXPECT_EQ(hint_of_full(EIO, "make room"), "");
}

TEST_F(FileTest, ADirectoryIsReplacedWholeOrNotAtAll) {
  const fs::path target = dir_ / "model";
  write_directory_atomic(target, [](const fs::path& at) { write_file_atomic(at / "one", "1"); });
  EXPECT_THROW(write_directory_atomic(target,
                                      [](const fs::path& at) {
                                        write_file_atomic(at / "two", "2");
                                        throw DataError("stop");
                                      }),
               DataError);
  EXPECT_EQ(read_file(target / "one"), "1");
  EXPECT_FALSE(fs::exists(target / "two"));
  write_directory_atomic(target, [](const fs::path& at) { write_file_atomic(at / "two", "2"); });
  EXPECT_FALSE(fs::exists(target / "one"));
  EXPECT_EQ(read_file(target / "two"), "2");
  EXPECT_THAT(names(), testing::ElementsAre("model"));
}

// Containers that share a volume may all have process id 1, and a killed process leaves its files.
TEST_F(FileTest, AnotherProcessOfTheSameIdIsNotInTheWay) {
  const auto theirs = [&](const std::string& name) { return dir_ / (name + "-" + pid_); };
  std::vector<fs::path> files{theirs(".danlu-write-test")};
  for (int i = 0; i < 100; ++i) {
    files.push_back(theirs(".a.tmp").string() + "-" + std::to_string(i));
  }
  for (const fs::path& file : files) std::ofstream(file) << "theirs";
  write_file_atomic(dir_ / "a", "ours");
  write_directory_atomic(dir_ / "a.d", [](const fs::path&) {});
  require_writable_directory(dir_);
  EXPECT_EQ(read_file(dir_ / "a"), "ours");
  for (const fs::path& file : files) EXPECT_EQ(read_file(file), "theirs") << file;
}

TEST_F(FileTest, ANameAsLongAsTheFileSystemAllows) {
  const std::string longest(255, 'n');
  write_file_atomic(dir_ / longest, "x");
  EXPECT_EQ(read_file(dir_ / longest), "x");
  fs::remove(dir_ / longest);
  write_directory_atomic(dir_ / longest,
                         [](const fs::path& at) { write_file_atomic(at / "a", ""); });
  EXPECT_TRUE(fs::exists(dir_ / longest / "a"));
  EXPECT_THAT(names(), testing::ElementsAre(longest));
}

TEST_F(FileTest, ADirectoryThatCannotBePublishedLeavesTheOldOneInPlace) {
  const fs::path target = dir_ / "model";
  write_directory_atomic(target, [](const fs::path& at) { write_file_atomic(at / "one", "1"); });
  // Somebody takes the new content away before it gets its name.
  EXPECT_THROW(write_directory_atomic(target, [](const fs::path& at) { fs::remove_all(at); }),
               IoError);
  EXPECT_EQ(read_file(target / "one"), "1");
  EXPECT_THAT(names(), testing::ElementsAre("model"));
}

TEST_F(FileTest, AFileInTheWayOfADirectoryIsReplacedAndALinkIsNotFollowed) {
  write_file_atomic(dir_ / "model", "a file");
  const auto fill = [](const fs::path& at) { write_file_atomic(at / "one", "1"); };
  write_directory_atomic(dir_ / "model", fill);
  EXPECT_EQ(read_file(dir_ / "model" / "one"), "1");
  fs::create_directory_symlink("model", dir_ / "link");
  write_directory_atomic(dir_ / "link",
                         [](const fs::path& at) { write_file_atomic(at / "two", "2"); });
  EXPECT_FALSE(fs::is_symlink(dir_ / "link"));
  EXPECT_TRUE(fs::exists(dir_ / "model" / "one"));
  EXPECT_THAT(names(), testing::ElementsAre("link", "model"));
}

TEST_F(FileTest, AFailedDirectoryTakesTheFoldersItMadeWithIt) {
  EXPECT_THROW(write_directory_atomic(dir_ / "new" / "run" / "model",
                                      [](const fs::path&) { throw DataError("stop"); }),
               DataError);
  EXPECT_THAT(names(), testing::IsEmpty());
}

TEST_F(FileTest, ADirectoryInAMissingFolderAndWithATrailingSlash) {
  const fs::path target = dir_ / "new" / "model" / "";
  write_directory_atomic(target, [](const fs::path& at) { write_file_atomic(at / "a", "1"); });
  EXPECT_EQ(read_file(dir_ / "new" / "model" / "a"), "1");
}

TEST_F(FileTest, FreeSpaceIsAskedOfTheNearestExistingFolder) {
  EXPECT_GT(free_space_bytes(dir_ / "not" / "yet"), 0u);
  try {
    require_free_space(dir_, 1ull << 62, "a checkpoint");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr("a checkpoint needs 4611.7 PB"));
  }
  try {
    require_free_space("/proc", 1234, "a checkpoint");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_STREQ(e.what(), "/proc: a checkpoint needs 1.2 kB, 0 B are free");
  }
}

TEST_F(FileTest, AnOutputFolderIsMadeOrRefused) {
  require_writable_directory(dir_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(dir_ / "a" / "b"));
  EXPECT_TRUE(fs::is_empty(dir_ / "a" / "b"));
  write_file_atomic(dir_ / "file", "x");
  EXPECT_THROW(require_writable_directory(dir_ / "file"), IoError);
  EXPECT_THROW(require_writable_directory(dir_ / "file" / "below"), IoError);
  // /proc refuses new files to everybody, root too.
  EXPECT_THROW(require_writable_directory("/proc/self"), IoError);
}

TEST(HashBytes, IsFnv1a) {
  EXPECT_EQ(hash_bytes(""), 0xcbf29ce484222325ull);
  EXPECT_EQ(hash_bytes("foobar"), 0x85944171f73967e8ull);  // the algorithm's published vector
  EXPECT_EQ(hash_bytes("bar", hash_bytes("foo")), hash_bytes("foobar"));
}

}  // namespace
}  // namespace danlu
