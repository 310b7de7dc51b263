// `danlu eval` that ends before its time: what was answered is kept, the same command asks the rest
// and leaves what an undisturbed run leaves.
#include <csignal>
#include <cstring>
#include <functional>
#include <set>

#include "cli/examined.h"
#include "support/file_size_limit.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kJournal = "out/unfinished/answers.0.jsonl";

/// Changes an F32 tensor of a safetensors file by `change(row, column)`, which returns the number
/// or the one that is there.
void change_tensor(const fs::path& file, const std::string& tensor,
                   const std::function<float(int64_t, int64_t, float)>& change) {
  std::string bytes = content_of(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const json entry = json::parse(bytes.substr(8, length)).at(tensor);
  ASSERT_EQ(entry.at("dtype"), "F32");
  const int64_t rows = entry.at("shape").at(0), columns = entry.at("shape").at(1);
  char* at = bytes.data() + 8 + length + entry.at("data_offsets").at(0).get<uint64_t>();
  for (int64_t i = 0; i < rows * columns; ++i) {
    float number = 0;
    std::memcpy(&number, at + 4 * i, sizeof number);
    number = change(i / columns, i % columns, number);
    std::memcpy(at + 4 * i, &number, sizeof number);
  }
  write_content(file, bytes);
}

class EvalBrokenOff : public Examined {
 protected:
  /// So many questions, each alone, that a run of them is met in its middle.
  Flags many() const {
    write_rows("many", 500);
    return {{"data_dir", "many"}, {"deterministic", "true"}};
  }
  /// One question, whose answer never ends.
  Flags endless() const {
    replace_in_file((*this) / "tasks/talk.yaml", "max_gen_toks: 24", "max_gen_toks: 9000000");
    replace_in_file((*this) / "tasks/talk.yaml", "[\"zq\"]", "[]");
    const fs::path model = make_model("endless", 10000000);
    // The tokens that would end it are never the likeliest.
    std::set<int64_t> ends;
    const json tokenizer = json::parse(content_of(model / "tokenizer.json"));
    for (const json& token : tokenizer.at("added_tokens"))
      ends.insert(token.at("id").get<int64_t>());
    change_tensor(model / "model.safetensors", "lm_head.weight",
                  [&](int64_t row, int64_t, float old) { return ends.count(row) ? 0.f : old; });
    return {{"tasks", "talk"}, {"model", model}};
  }
  int64_t num_kept() const {
    const std::string lines = content_of((*this) / kJournal);
    return std::count(lines.begin(), lines.end(), '\n') - 1;  // the first says whose they are
  }
  ProgramResult examine_until(const Flags& flags, int signal,
                              const std::function<bool()>& when) const {
    ProgramSettings settings;
    settings.signal = signal;
    settings.signal_when = when;
    return examine(flags, settings);
  }
  void expect_goes_on(const Flags& flags, int64_t kept) const {
    const ProgramResult again = examine(flags);
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr(std::to_string(kept) + " answers were there from a run that "
                                                            "was broken off"));
    Flags undisturbed = flags;
    undisturbed["output_path"] = "undisturbed";
    ASSERT_EQ(examine(undisturbed).exit_code, 0);
    EXPECT_EQ(timeless("out"), timeless("undisturbed"));
  }
};

TEST_F(EvalBrokenOff, AfterASignalTheSameCommandAsksTheRest) {
  const Flags flags = many();
  for (const int signal : {SIGKILL, SIGINT}) {
    for (const char* out : {"out", "undisturbed"}) fs::remove_all((*this) / out);
    const ProgramResult result = examine_until(flags, signal, [&] { return num_kept() >= 20; });
    EXPECT_EQ(result.exit_code, 128 + signal) << result.err;
    EXPECT_EQ(result.out, "");
    if (signal != SIGKILL) {
      EXPECT_THAT(result.err, HasSubstr("[eval] stopped"));
    }
    const int64_t kept = num_kept();
    ASSERT_GE(kept, 20);
    ASSERT_LT(kept, 1500) << "the run was over too soon";
    expect_goes_on(flags, kept);
  }
}

