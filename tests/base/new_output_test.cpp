// Outputs: nothing that is read or that came meanwhile is replaced, and one process makes them.
#include "base/new_output.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/error.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu {
namespace {

using test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

class NewOutput : public ::testing::Test {
 protected:
  fs::path operator/(const std::string& name) const { return folder_ / name; }
  static void write(const fs::path& file) { write_file_atomic(file, file.filename().string()); }
  const test::TemporaryDirectory folder_;
};

TEST_F(NewOutput, TakesAwayWhatLiesInItUnderWhateverName) {
  fs::create_directories(*this / "model/sub");
  fs::create_directories(*this / "other");
  write(*this / "model/config.json");
  write(*this / "other/file");
  fs::create_symlink(*this / "model", *this / "link");
  fs::create_symlink(*this / "other/file", *this / "model/borrowed");
  fs::create_hard_link(*this / "other/file", *this / "hard");
  EXPECT_TRUE(would_replace(*this / "model", *this / "model/config.json"));
  EXPECT_TRUE(would_replace(*this / "model/", *this / "model"));
  EXPECT_TRUE(would_replace(*this / "link", *this / "model/sub"));
  EXPECT_TRUE(would_replace(*this / "model", *this / "link/config.json"));
  EXPECT_TRUE(would_replace(*this / "model", *this / "model/borrowed"));
  EXPECT_TRUE(would_replace(*this / "hard", *this / "other/file"));
  EXPECT_TRUE(would_replace(folder_, *this / "model"));
  EXPECT_FALSE(would_replace(*this / "model/new", *this / "model"));
  EXPECT_FALSE(would_replace(*this / "model/sub", *this / "model"));
  EXPECT_FALSE(would_replace(*this / "other", *this / "model"));
  EXPECT_FALSE(would_replace(*this / "model", *this / "model2"));
  EXPECT_FALSE(would_replace(*this / "model", ""));
}

TEST_F(NewOutput, IsMadeByOneProcessAtATime) {
  const NewDirectory first(*this / "new/model", false, {});
  EXPECT_THAT(error_of<IoError>([&] { NewDirectory(*this / "new/model/", true, {}); }),
              AllOf(HasSubstr("process "), HasSubstr(" is making it"), HasSubstr("another name")));
  NewDirectory(*this / "new/other", false, {});
}

TEST_F(NewOutput, DecidesAgainWhenItGetsItsName) {
  {
    const NewDirectory made(*this / "model", false, {});
    fs::create_directory(*this / "model");
    write(*this / "model/mine");
    EXPECT_THAT(error_of<UsageError>([&] {
                  made.publish([](const fs::path& directory) { write(directory / "new"); });
                }),
                HasSubstr("exists and is not empty"));
    EXPECT_EQ(read_file(*this / "model/mine"), "mine");
  }
  const NewDirectory made(*this / "model", true, {});
  made.publish([](const fs::path& directory) { write(directory / "new"); });
  EXPECT_EQ(read_file(*this / "model/new"), "new");
  EXPECT_FALSE(fs::exists(*this / "model/mine"));
}

TEST_F(NewOutput, ALockLeftByAKilledProcessGoesWithTheRefusal) {
  fs::create_directory(*this / "model");
  write(*this / "model/complete");
  write(lock_file_of(*this / "model"));
  EXPECT_THROW(NewDirectory(*this / "model", false, {}), UsageError);
  EXPECT_FALSE(fs::exists(lock_file_of(*this / "model")));
}

TEST_F(NewOutput, IsNotReplacedWhileSomebodyWorksInItOrBelow) {
  for (const char* at_work : {"runs", "runs/v0"}) {
    fs::create_directories(*this / "runs/v0");
    write(*this / "runs/mine");
    std::optional<NewDirectory> made(std::in_place, *this / "runs", true, std::vector<fs::path>());
    {
      const auto working = try_lock_contents(*this / at_work);
      ASSERT_TRUE(working);
      EXPECT_THAT(error_of<IoError>([&] { made->publish([](const fs::path&) {}); }),
                  HasSubstr("works in " + (*this / at_work).string()));
      made.reset();
      EXPECT_THAT(error_of<IoError>([&] { NewDirectory(*this / "runs", true, {}); }),
                  HasSubstr("works in " + (*this / at_work).string()));
      EXPECT_EQ(read_file(*this / "runs/mine"), "mine");
    }
    write(*this / at_work / ".danlu.lock");  // of a killed process
    NewDirectory(*this / "runs", true, {}).publish([](const fs::path&) {});
    EXPECT_FALSE(fs::exists(*this / "runs/mine"));
  }
}

TEST_F(NewOutput, ALockLeavesTheOneThatTookItsPlace) {
  fs::create_directory(*this / "run");
  auto before = try_lock_contents(*this / "run");
  fs::rename(*this / "run", *this / "moved");
  fs::create_directory(*this / "run");
  const auto after = try_lock_contents(*this / "run");
  ASSERT_TRUE(before && after);
  before.reset();
  EXPECT_FALSE(try_lock_contents(*this / "run"));
}

TEST_F(NewOutput, LeavesALinkToADirectoryALink) {
  fs::create_directory(*this / "disk");
  fs::create_directory_symlink(*this / "disk", *this / "model");
  NewDirectory(*this / "model", false, {}).publish([](const fs::path& directory) {
    write(directory / "new");
  });
  EXPECT_TRUE(fs::is_symlink(*this / "model"));
  EXPECT_EQ(read_file(*this / "disk/new"), "new");
}

TEST_F(NewOutput, LeavesNothingWhereItIsRefused) {
  fs::create_directory(*this / "model");
  write(*this / "model/mine");
  EXPECT_THAT(
      error_of<UsageError>([&] { NewDirectory(*this / "model", true, {*this / "model/mine"}); }),
      HasSubstr("holds the source"));
  EXPECT_THAT(error_of<UsageError>([&] { NewDirectory(*this / "model", false, {}); }),
              HasSubstr("exists and is not empty"));
  {
    const NewDirectory unused(*this / "deep/new", false, {});
  }
  EXPECT_FALSE(fs::exists(*this / "deep"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace danlu
