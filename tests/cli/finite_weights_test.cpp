// Weights that are not finite are published by no command: training that diverged, adapters and
// casts that overflow. What was there before stays.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/trained_adapter.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kUp = "model.layers.1.mlp.up_proj.weight";  // rows of 32: Q8_0 has them

/// Puts `value` in place of numbers of an F32 tensor of a safetensors file.
void put(const fs::path& file, const std::string& tensor, float value, bool everywhere) {
  std::string bytes = content_of(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const json entry = json::parse(bytes.substr(8, length)).at(tensor);
  ASSERT_EQ(entry.at("dtype"), "F32");
  const json& offsets = entry.at("data_offsets");
  const uint64_t begin = offsets.at(0),
                 end = everywhere ? offsets.at(1).get<uint64_t>() : begin + 4;
  for (uint64_t at = begin; at < end; at += sizeof value)
    std::memcpy(bytes.data() + 8 + length + at, &value, sizeof value);
  write_content(file, bytes);
}

void set_first(const fs::path& file, const std::string& tensor, float value) {
  put(file, tensor, value, /*everywhere=*/false);
}

void fill(const fs::path& file, const std::string& tensor, float value) {
  put(file, tensor, value, /*everywhere=*/true);
}

class FiniteWeights : public TrainedAdapter {
 protected:
  /// Ended as diverged, and nothing that is a model lies in run/.
  void expect_diverged(const ProgramResult& result, const std::string& words) const {
    expect_error(result, 9, {words, "the training has diverged", "hint: lower --lr"});
    EXPECT_THAT(result.err, Not(HasSubstr("next: danlu")));
    EXPECT_FALSE(fs::exists((*this) / "run/model.safetensors"));
    EXPECT_FALSE(fs::exists((*this) / "run/DONE"));
    fs::remove_all((*this) / "run");
  }
  ProgramResult convert(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"convert"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run(arguments);
    EXPECT_FALSE(fs::exists((*this) / "out"));
    return result;
  }
};

TEST_F(FiniteWeights, TrainingThatDivergedEndsWith9AndSavesNothing) {
  for (const char* dtype : {"fp32", "bf16"}) {
    for (const char* steps : {"1", "2"}) {
      const std::vector<std::string> common = {"--dtype",        dtype, "--max_steps", steps,
                                               "--warmup_ratio", "0"};
      std::vector<std::string> rate = common, decay = common;
      rate.insert(rate.end(), {"--lr", "1e38"});
      decay.insert(decay.end(), {"--weight_decay", "1e45", "--eval_strategy", "no"});
      expect_diverged(train(good("good.jsonl"), rate), "[train] step ");
      expect_diverged(train(good("good.jsonl"), decay), " is not finite");
    }
  }
  expect_diverged(train(good("good.jsonl"), {"--tuner", "lora", "--lr", "1e38"}), "[train] step ");
  // No save on the way, and none asked for at the end.
  expect_diverged(train(good("good.jsonl"), {"--weight_decay", "1e45", "--save_strategy", "no",
                                             "--eval_strategy", "no"}),
                  " is not finite");
}

/// The loss scale of the guides' own DeepSpeed file, which no gradient in fp16 bears.
TEST_F(FiniteWeights, ALossScaleThatIsTooLargeSpendsNoStep) {
  write_content((*this) / "ds.json", R"({"fp16": {"enabled": true, "initial_scale_power": 32}})");
  const std::vector<std::string> line = {"--dtype",         "fp16", "--save_steps",    "1",
                                         "--max_steps",     "2",    "--deepspeed",     "ds.json",
                                         "--batch_size",    "2",    "--logging_steps", "1",
                                         "--eval_strategy", "no"};
  const ProgramResult found = train(good("good.jsonl"), line);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.err, AllOf(HasSubstr("step 1: gradients overflowed at loss scales from "
                                         "4.29497e+09 down to "),
                               HasSubstr("finished 2 steps"), Not(HasSubstr("skipped"))));
  // A line of the log, and a row of what is plotted, for each step that was taken.
  const std::string rows = content_of((*this) / "run/logging.jsonl");
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 2 + 1) << rows;
}

