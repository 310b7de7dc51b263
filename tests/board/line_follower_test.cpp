#include "board/line_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "board/run_folder.h"

namespace danlu::board {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kMuch = size_t{64} << 20;

class LineFollowerTest : public ::testing::Test {
 protected:
  const test::TemporaryDirectory folder_;
  const std::filesystem::path file_ = folder_ / "logging.jsonl";
  LineFollower follower_{file_};
};

TEST_F(LineFollowerTest, ALineComesOnceItIsWhole) {
  put(file_, "one\ntw");
  EXPECT_THAT(follower_.read_on(kMuch).lines, ElementsAre("one"));
  append(file_, "o");
  EXPECT_THAT(follower_.read_on(kMuch).lines, IsEmpty());
  append(file_, "\nthree\n");
  EXPECT_THAT(follower_.read_on(kMuch).lines, ElementsAre("two", "three"));
  EXPECT_THAT(follower_.read_on(kMuch).lines, IsEmpty());
}

TEST_F(LineFollowerTest, AFileThatIsNotThereYetIsRead) {
  EXPECT_FALSE(follower_.read_on(kMuch).begins_anew);
  put(file_, "one\n");
  const auto news = follower_.read_on(kMuch);
  EXPECT_FALSE(news.begins_anew);
  EXPECT_THAT(news.lines, ElementsAre("one"));
}

TEST_F(LineFollowerTest, AnotherFileOfTheNameBeginsAnew) {
  put(file_, "one\ntwo\n");
  (void)follower_.read_on(kMuch);
  replace(file_, "one\nTWO\nthree\n");
  const auto news = follower_.read_on(kMuch);
  EXPECT_TRUE(news.begins_anew);
  EXPECT_THAT(news.lines, ElementsAre("one", "TWO", "three"));
}

TEST_F(LineFollowerTest, AFileWrittenOverInItsPlaceBeginsAnewEvenIfItIsLonger) {
  put(file_, "one\ntwo\n");
  (void)follower_.read_on(kMuch);
  put(file_, "ONE\nTWO\nthree\n");  // the same inode
  const auto news = follower_.read_on(kMuch);
  EXPECT_TRUE(news.begins_anew);
  EXPECT_THAT(news.lines, ElementsAre("ONE", "TWO", "three"));
}

TEST_F(LineFollowerTest, ACutFileBeginsAnew) {
  put(file_, "one\ntwo\n");
  (void)follower_.read_on(kMuch);
  std::filesystem::resize_file(file_, 4);
  const auto news = follower_.read_on(kMuch);
  EXPECT_TRUE(news.begins_anew);
  EXPECT_THAT(news.lines, ElementsAre("one"));
}

TEST_F(LineFollowerTest, ARemovedFileIsForgotten) {
  put(file_, "one\n");
  (void)follower_.read_on(kMuch);
  std::filesystem::remove(file_);
  EXPECT_TRUE(follower_.read_on(kMuch).begins_anew);
  EXPECT_FALSE(follower_.read_on(kMuch).begins_anew);
}

TEST_F(LineFollowerTest, ALineWithoutAnEndCostsNoMemoryAndTheNextIsRead) {
  put(file_, "one\n" + std::string(3 * LineFollower::kLongestLine, 'x'));
  std::vector<std::string> lines;
  for (int i = 0; i < 6; ++i) {
    for (auto& line : follower_.read_on(1).lines) lines.push_back(line);
  }
  append(file_, "\ntwo\n");
  for (auto& line : follower_.read_on(kMuch).lines) lines.push_back(line);
  EXPECT_THAT(lines, ElementsAre("one", "two"));
}

// Who makes a run's directory must not be able to show what lies elsewhere, nor to hold the reader.
TEST_F(LineFollowerTest, LinksAndPipesAreNotRead) {
  put(folder_ / "secret", "secret\n");
  std::filesystem::create_symlink(folder_ / "secret", file_);
  EXPECT_THAT(follower_.read_on(kMuch).lines, IsEmpty());
  EXPECT_FALSE(stamp_of(file_));
  EXPECT_FALSE(read_part(file_, 0, 100));
  std::filesystem::remove(file_);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THAT(follower_.read_on(kMuch).lines, IsEmpty());
}

}  // namespace
}  // namespace danlu::board
