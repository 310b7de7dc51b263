// Flags that change a model's positions: what ms-swift, LLaMA-Factory and vLLM mean by them.
#include "settings/model_changes.h"

#include <gmock/gmock.h>

#include "settings/identity.h"
#include "settings/option_lines.h"
#include "settings/options/change_options.h"

namespace danlu::settings::options_test {

using testing::HasSubstr;

/// The model's directory describes 128 positions.
class PositionFlags : public TrainOptions {
 protected:
  arch::PositionChange of(const std::vector<std::string>& words) const {
    return with("sft", words).model.changes.positions;
  }
  /// The model's config.json with other keys.
  void describe(const Json& keys) const {
    Json config = test::tiny_config("llama");
    config.update(keys);
    write_json_file(directory_ / "model" / "config.json", config);
  }
  static Json scaling(const char* type, double factor, int64_t original = 128) {
    return {
        {"rope_type", type}, {"original_max_position_embeddings", original}, {"factor", factor}};
  }
};

// ms-swift's _init_rope_scaling, of its commit 3602360a.
TEST_F(PositionFlags, AWordIsStretchedToTheLengthThatIsGiven) {
  for (const char* type : {"linear", "dynamic", "yarn"}) {
    const arch::PositionChange change = of({"--rope_scaling", type, "--max_model_len", "300"});
    EXPECT_EQ(change.scaling, scaling(type, 3.0)) << type;
    EXPECT_EQ(change.max_positions, 300);
  }
  EXPECT_EQ(of({"--rope_scaling", "yarn", "--max_model_len", "100"}).scaling, scaling("yarn", 1.0));
  EXPECT_TRUE(of({"--rope_scaling", "none"}).empty());
  EXPECT_TRUE(of({}).empty());
  EXPECT_THAT(refusal("sft", {"--rope_scaling", "yarn"}),
              HasSubstr("nothing says how far positions are stretched"));
  EXPECT_THAT(refusal("sft", {"--rope_scaling", "llama3", "--max_model_len", "300"}),
              HasSubstr("neither a kind"));
}

TEST_F(PositionFlags, JsonSaysItsOwnFactor) {
  const arch::PositionChange change = of({"--rope_scaling", R"({"type": "yarn", "factor": 2.5})"});
  EXPECT_EQ(change.scaling,
            Json({{"type", "yarn"}, {"factor", 2.5}, {"original_max_position_embeddings", 128}}));
  EXPECT_EQ(change.max_positions, 320);
  EXPECT_THAT(notices("sft", {"--rope_scaling", R"({"type": "yarn", "factor": 2})",
                              "--max_model_len", "300"}),
              HasSubstr("fewer than the 300 tokens"));
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 64}};
  const arch::PositionChange told = of({"--rope_scaling", llama3.dump()});
  EXPECT_EQ(told.scaling, llama3);
  EXPECT_FALSE(told.max_positions);
  EXPECT_THAT(refusal("sft", {"--rope_scaling", "{\"type\": "}), HasSubstr("--rope_scaling:1:"));
}

TEST_F(PositionFlags, WhatWasStretchedBeforeIsMeasuredByItsFirstLength) {
  describe({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
  EXPECT_EQ(of({"--rope_scaling", "yarn", "--max_model_len", "256"}).scaling,
            scaling("yarn", 4.0, /*original=*/64));
  // Without a word it is stretched as it was, to another length.
  const arch::PositionChange longer = of({"--max_model_len", "512"});
  EXPECT_EQ(longer.scaling.at("factor"), 8.0);
  EXPECT_EQ(longer.scaling.at("type"), "linear");
  describe(Json::object());
  EXPECT_TRUE(of({"--max_model_len", "512"}).empty());
  EXPECT_THAT(notices("sft", {"--max_model_len", "512"}), HasSubstr("are not stretched"));
}

// LLaMA-Factory's model_utils/rope.py.
TEST_F(PositionFlags, LlamaFactoryStretchesToTheLongestSample) {
  const auto line = [&](const char* word, const char* length) {
    return std::vector<std::string>{"--finetuning_type", "lora", "--rope_scaling", word,
                                    "--cutoff_len",      length};
  };
  const arch::PositionChange linear = of(line("linear", "300"));
  EXPECT_EQ(linear.scaling.at("factor"), 3.0);
  EXPECT_EQ(linear.max_positions, 384);
  const arch::PositionChange llama3 = of(line("llama3", "300"));
  EXPECT_EQ(llama3.scaling, Json({{"rope_type", "llama3"},
                                  {"original_max_position_embeddings", 128},
                                  {"factor", 3.0},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0}}));
  EXPECT_TRUE(of(line("yarn", "100")).empty());
  EXPECT_THAT(notices("sft", line("yarn", "100")), HasSubstr("nothing is stretched"));
}

TEST_F(PositionFlags, SamplesMayBeAsLongAsThatAndTheRecordSaysIt) {
  const std::vector<std::string> line = {"--rope_scaling", "yarn", "--max_model_len", "300",
                                         "--max_length",   "256"};
  EXPECT_THAT(refusal("sft", {"--max_length", "256"}), HasSubstr("128 positions"));
  const TrainConfig config = with("sft", line);
  EXPECT_EQ(open_model(config.model).config.max_positions, 300);
  EXPECT_EQ(open_model(config.model).config.rope.scaling, arch::RopeScaling::kYarn);
  EXPECT_EQ(Json::parse(config.args.at("rope_scaling").get<std::string>()), scaling("yarn", 3.0));
  EXPECT_EQ(config.args.at("max_model_len"), 300);
  // Read from the record of an adapter, also as ms-swift writes it.
  fs::create_directories(directory_ / "adapter");
  const arch::ModelConfig base = arch::load_model_config(directory_ / "model");
  for (const Json& record :
       {config.args, Json{{"rope_scaling", scaling("yarn", 3.0)}, {"max_model_len", 300}}}) {
    write_json_file(directory_ / "adapter" / "args.json", record);
    const ModelChanges read = recorded_changes(directory_ / "adapter", base);
    EXPECT_EQ(read.positions.scaling, scaling("yarn", 3.0));
    EXPECT_EQ(read.positions.max_positions, 300);
  }
  const RunPlan plan = plan_run(config, /*num_samples=*/100, data::LastBatch::kPartial);
  const Json then = run_identity(config, open_model(config.model), plan);
  const TrainConfig other = with("sft", {"--rope_scaling", "linear", "--max_model_len", "300"});
  EXPECT_THAT(
      compare_identities(then, run_identity(other, open_model(other.model), plan), true).fatal,
      HasSubstr("rope_scaling: {"));
}

TEST_F(PositionFlags, NamesOfTheTableAndTheHead) {
  const auto modules = [&](const std::vector<std::string>& words) {
    return with("sft", std::vector<std::string>{"--tuner", "lora", "--modules_to_save"} + words)
        .lora.modules_to_save;
  };
  EXPECT_THAT(modules({"word_embeddings", "output_layer"}),
              testing::ElementsAre("embed_tokens", "lm_head"));
  EXPECT_THAT(modules({"all-embedding", "embed_tokens"}), testing::ElementsAre("embed_tokens"));
}

}  // namespace danlu::settings::options_test
