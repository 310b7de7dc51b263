// `danlu export --quant_method gptq`: from a model and rows to files of codes, and on from these.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/bad_input.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Gptq : public BadInput {
 protected:
  /// A model that has learnt the good rows, in run/.
  void learn() const {
    const ProgramResult result =
        train(good("good.jsonl"),
              {"--max_steps", "40", "--lr", "0.01", "--save_steps", "40", "--val_ratio", "0"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  ProgramResult quantised(const std::string& to, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"export",
                                      "--model",
                                      "run",
                                      "--dataset",
                                      good("good.jsonl").string(),
                                      "--group_size",
                                      "16",
                                      "--max_length",
                                      "64",
                                      "--output_dir",
                                      to};
    words.insert(words.end(), more.begin(), more.end());
    return ok(words);
  }
  /// The mean loss of the good rows, from a step that moves nothing.
  double loss_of(const std::string& model) const {
    const std::string run = "loss_of_" + model;
    ok({"sft",
        "--model",
        model,
        "--dataset",
        good("good.jsonl").string(),
        "--output_dir",
        run,
        "--no-version-dir",
        "--tuner",
        "full",
        "--dtype",
        "fp32",
        "--batch_size",
        "8",
        "--lr",
        "1e-9",
        "--max_steps",
        "1",
        "--val_ratio",
        "0"});
    const std::string log = content_of(*this / run / "logging.jsonl");
    return nlohmann::json::parse(log.substr(0, log.find('\n'))).at("loss");
  }
  nlohmann::json config_of(const std::string& model) const {
    return nlohmann::json::parse(content_of(*this / model / "config.json"));
  }
};

TEST_F(Gptq, AnExportedModelSaysWhatTheModelSaid) {
  learn();
  const double before = loss_of("run");
  ASSERT_LT(before, 2.5);
  const ProgramResult eight =
      quantised("eight", {"--quant_method", "gptq", "--quant_bits", "8", "--quant_n_samples", "6"});
  EXPECT_THAT(eight.err, HasSubstr("calibration: 6 rows"));
  EXPECT_THAT(eight.err, HasSubstr("14 linear layers in GPTQ's codes of 8 bits"));
  EXPECT_NEAR(loss_of("eight"), before, 0.02);
  quantised("four", {"--quant_method", "gptq_v2", "--quant_bits", "4", "--desc_act", "true"});
  EXPECT_NEAR(loss_of("four"), before, 0.02);

  const nlohmann::json said = config_of("four").at("quantization_config");
  EXPECT_EQ(said.at("quant_method"), "gptq");
  EXPECT_EQ(said.at("checkpoint_format"), "gptq_v2");
  EXPECT_EQ(said.at("bits"), 4);
  EXPECT_EQ(said.at("group_size"), 16);
  EXPECT_EQ(said.at("desc_act"), true);
  EXPECT_EQ(nlohmann::json::parse(content_of(*this / "four/quantize_config.json")), said);
  EXPECT_THAT(ok({"inspect", "four"}).out, HasSubstr("GPTQ 4 bits 14"));
  EXPECT_LT(fs::file_size(*this / "four/model.safetensors"),
            fs::file_size(*this / "run/model.safetensors"));
}

TEST_F(Gptq, WhatIsTrainedOnItAndConvertedIsUnquantised) {
  const std::string model = good("model").string(), rows = good("good.jsonl").string();
  // LLaMA-Factory's line.
  write("text.jsonl", "{\"text\": \"the quick brown fox jumps over the lazy dog\"}\n");
  ok({"export", "--model_name_or_path", model, "--export_quantization_bit", "4",
      "--export_quantization_dataset", "text.jsonl", "--export_dir", "four", "--group_size", "16"});
  const ProgramResult answer =
      ok({"infer", "--model", "four", "--prompt", "the", "--max_new_tokens", "1"});
  EXPECT_THAT(answer.err, HasSubstr("14 x GPTQ 4 bits"));
  ok({"sft", "--model", "four", "--dataset", rows, "--tuner", "lora", "--output_dir", "adapters",
      "--no-version-dir", "--max_steps", "1", "--dtype", "fp32"});
  ok({"merge", "--adapters", "adapters", "--output", "merged"});
  EXPECT_FALSE(config_of("merged").contains("quantization_config"));
  ok({"convert", "four", "dense", "--to", "hf"});
  EXPECT_FALSE(config_of("dense").contains("quantization_config"));
  // Its numbers are those of the codes.
  const std::vector<std::string> asked = {"--prompt", "fox?",          "--max_new_tokens",
                                          "8",        "--temperature", "0"};
  const auto said = [&](const std::string& of) {
    std::vector<std::string> words = {"infer", "--model", of};
    words.insert(words.end(), asked.begin(), asked.end());
    return ok(words).out;
  };
  EXPECT_EQ(said("four"), said("dense"));
}

TEST_F(Gptq, LinesThatCannotBeCalibratedAreRefused) {
  const std::string model = good("model").string(), rows = good("good.jsonl").string();
  expect_error(run({"export", "--model", model, "--quant_method", "gptq", "--quant_bits", "4"}), 2,
               {"a calibration reads rows"});
  expect_error(run({"export", "--model", model, "--adapters", "run", "--quant_method", "gptq",
                    "--quant_bits", "4", "--dataset", rows}),
               2, {"without adapters", "danlu merge"});
  expect_error(run({"export", "--model", model, "--quant_method", "gptq", "--quant_bits", "5",
                    "--dataset", rows, "--output_dir", "five"}),
               2, {"2, 3, 4 or 8 bits, got 5"});
  EXPECT_FALSE(fs::exists(*this / "five"));
  write("rows.jsonl", "{\"input_ids\": [3, 400]}\n");
  expect_error(run({"quantize", "--model", model, "--samples", "rows.jsonl", "--output", "out"}), 3,
               {"rows.jsonl:1: 400 is no token id of this model"});
  expect_error(run({"export", "--model", model, "--quant_method", "awq", "--quant_bits", "4"}), 2,
               {"awq of 4 bits"});
}

}  // namespace
}  // namespace danlu::test