TEST_F(EvalBrokenOff, AnAnswerThatGoesOnIsEndedByASignal) {
  const Flags flags = endless();
  const ProgramResult result =
      examine_until(flags, SIGINT, [&] { return fs::exists((*this) / kJournal); });
  EXPECT_EQ(result.exit_code, 130) << result.err;
  // Nothing was answered: nothing is left.
  EXPECT_FALSE(fs::exists((*this) / "out"));
}

TEST_F(EvalBrokenOff, SeveralProcessesGoOnWithWhatAnotherNumberOfThemAnswered) {
  Flags flags = many(), three = flags;
  three["nproc"] = "3";
  const ProgramResult result = examine_until(three, SIGTERM, [&] { return num_kept() >= 20; });
  EXPECT_EQ(result.exit_code, 143) << result.err;
  const ProgramResult again = examine(flags);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr(" answers were there from a run that was broken off"));
  flags["output_path"] = "undisturbed";
  ASSERT_EQ(examine(flags).exit_code, 0);
  EXPECT_EQ(timeless("out"), timeless("undisturbed"));
}

/// Samples are there with their results or not at all, whatever was broken off before.
TEST_F(EvalBrokenOff, AnotherCommandInTheFolderLeavesNoSamplesOfTheFirst) {
  Flags flags = many();
  flags["tasks"] = "tale,foxes";  // tale is done when foxes is asked
  const ProgramResult result = examine_until(flags, SIGKILL, [&] { return num_kept() >= 600; });
  ASSERT_EQ(result.exit_code, 137) << result.err;
  EXPECT_THAT(names_in("out"), ElementsAre("unfinished"));
  flags["limit"] = "3";
  flags["tasks"] = "foxes";
  ASSERT_EQ(examine(flags).exit_code, 0);
  const std::vector<std::string> names = names_in("out");
  ASSERT_EQ(names.size(), 2u) << ::testing::PrintToString(names);
  const std::string time = names[0].substr(8, names[0].size() - 8 - 5);
  EXPECT_EQ(names[0], "results_" + time + ".json");
  EXPECT_EQ(names[1], "samples_foxes_" + time + ".jsonl");
  EXPECT_EQ(samples_in("out", "foxes").size(), 3u);
}

/// Scales of NF4 that are quantised make other weights than scales that are not.
TEST_F(EvalBrokenOff, AnswersOfOtherWeightsAreNotUsedAgain) {
  Flags flags = many();
  flags["quantize"] = "nf4";
  EXPECT_EQ(examine_until(flags, SIGKILL, [&] { return num_kept() >= 20; }).exit_code, 137);
  flags["double_quantization"] = "false";
  const ProgramResult again = examine(flags);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("answers were there")));
  EXPECT_THAT(again.err, HasSubstr("holds answers of another model"));
}

TEST_F(EvalBrokenOff, WithoutResumeNothingIsUsedAgain) {
  Flags flags = many();
  EXPECT_EQ(examine_until(flags, SIGKILL, [&] { return num_kept() >= 20; }).exit_code, 137);
  flags["resume"] = "false";
  const ProgramResult again = examine(flags);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("answers were there")));
  EXPECT_FALSE(fs::exists((*this) / "out/unfinished"));
}

TEST_F(EvalBrokenOff, AFullDiskKeepsTheAnswersSoFar) {
  const Flags flags = many();
  const int code = with_file_size_limit(6000, [&] {
    const ProgramResult result = examine(flags);
    write("said.txt", result.err);
    return result.exit_code;
  });
  EXPECT_EQ(code, 8);
  const int64_t kept = num_kept();
  EXPECT_GT(kept, 5);
  const std::string said = content_of((*this) / "said.txt");
  EXPECT_THAT(said, HasSubstr("answers.0.jsonl: cannot keep the answer"));
  EXPECT_THAT(said, HasSubstr("the " + std::to_string(kept) + " answers so far are kept"));
  for (const std::string& name : names_in("out")) EXPECT_EQ(name, "unfinished");
  expect_goes_on(flags, kept);
}

