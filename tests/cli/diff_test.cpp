// `danlu diff`: exit codes, tables and JSON, and paths that are no checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Diff : public BadInput {
 protected:
  static std::string model() { return good("model").string(); }

  /// A copy of the good model with `change` added to the last f32 of its weight file.
  std::string changed_model(float change) const {
    const fs::path copy = copy_model("changed");
    std::string bytes = content_of(copy / "model.safetensors");
    float value;
    std::memcpy(&value, bytes.data() + bytes.size() - 4, 4);
    value += change;
    std::memcpy(bytes.data() + bytes.size() - 4, &value, 4);
    write_content(copy / "model.safetensors", bytes);
    return copy.string();
  }
};

TEST_F(Diff, TheSameModel) {
  const ProgramResult result = run({"diff", model(), copy_model().string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("A  " + model() + ": "), HasSubstr(" parameters in "),
                                HasSubstr("tensors are bit-identical\n"),
                                HasSubstr("the same: names, shapes, dtypes and every bit\n")));
}

TEST_F(Diff, PrintedConfigurationGivesTheSameRun) {
  const ProgramResult printed = run({"diff", model(), copy_model().string(), "--print_config"});
  EXPECT_THAT(printed.out, HasSubstr("checkpoint_a: \"" + model() + "\""));
  write("diff.yaml", printed.out);
  EXPECT_EQ(run({"diff", "diff.yaml"}).exit_code, 0);
}

TEST_F(Diff, OneChangedNumber) {
  const std::string other = changed_model(0.25f);
  ProgramResult result = run({"diff", model(), other});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("1 tensor of other values, worst first:\n"),
                                HasSubstr("       0.25 "), HasSubstr("\ndifferent\n")));
  EXPECT_THAT(result.err, Not(HasSubstr("error: ")));

  result = run({"diff", model(), other, "--tolerance", "0.3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the same within 0.3\n"));
  result = run({"diff", model(), other, "--tolerance", "0.2"});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.out, HasSubstr("different by more than 0.2\n"));
}

TEST_F(Diff, AsJson) {
  const ProgramResult result = run({"diff", model(), changed_model(1), "--json"});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  const Json report = Json::parse(result.out);
  EXPECT_EQ(report["same"], false);
  EXPECT_EQ(report["a"], model());
  ASSERT_EQ(report["differences"].size(), 1u);
  EXPECT_EQ(report["differences"][0]["verdict"], "values_differ");
  EXPECT_EQ(report["differences"][0]["differing"], 1);
  EXPECT_EQ(report["counts"]["identical"], report["tensors"].get<int>() - 1);
  const ProgramResult all = run({"diff", model(), model(), "--json", "--every-tensor"});
  EXPECT_EQ(Json::parse(all.out)["differences"].size(), report["tensors"]);
}

TEST_F(Diff, TensorsOfOneSideOnly) {
  const fs::path copy = copy_model();
  replace_in_file(copy / "model.safetensors", "model.norm.weight", "model.morn.weight");
  const ProgramResult result = run({"diff", model(), copy.string()});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("1 tensor only in A:\n"), HasSubstr("model.norm.weight"),
                    HasSubstr("1 tensor only in B:\n"), HasSubstr("model.morn.weight")));
}

TEST_F(Diff, BlocksOfAGgufFileAreNamed) {
  for (const char* type : {"q8_0", "f32"}) {
    const std::string name = std::string(type) + ".gguf";
    ASSERT_EQ(run({"convert", model(), name, "--to", "gguf", "--outtype", type}).exit_code, 0);
  }
  const ProgramResult files = run({"diff", "q8_0.gguf", "f32.gguf"});
  EXPECT_EQ(files.exit_code, 4) << files.err;
  EXPECT_THAT(files.out, AllOf(HasSubstr("blk.0.attn_q.weight (Q8_0 and F32)\n"),
                               HasSubstr("token_embd.weight (Q8_0 and F32)\n"),
                               Not(HasSubstr("blk.0.attn_norm.weight")) /* equal and alike */));
  EXPECT_THAT(run({"diff", "q8_0.gguf", model()}).out,
              HasSubstr("model.layers.0.self_attn.q_proj.weight (Q8_0 and F32)\n"));
  const Json report = Json::parse(run({"diff", "q8_0.gguf", "f32.gguf", "--json"}).out);
  EXPECT_EQ(report["differences"][0]["a"]["dtype"], "Q8_0");
  EXPECT_EQ(report["differences"][0]["b"]["dtype"], "F32");

  // The numbers that are read from the blocks, in full: equal in value, and not the same.
  ASSERT_EQ(run({"convert", "q8_0.gguf", "wide", "--to", "hf"}).exit_code, 0);
  const ProgramResult wide = run({"diff", "q8_0.gguf", "wide"});
  EXPECT_EQ(wide.exit_code, 4) << wide.err;
  EXPECT_THAT(wide.out, AllOf(HasSubstr("of another dtype (A, B), equal in value"),
                              HasSubstr("  Q8_0 F32  model.layers.0.self_attn.q_proj.weight\n")));
  EXPECT_EQ(run({"diff", "q8_0.gguf", "wide", "--tolerance", "0"}).exit_code, 0);

  const std::string seen = run({"inspect", "q8_0.gguf"}).out;
  EXPECT_THAT(seen, AllOf(HasSubstr(", Q8_0 "), HasSubstr(" x  Q8_0 [32, 32]  ")));
}

TEST_F(Diff, WhatIsNoCheckpoint) {
  expect_error(run({"diff", model()}), 2, {"[diff] name two checkpoints: danlu diff A B, got 1"});
  expect_error(run({"diff", model(), model(), model()}), 2, {"diff"});
  expect_error(run({"diff", model(), "nowhere"}), 4, {"nowhere: no such file or directory"});
  fs::create_directory(*this / "empty");
  expect_error(run({"diff", "empty", model()}), 4, {"empty: no weights here"});
  expect_error(run({"diff", model(), write("text.bin", "hello")}), 4, {"text.bin", "neither"});
  expect_error(run({"diff", model(), model(), "--tolerance", "-1"}), 2, {"--tolerance"});
}

}  // namespace
}  // namespace danlu::test
