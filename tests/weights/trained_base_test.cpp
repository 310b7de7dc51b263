// What the record beside an adapter says of the base that it was trained on.
#include "weights/lora/trained_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "arch/model_config.h"
#include "support/temporary_directory.h"
#include "weights/hf/nf4_tensors.h"
#include "weights/small_tensors.h"

namespace danlu::weights {
namespace {

class Recorded : public testing::Test {
 protected:
  /// "none", "doubly" or "simply", of a directory with these files.
  std::string said(const std::string& args, const std::string& sft_args = "") const {
    for (const auto& [name, text] : {std::pair{"args.json", args}, {"sft_args.json", sft_args}}) {
      std::filesystem::remove(folder_ / name);
      if (!text.empty()) std::ofstream(folder_ / name) << text;
    }
    const auto made = recorded_nf4(folder_ / "");
    if (!made) return "none";
    return made->doubly ? "doubly" : "simply";
  }
  test::TemporaryDirectory folder_;
};

TEST_F(Recorded, RecordsOfThreeTrainers) {
  // Danlu's, of each flag that asks for it.
  EXPECT_EQ(said(R"({"quantization_bit": 4, "double_quantization": true})"), "doubly");
  EXPECT_EQ(said(R"({"quantization_bit": 4, "double_quantization": false})"), "simply");
  EXPECT_EQ(said(R"({"quantization_bit": 0, "load_in_4bit": true})"), "doubly");
  EXPECT_EQ(said(R"({"quantization_bit": 0, "qlora": true})"), "doubly");
  EXPECT_EQ(said(R"({"tuner": "qlora"})"), "doubly");
  // ms-swift 3's, and 2's under its other name.
  EXPECT_EQ(said(R"({"quant_method": "bnb", "quant_bits": 4, "bnb_4bit_quant_type": "nf4",)"
                 R"( "bnb_4bit_use_double_quant": false})"),
            "simply");
  EXPECT_EQ(said("", R"({"sft_type": "lora", "quantization_bit": 4})"), "doubly");
}

TEST_F(Recorded, WhatSaysNothingOfNf4) {
  EXPECT_EQ(said(""), "none");
  EXPECT_EQ(said("{}"), "none");
  EXPECT_EQ(said(R"({"quantization_bit": 0, "load_in_4bit": false, "double_quantization": true})"),
            "none");
  EXPECT_EQ(said(R"({"quant_bits": 8, "quant_method": "bnb"})"), "none");
  EXPECT_EQ(said(R"({"quant_bits": 4, "quant_method": "hqq"})"), "none");
  EXPECT_EQ(said(R"({"quantization_bit": 4, "bnb_4bit_quant_type": "fp4"})"), "none");
  EXPECT_EQ(said("[4]"), "none");
  EXPECT_EQ(said("{\"quantization_bit\": 4"), "none");
}

TEST(ThroughNf4, TakesMatricesThatNf4TakesAndThoseAlone) {
  const arch::ModelConfig config = arch::parse_model_config(
      Json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": 8, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16,
        "num_hidden_layers": 1, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": false, "hidden_act": "silu"})"),
      "test");
  test::SmallTensors tensors;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    test::SmallTensor& tensor = tensors[spec.name];
    tensor.shape = spec.shape;
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    for (int64_t i = 0; i < count; ++i)
      tensor.values.push_back(std::sin(static_cast<double>(i) + 0.5));
  }
  const test::TemporaryDirectory folder;
  const auto base = test::make_source(folder / "model", tensors);
  EXPECT_TRUE(is_other_base(MadeNf4(), *base));
  EXPECT_FALSE(is_other_base(std::nullopt, *base));
  const auto through = through_nf4(base, config, {.doubly = false});
  EXPECT_EQ(count_nf4(*through), 7) << "q, k, v, o, gate, up, down";
  EXPECT_FALSE(is_other_base(MadeNf4(), *through));
  EXPECT_EQ(through_nf4(through, config, {}), through) << "it stays as it is";
  for (const auto& [name, tensor] : tensors) {
    const std::vector<double> found = test::numbers_of(*through, name);
    const bool is_taken = name.find("_proj.") != std::string::npos;
    double largest = 0;
    for (size_t i = 0; i < found.size(); ++i)
      largest = std::max(largest, std::fabs(found[i] - tensor.values[i]));
    // Half of the widest gap between two codes of NF4, (1 - 0.696) / 2.
    EXPECT_LT(largest, is_taken ? 0.1525 : 1e-6) << name;
    EXPECT_EQ(largest > 1e-3, is_taken) << name;
  }
}

}  // namespace
}  // namespace danlu::weights
