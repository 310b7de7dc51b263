// The tables of families in docs/features.md, cell by cell: what a cell calls yes is done with a
// small model of the family, and what it refuses is refused. Gradients, logits and ids are compared
// with Hugging Face's in tests/models and tests/infer, meshes of every kind in tests/train.
#include "support/family_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "cli/short_training.h"
#include "cli/tiny_models.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

/// A small model with what llama.cpp takes for granted of the published ones.
nlohmann::json as_published(const std::string& family) {
  nlohmann::json config = tiny_model(family);
  if (family == "gemma2") config["query_pre_attn_scalar"] = config["head_dim"];
  if (family == "qwen3_moe") config["norm_topk_prob"] = true;
  if (family == "llama4_text") {
    config.update({{"attention_chunk_size", 8192},
                   {"floor_scale", 8192},
                   {"attn_scale", 0.1},
                   {"no_rope_layer_interval", 4}});
  }
  return config;
}

class FamilyCells : public ShortTraining, public testing::WithParamInterface<FamilyRow> {
 protected:
  const FamilyRow& row() const { return GetParam(); }
  void SetUp() override {
    // Forms of attention, norms, positions and packing; FamilyChain and tests/models have the rest.
    DANLU_SLOW_BUT_FOR("qwen3", "qwen", "gpt2", "glm", "gemma3_text");
    ShortTraining::SetUp();
    make_model(as_published(row().family));
  }
  std::vector<double> trained(const std::string& to, const std::string& more) const {
    ok(train_line(to, "--max_steps 2 " + more));
    const std::vector<double> all = losses(to);
    EXPECT_EQ(all.size(), 2u) << to;
    return all;
  }
  /// Names and shapes of a directory's only file of tensors.
  std::set<std::string> tensors(const std::string& model) const {
    const std::string bytes = content_of(*this / model / "model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    const auto header = nlohmann::json::parse(bytes.substr(sizeof length, length));
    std::set<std::string> all;
    for (const auto& [name, info] : header.items())
      if (name != "__metadata__") all.insert(name + info["shape"].dump());
    return all;
  }
  void expect_there_and_back(const std::string& model, const std::string& format) const {
    Words line = {"convert", model, "cut_" + format, "--to", format, "--tp", "2", "--pp", "2"};
    if (row().has_experts()) line.insert(line.end(), {"--ep", "2"});
    ok(line);
    ok({"convert", "cut_" + format, "back_" + format, "--to", "hf"});
    expect_same(model, "back_" + format);
  }
  void expect_gguf(const std::string& model) const {
    const Words line = {"convert", model, "model.gguf", "--to", "gguf", "--outtype", "f32"};
    if (!row().can("GGUF")) {
      EXPECT_TRUE(row().says("GGUF", "refused")) << row().cells.at("GGUF");
      const ProgramResult refused = run(line);
      EXPECT_NE(refused.exit_code, 0);
      EXPECT_THAT(refused.err, testing::HasSubstr("error:"));
      return;
    }
    ok(line);
    EXPECT_EQ(ask(*this / "model.gguf").out, ask(*this / model).out);
    if (row().says("GGUF", "read back as")) return;
    ok({"convert", "model.gguf", "back_gguf", "--to", "hf"});
    expect_same(model, "back_gguf");
  }
};

TEST_P(FamilyCells, OfOneProcessAreTrue) {
  ASSERT_TRUE(row().can("load, save") && row().can("train") && row().can("LoRA, DoRA") &&
              row().can("mcore") && row().can("infer"))
      << "this test knows no other word for these cells";
  const std::vector<double> full = trained("full", "--tuner full");
  EXPECT_EQ(tensors("full"), tensors("model"));
  ok({"convert", "full", "copy", "--to", "hf"});
  expect_same("full", "copy");
  EXPECT_EQ(ask(*this / "copy").out, ask(*this / "full").out);
  EXPECT_NE(full[0], full[1]) << "a step changed nothing";

  // Fresh adapters add nothing, so the first loss is that of the model.
  const std::string adapters = "--tuner lora --target_modules all-linear --lora_rank 4 ";
  for (const auto& [to, more] : {std::pair{"lora", ""}, {"dora", "--use_dora true"}}) {
    const std::vector<double> adapted = trained(to, adapters + more);
    EXPECT_NEAR(adapted[0], full[0], 1e-5 * full[0]) << to;
    EXPECT_NE(adapted[1], adapted[0]) << to;
    const ProgramResult answer = ask(*this / to);
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
  }

  expect_there_and_back("full", "mcore");
  if (row().says("mcore", "not legacy")) {
    const ProgramResult refused = run({"convert", "full", "old", "--to", "legacy"});
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.err, testing::ContainsRegex("error: .*legacy"));
  } else {
    expect_there_and_back("full", "legacy");
  }
  expect_gguf("full");
}

TEST_P(FamilyCells, OfTwoProcessesAreTrue) {
  DANLU_SLOW_TEST();
  const std::string axes = row().has_experts() ? "tp, cp, ep" : "tp, cp";
  ASSERT_TRUE(row().can(axes) && row().can("pp")) << "this test knows no other word for these";
  const std::string lora = "lora --target_modules all-linear --lora_rank 4";
  std::vector<std::pair<std::string, std::string>> runs = {
      {"full", "--tp 2 --sequence_parallel true"},
      {"full", "--cp 2"},
      {"full", "--pp 2"},
      {lora, "--tp 2"}};
  if (row().has_experts()) runs.insert(runs.end(), {{"full", "--ep 2"}, {lora, "--ep 2"}});
  std::map<std::string, std::vector<double>> alone;
  for (const auto& [tuner, mesh] : runs) {
    SCOPED_TRACE(tuner + " " + mesh);
    if (!alone.contains(tuner))
      alone[tuner] = trained("one_" + tuner.substr(0, 4), "--tuner " + tuner);
    const std::vector<double>& one = alone[tuner];
    ok(on_two(train_line("two", "--max_steps 2 --tuner " + tuner + " " + mesh)));
    const std::vector<double> two = losses("two");
    ASSERT_EQ(two.size(), one.size());
    for (size_t step = 0; step < two.size(); ++step)
      EXPECT_NEAR(two[step], one[step], 1e-5 * one[step]);
    std::filesystem::remove_all(*this / "two");
  }
}

INSTANTIATE_TEST_SUITE_P(Table, FamilyCells, testing::ValuesIn(family_rows()),
                         [](const auto& info) { return info.param.family; });

}  // namespace
}  // namespace danlu::test