TEST_F(FiniteWeights, ATrainingOfSkippedStepsOnlyIsAnError) {
  const fs::path file = copy_model() / "model.safetensors";
  fill(file, "model.norm.weight", 6e4f);  // times what a norm leaves is beyond fp16
  const ProgramResult result = run({"sft",
                                    "--model",
                                    "model",
                                    "--dataset",
                                    good("good.jsonl"),
                                    "--output_dir",
                                    "run",
                                    "--no-version-dir",
                                    "--tuner",
                                    "full",
                                    "--dtype",
                                    "fp16",
                                    "--batch_size",
                                    "2",
                                    "--save_steps",
                                    "1",
                                    "--max_steps",
                                    "2",
                                    "--logging_steps",
                                    "1",
                                    "--eval_strategy",
                                    "no"});
  expect_error(result, 9,
               {"all 2 steps were skipped, because no loss or no gradient norm was finite",
                "hint: lower --lr"});
  EXPECT_THAT(result.err, HasSubstr("gnorm skipped"));
  EXPECT_THAT(result.err, AllOf(Not(HasSubstr("mean loss")), Not(HasSubstr("repeated")),
                                Not(HasSubstr("finished"))));
  for (const char* left : {"model.safetensors", "all_results.json", "README.md"})
    EXPECT_FALSE(fs::exists((*this) / "run" / left)) << left;
}

TEST_F(FiniteWeights, AnEvaluationWhoseLossIsNoNumberEndsTraining) {
  const ProgramResult result =
      train(good("good.jsonl"),
            {"--val_dataset", good("good.jsonl"), "--eval_steps", "1", "--save_strategy", "no",
             "--lr", "1e38", "--warmup_ratio", "0", "--max_steps", "4"});
  EXPECT_THAT(content_of((*this) / "run/logging.jsonl"), Not(HasSubstr("eval_loss")));
  expect_diverged(result, "step 1: the loss over the held-out data is nan");
}

TEST_F(FiniteWeights, TheLastGoodCheckpointStays) {
  ASSERT_EQ(train(good("good.jsonl"), {"--max_steps", "1", "--eval_strategy", "no"}).exit_code, 0);
  const auto before = contents_below((*this) / "run/checkpoint-1");
  expect_error(train(good("good.jsonl"), {"--resume", "run/checkpoint-1", "--weight_decay", "1e45",
                                          "--max_steps", "3", "--eval_strategy", "no"}),
               9, {"step 2: ", " is not finite", "earlier checkpoints are intact"});
  EXPECT_EQ(contents_below((*this) / "run/checkpoint-1"), before);
  EXPECT_FALSE(fs::exists((*this) / "run/checkpoint-2"));
  EXPECT_EQ(fs::read_symlink((*this) / "run/last"), "checkpoint-1");
  EXPECT_FALSE(fs::exists((*this) / "run/DONE"));
}

TEST_F(FiniteWeights, RatesThatAreNoNumbersAreRefusedBefore) {
  for (const char* flag : {"--lr", "--weight_decay"}) {
    for (const char* value : {"inf", "nan", "1e400"})
      EXPECT_EQ(train(good("good.jsonl"), {flag, value}).exit_code, 2) << flag << value;
  }
  EXPECT_FALSE(fs::exists((*this) / "run"));
}

TEST_F(FiniteWeights, AnAdapterThatOverflowsIsMergedByNobody) {
  const fs::path config = train_adapter() / "adapter_config.json";
  const auto merge = [&] { return run({"merge", "--adapters", "run", "--output", "out"}); };
  const auto convert_merged = [&] {
    return convert({good("model"), "out", "--to", "hf", "--adapters", "run"});
  };
  json keys = json::parse(content_of(config));
  for (const char* key : {"lora_alpha", "alpha_pattern"}) {
    json broken = keys;
    broken[key] = key == std::string("lora_alpha") ? json(1e308) : json{{"q_proj", 1e308}};
    write_content(config, broken.dump());
    for (const ProgramResult& result : {merge(), convert_merged()})
      expect_error(result, 4, {key, "a number that fp32 can hold, got 1e+308"});
  }
  // A scale that is a number, whose products are none.
  keys["lora_alpha"] = 3e38;
  keys["r"] = 8;
  write_content(config, keys.dump());
  set_first((*this) / "run/adapter_model.safetensors",
            "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight", 1e20f);
  EXPECT_EQ(merge().exit_code, 4);
  expect_error(convert_merged(), 4,
               {"adapter_model.safetensors", "merged into it holds", "F32 cannot"});
  EXPECT_FALSE(fs::exists((*this) / "out"));
}