TEST_F(EvalBrokenOff, TwoRunsDoNotWorkInOneFolder) {
  const Flags flags = endless();
  ProgramResult second, afresh;
  bool is_still_there = false;
  const ProgramResult first = examine_until(flags, SIGTERM, [&] {
    if (content_of((*this) / kJournal).empty()) return false;
    second = examine(flags, {.timeout_s = 120});
    Flags from_new = flags;
    from_new["resume"] = "false";
    afresh = examine(from_new, {.timeout_s = 120});
    is_still_there = !content_of((*this) / kJournal).empty();
    return true;
  });
  EXPECT_EQ(first.exit_code, 143) << first.err;
  for (const ProgramResult& result : {second, afresh})
    expect_error(result, 8, {"answers.0.jsonl", "works on it", "another --output_path"});
  EXPECT_TRUE(is_still_there);
}

/// All weights stay finite. Channel 0 of the hidden states is zero but behind token `id`, where the
/// first layer's MLP multiplies it until it overflows: what comes behind that token is NaN.
void make_nan_behind(const fs::path& model, int64_t id) {
  const fs::path file = model / "model.safetensors";
  const std::string layer = "model.layers.0.";
  change_tensor(file, "model.embed_tokens.weight", [&](int64_t row, int64_t column, float old) {
    return column != 0 ? old : row == id ? 1.f : 0.f;
  });
  change_tensor(file, layer + "self_attn.o_proj.weight",
                [](int64_t row, int64_t, float old) { return row == 0 ? 0.f : old; });
  for (const char* name : {"mlp.gate_proj.weight", "mlp.up_proj.weight"}) {
    change_tensor(file, layer + name, [](int64_t row, int64_t column, float old) {
      return row != 0 ? old : column == 0 ? 1e20f : 0.f;
    });
  }
  change_tensor(file, layer + "mlp.down_proj.weight", [](int64_t row, int64_t column, float old) {
    return row == 0 ? (column == 0 ? 3e38f : 0.f) : column == 0 ? 0.f : old;
  });
}

TEST_F(EvalBrokenOff, AModelThatAnswersNaN) {
  const fs::path model = (*this) / "model";
  fs::copy(wide_model(), model, fs::copy_options::recursive);
  const json vocabulary = json::parse(content_of(model / "tokenizer.json")).at("model").at("vocab");
  make_nan_behind(model, vocabulary.at("%"));
  // The shortest is asked last.
  std::string rows = content_of((*this) / "rows/test.jsonl");
  write("rows/test.jsonl", rows + R"({"q": "%", "choices": ["a", "b"], "gold": 0})" + "\n");
  const Flags flags = {{"model", "model"}, {"deterministic", "true"}};
  const ProgramResult result = examine(flags);
  expect_error(result, 9, {"foxes: ", "not numbers", "hint: "});
  EXPECT_EQ(result.out, "");
  const int64_t kept = num_kept();
  EXPECT_EQ(kept, 8 * 3);
  for (const std::string& name : names_in("out")) EXPECT_EQ(name, "unfinished");

  fs::remove_all(model);
  fs::copy(wide_model(), model, fs::copy_options::recursive);
  const ProgramResult mended = examine(flags);
  ASSERT_EQ(mended.exit_code, 0) << mended.err;
  EXPECT_THAT(mended.err, Not(HasSubstr("answers were there")));
  EXPECT_THAT(mended.err, HasSubstr("holds answers of another model"));
  const auto samples = samples_in("out", "foxes");
  Flags undisturbed = flags;
  EXPECT_EQ(samples_of("foxes", undisturbed), samples);
}

}  // namespace
}  // namespace danlu::test
