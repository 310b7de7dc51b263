// Where TRL's save_pretrained leaves the head of a reward model: among a model's weights, and
// beside an adapter in a pytorch_model.bin of its own.
#include "weights/hf/value_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "arch/model_config.h"
#include "base/error.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/small_tensors.h"

namespace danlu::weights {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using ::testing::HasSubstr;

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "vocab_size": 8, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16,
  "num_hidden_layers": 1, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
  "tie_word_embeddings": false, "hidden_act": "silu"})";

test::SmallTensors head() {
  return {{"v_head.summary.weight", {{1, 16}, std::vector<double>(16, 0.25)}},
          {"v_head.summary.bias", {{1}, {0.5}}}};
}

test::SmallTensors model() {
  test::SmallTensors tensors;
  for (const arch::ParamSpec& spec :
       arch::parameters_of(arch::parse_model_config(Json::parse(kConfig), "test"))) {
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    tensors[spec.name] = {spec.shape, std::vector<double>(static_cast<size_t>(count), 0.125)};
  }
  return tensors;
}

void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

TEST(ValueHead, AmongTheWeightsItJudgesWhereThatIsWanted) {
  const test::TemporaryDirectory folder;
  test::SmallTensors all = model();
  all.merge(head());
  test::save_small(folder / "trl", all);
  write(folder / "trl" / "config.json", kConfig);
  const CheckpointSource judge =
      open_checkpoint_source(folder / "trl", {.all_tensors = true, .scores = true});
  ASSERT_TRUE(judge.config.score);
  EXPECT_EQ(judge.config.score->form, arch::ScoreForm::kBeside);
  EXPECT_EQ(test::numbers_of(*judge.model, "v_head.summary.bias"), std::vector<double>{0.5});
  const CheckpointSource policy = open_checkpoint_source(folder / "trl", {.all_tensors = true});
  EXPECT_FALSE(policy.config.score);
  EXPECT_FALSE(holds_value_head(*policy.model));
  EXPECT_EQ(policy.model->tensors().size(), model().size());
  EXPECT_THAT(error_of<ModelError>([&] { open_checkpoint_source(folder / "trl"); }),
              HasSubstr("would be lost"));
}

TEST(ValueHead, BesideAnAdapterItIsNoModel) {
  const test::TemporaryDirectory folder;
  const fs::path adapter = folder / "trl";
  const std::string lora = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  test::save_small(adapter, {{lora, {{1, 16}, std::vector<double>(16, 1)}}});
  fs::rename(adapter / "model.safetensors", adapter / "adapter_model.safetensors");
  write(adapter / "adapter_config.json",
        R"({"peft_type": "LORA", "r": 1, "target_modules": ["q_proj"]})");
  EXPECT_FALSE(has_value_head(adapter));
  test::save_small(folder / "head", head());
  // Files are known by their first bytes: what torch.save writes is read as well.
  fs::rename(folder / "head" / "model.safetensors", adapter / "pytorch_model.bin");
  EXPECT_EQ(detect_format(adapter), Format::kPeft);
  EXPECT_EQ(value_head_file(adapter), adapter / "pytorch_model.bin");
  const auto adapters = open_weights(adapter);
  EXPECT_EQ(adapters->tensors().size(), 1u);
  EXPECT_EQ(with_value_head(adapters, adapter, kWholeModulePrefix)->tensors().size(), 3u);
  // With a configuration beside it the same file is a model's.
  write(adapter / "config.json", kConfig);
  EXPECT_EQ(detect_format(adapter), Format::kHuggingFace);
  EXPECT_FALSE(has_value_head(adapter));
}

}  // namespace
}  // namespace danlu::weights