TEST_F(FiniteWeights, ATypeThatCannotHoldAWeightIsAnError) {
  const fs::path file = copy_model() / "model.safetensors";
  set_first(file, kUp, 9e6f);  // 127 · 65504 = 8,319,008
  expect_error(convert({"model", "out", "--to", "gguf", "--outtype", "q8_0"}), 4,
               {"holds 9e+06, which Q8_0 has no number for (its largest is 8319008)"});
  expect_error(convert({"model", "out", "--to", "hf", "--dtype", "fp16"}), 4,
               {kUp, "9e+06, which fp16 cannot"});
  set_first(file, kUp, 3.4e38f);  // bf16 ends at 3.3895e38
  expect_error(convert({"model", "out", "--to", "hf", "--dtype", "bf16"}), 4,
               {kUp, "3.4e+38, which bf16 cannot"});
  expect_error(convert({"model", "out", "--to", "gguf", "--outtype", "bf16"}), 4,
               {"3.4e+38, which bf16 cannot"});
  EXPECT_EQ(run({"convert", "model", "out", "--to", "hf"}).exit_code, 0);
}

TEST_F(FiniteWeights, NumbersThatAreNoneAreConvertedAndNamed) {
  const fs::path file = copy_model() / "model.safetensors";
  const auto converted = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {"convert", "model", "out"};
    line.insert(line.end(), more.begin(), more.end());
    const ProgramResult result = run(line);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    fs::remove_all((*this) / "out");
    return result.err;
  };
  EXPECT_THAT(converted({"--to", "hf"}), Not(HasSubstr("NaN")));
  set_first(file, kUp, std::nanf(""));
  set_first(file, "model.norm.weight", -INFINITY);
  const std::string kTwo = "warning: 2 of 27 tensors hold an infinity or NaN, the first: ";
  EXPECT_THAT(converted({"--to", "hf"}), HasSubstr(kTwo + kUp));
  EXPECT_THAT(converted({"--to", "hf", "--dtype", "bf16", "--check", "false"}),
              HasSubstr(kTwo + kUp));
  EXPECT_THAT(converted({"--to", "mcore", "--tp", "2"}),
              AllOf(HasSubstr("tensors hold an infinity or NaN, the first: "),
                    HasSubstr(".pt; they are kept as they are")));
  // Ranks count their layers for themselves: two of them use one name.
  set_first(file, "model.layers.0.mlp.up_proj.weight", std::nanf(""));
  EXPECT_THAT(converted({"--to", "mcore", "--pp", "2"}),
              HasSubstr("warning: 3 of 17 tensors hold an infinity or NaN"));
}

TEST_F(FiniteWeights, TrainedWeightsThatTheTypeOfTheResultCannotHoldAreNotSaved) {
  const fs::path model = copy_model();
  // A row of the embedding that no text here uses.
  set_first(model / "model.safetensors", "model.embed_tokens.weight", 1e5f);
  const ProgramResult result =
      train(good("good.jsonl"), {"--model", model.string(), "--save_dtype", "fp16"});
  expect_error(result, 4,
               {"embed_tokens.weight holds inf at element 0 after the cast to fp16",
                "hint: use bf16 or fp32"});
  EXPECT_FALSE(fs::exists((*this) / "run/model.safetensors"));
  EXPECT_TRUE(fs::exists((*this) / "run/checkpoint-2/DONE"));
}

}  // namespace
}  // namespace danlu::test
