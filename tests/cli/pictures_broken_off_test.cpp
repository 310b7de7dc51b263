// Questions with pictures that were broken off: what goes on takes no answer about another picture,
// or about one that was read otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bad_input.h"
#include "cli/own_folder.h"
#include "cli/seeing_model.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class PicturesBrokenOff : public OwnFolder {
 protected:
  static constexpr int kRows = 300;
  static constexpr size_t kAnswered = 12;  ///< before a run is killed

  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    make_seeing_model(folder_.path());
    fs::create_directories(*this / "signs");
    show("first.png", "a.png");
    show("other.png", "a.png");
  }
  /// Lets a picture of the questions show one of the golden ones.
  void show(const std::string& name, const std::string& golden) const {
    fs::copy_file(shared_dir() / "golden/vl/rows/media" / golden, *this / "signs" / name,
                  fs::copy_options::overwrite_existing);
  }
  size_t num_lines(const std::string& file) const {
    const std::string text = content_of(*this / file);
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  /// Kills the line once `file` has more than so many lines and `when` is true.
  void break_off(
      const std::vector<std::string>& words, const std::string& file,
      const std::function<bool()>& when = [] { return true; }) const {
    ProgramSettings settings{.directory = folder_.path()};
    settings.signal = SIGKILL;
    settings.signal_when = [&] { return when() && num_lines(file) > kAnswered; };
    const ProgramResult result = run_danlu(words, settings);
    ASSERT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
    ASSERT_LT(num_lines(file), static_cast<size_t>(kRows)) << "the run was over too soon";
  }
};

using Words = std::vector<std::string>;

class ExaminationBrokenOff : public PicturesBrokenOff {
 protected:
  void SetUp() override {
    PicturesBrokenOff::SetUp();
    if (IsSkipped()) return;
    std::string rows = "image,question,A,B,answer\n";
    for (int i = 0; i < kRows; ++i)
      rows += std::string(i % 2 ? "first.png" : "other.png") + ",the fox " + std::to_string(i) +
              "?,dog,fox,A\n";
    write("signs/test.csv", rows);
    write("signs.yaml",
          "task: signs\noutput_type: multiple_choice\ntest_split: test\nnum_fewshot: 0\n"
          "doc_to_image: image\ndoc_to_text: \"{{question}}\"\ndoc_to_choice: [A, B]\n"
          "doc_to_target: \"{{ 'AB'.index(answer) }}\"\nmetric_list: [{metric: acc}]\n");
  }
  static Words line(const std::string& out, const Words& more = {}) {
    Words words = {"eval",
                   "--include_path",
                   "signs.yaml",
                   "--tasks",
                   "signs",
                   "--model",
                   "seeing",
                   "--data_dir",
                   "signs",
                   "--log_samples",
                   "--device",
                   "cpu",
                   "--deterministic",
                   "--output_path",
                   out};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static constexpr const char* kJournal = "out/unfinished/answers.0.jsonl";

  /// The samples of the results in `out`.
  std::string samples(const std::string& out) const {
    for (const auto& entry : fs::directory_iterator(*this / out)) {
      if (entry.path().filename().string().starts_with("samples_signs_"))
        return content_of(entry.path());
    }
    return "";
  }
};

TEST_F(ExaminationBrokenOff, AnswersOfOtherLimitsAreNotTaken) {
  break_off(line("out"), kJournal);
  const ProgramResult again = run(line("out", {"--max_pixels", "3136"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("holds answers of another model or with other settings"));
  ok(line("undisturbed", {"--max_pixels", "3136"}));
  EXPECT_EQ(samples("out"), samples("undisturbed"));
}

TEST_F(ExaminationBrokenOff, AReplacedPictureIsAskedAboutAgain) {
  break_off(line("out"), kJournal);
  const size_t kept = num_lines(kJournal) - 1;
  show("first.png", "b.jpg");
  const ProgramResult again = run(line("out"));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr(std::to_string(kept) + " answers were there"));
  ok(line("undisturbed"));
  EXPECT_NE(samples("out"), "");
  EXPECT_EQ(samples("out"), samples("undisturbed"));
}

class AnswersBrokenOff : public PicturesBrokenOff {
 protected:
  void SetUp() override {
    PicturesBrokenOff::SetUp();
    if (IsSkipped()) return;
    std::string rows;
    for (int i = 0; i < kRows; ++i) {
      rows += json{{"messages",
                    {{{"role", "user"}, {"content", "<image>the fox " + std::to_string(i) + "?"}}}},
                   {"images", {i == 3 ? "signs/first.png" : "signs/other.png"}}}
                  .dump() +
              "\n";
    }
    write("rows.jsonl", rows);
  }
  static Words line(const std::string& out) {
    return {"infer",    "--model", "seeing",           "--dataset", "rows.jsonl",   "--output", out,
            "--device", "cpu",     "--max_new_tokens", "8",         "--batch_size", "1"};
  }
};

TEST_F(AnswersBrokenOff, ThoseAboutAReplacedPictureAndBehindAreMadeAgain) {
  break_off(line("out.jsonl"), "out.jsonl.partial");
  show("first.png", "b.jpg");
  const ProgramResult again = run(line("out.jsonl"));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("\n3 of 300 answers are there from a run that was broken off"));
  ok(line("undisturbed.jsonl"));
  EXPECT_EQ(content_of(*this / "out.jsonl"), content_of(*this / "undisturbed.jsonl"));
  EXPECT_FALSE(fs::exists(*this / "out.jsonl.partial.request"));
}

/// The request that is kept is the one whose answers stand beside it.
TEST_F(AnswersBrokenOff, ASecondTimeTheNewPictureCounts) {
  break_off(line("out.jsonl"), "out.jsonl.partial");
  show("first.png", "b.jpg");
  const std::string request = content_of(*this / "out.jsonl.partial.request");
  break_off(line("out.jsonl"), "out.jsonl.partial",
            [&] { return content_of(*this / "out.jsonl.partial.request") != request; });
  const size_t kept = num_lines("out.jsonl.partial");
  const ProgramResult again = run(line("out.jsonl"));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("\n" + std::to_string(kept) + " of 300 answers are there"));
  ok(line("undisturbed.jsonl"));
  EXPECT_EQ(content_of(*this / "out.jsonl"), content_of(*this / "undisturbed.jsonl"));
}

TEST_F(AnswersBrokenOff, AnotherProcessorIsAnotherRequest) {
  break_off(line("out.jsonl"), "out.jsonl.partial");
  replace_in_file(*this / "seeing/preprocessor_config.json", "0.48145466", "0.1");
  const ProgramResult again = run(line("out.jsonl"));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("answers are there from a run that was broken off")));
  ok(line("undisturbed.jsonl"));
  EXPECT_EQ(content_of(*this / "out.jsonl"), content_of(*this / "undisturbed.jsonl"));
}

}  // namespace
}  // namespace danlu::test
