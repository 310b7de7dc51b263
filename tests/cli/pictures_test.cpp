// The pictures that a run leaves, on a machine with and without fonts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Pictures : public BadInput {};

TEST_F(Pictures, ARunLeavesItsLossAsPngAndSvg) {
  const ProgramResult trained = train(good("good.jsonl"));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("images_dir: run/images (train_loss.png)"));
  for (const char* name : {"train_loss.png", "train_loss.svg", "train_learning_rate.svg"})
    EXPECT_TRUE(fs::exists(*this / "run/images" / name)) << name;
}

TEST_F(Pictures, AMachineWithoutFontsGetsThemToo) {
  ::setenv("FONTCONFIG_FILE", (*this / "not there").c_str(), 1);
  const ProgramResult trained = train(good("good.jsonl"));
  ::unsetenv("FONTCONFIG_FILE");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("images: no font on this machine"));
  EXPECT_THAT(trained.err, Not(HasSubstr("ontconfig")));
  EXPECT_THAT(trained.err, Not(HasSubstr("ango")));
  EXPECT_TRUE(fs::exists(*this / "run/images/train_loss.png"));
}

}  // namespace
}  // namespace danlu::test
