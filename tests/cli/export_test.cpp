// `danlu export`, and what other systems' lines write at the end of a training: each result is
// compared with that of the verb that does the work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/trained_adapter.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Export = TrainedAdapter;

TEST_F(Export, AdaptersBecomePartOfTheModelAsMergeWritesThem) {
  train_adapter();
  ok({"merge", "--adapters", "run", "--output", "by_merge"});
  ok({"export", "--adapters", "run", "--output_dir", "shards", "--max_shard_size", "50KB"});
  EXPECT_TRUE(fs::exists(*this / "shards/model.safetensors.index.json"));
  ok({"diff", "by_merge", "shards"});
  const ProgramResult swift = ok({"export", "--adapters", "run", "--merge_lora", "true"});
  EXPECT_THAT(swift.err, HasSubstr("this is danlu merge --adapters run"));
  ok({"diff", "by_merge", "run-merged"});
  const fs::path yaml =
      write("merge.yaml", "model_name_or_path: " + good("model").string() +
                              "\nadapter_name_or_path: run\ntemplate: default\n"
                              "trust_remote_code: true\nexport_dir: by_yaml\nexport_size: 5\n"
                              "export_device: cpu\nexport_legacy_format: false\n");
  ok({"export", yaml});
  ok({"diff", "by_merge", "by_yaml"});
}

TEST_F(Export, AModelInMegatronsFormAndBack) {
  train_adapter();
  ok({"merge", "--adapters", "run", "--output", "merged"});
  ok({"export", "--model", good("model").string(), "--adapters", "run", "--to_mcore", "true",
      "--tensor_model_parallel_size", "2", "--output_dir", "mcore", "--merge_lora", "true",
      "--test_convert_precision", "true"});
  EXPECT_THAT(ok({"inspect", "mcore"}).out, HasSubstr("TP2 PP1"));
  // The base that the adapters name; sizes of a split have no effect on it, and are said.
  const ProgramResult named = ok({"export", "--adapters", "run", "--to_hf", "--output_dir", "named",
                                  "--tensor_model_parallel_size", "2"});
  EXPECT_THAT(named.err, HasSubstr("--tensor_model_parallel_size: no effect on what is written"));
  ok({"diff", "merged", "named"});
  ok({"export", "--mcore_model", "mcore", "--to_hf", "true", "--output_dir", "hf"});
  ok({"diff", "merged", "hf"});
}

TEST_F(Export, FourBitsAreThoseOfConvert) {
  ok({"export", "--model", good("model").string(), "--quant_method", "bnb", "--quant_bits", "4",
      "--bnb_4bit_quant_type", "nf4", "--bnb_4bit_use_double_quant", "false", "--output_dir",
      "nf4"});
  ok({"convert", good("model").string(), "by_convert", "--to", "hf", "--quantization_bit", "4",
      "--no-double_quantization"});
  ok({"diff", "by_convert", "nf4"});
  ok({"infer", "--model", "nf4", "--prompt", "the", "--max_new_tokens", "1"});
  expect_error(run({"export", "--model", good("model").string(), "--quant_method", "awq",
                    "--quant_bits", "4", "--dataset", "a#500", "b#500"}),
               2, {"awq of 4 bits", "hint: danlu convert MODEL FILE.gguf"});
}

TEST_F(Export, RowsAreTokenisedOnceForRunsToCome) {
  const std::string model = good("model").string(), rows = good("good.jsonl").string();
  const ProgramResult made =
      ok({"export", "--model", model, "--dataset", rows, "--split_dataset_ratio", "0.25",
          "--to_cached_dataset", "true", "--max_length", "64", "--seed", "5", "--data_seed", "5",
          "--output_dir", "cached"});
  EXPECT_THAT(made.err, HasSubstr("next: danlu sft --cached_dataset cached/train"));
  const auto train = [&](const std::string& to, const std::vector<std::string>& data) {
    std::vector<std::string> line = {"sft", "--model", model, "--output_dir", to};
    for (const char* word :
         {"--dtype", "fp32", "--max_steps", "4", "--lr", "1e-3", "--global_batch_size", "4",
          "--seed", "5", "--logging_steps", "1", "--eval_steps", "4", "--max_length", "64"})
      line.emplace_back(word);
    line.insert(line.end(), data.begin(), data.end());
    ok(line);
  };
  train("plain", {"--dataset", rows, "--val_ratio", "0.25"});
  train("again", {"--cached_dataset", "cached/train", "--cached_val_dataset", "cached/val"});
  ok({"diff", "plain", "again"});
  expect_error(run({"export", "--model", model, "--dataset", rows, "--to_cached_dataset",
                    "--template_mode", "rlhf"}),
               2, {"--template_mode rlhf", "danlu rlhf keeps their tokens"});
  expect_error(run({"export", "--model", model, "--to_cached_dataset"}), 2, {"names no rows"});
  expect_error(run({"export", "--model", model, "--dataset", rows, "--to_cached_dataset",
                    "--output_dir", "cached"}),
               2, {"train/rows.jsonl is there already", "name another directory"});
  expect_error(run({"export", "--model", model, "--dataset", rows, "--to_cached_dataset",
                    "--task_type", "seq_cls", "--num_labels", "2", "--output_dir", "sorted"}),
               2, {"--task_type seq_cls: rows with labels are not written tokenised"});
}

TEST_F(Export, OllamaGetsAFileItCanBeToldOf) {
  ok({"export", "--model", good("model").string(), "--to_ollama", "true", "--output_dir", "o"});
  EXPECT_EQ(content_of(*this / "o/Modelfile"), "FROM ./model.gguf\n");
  ok({"diff", good("model").string(), "o/model.gguf", "--tolerance", "0.01"});
  ok({"export", "--model", good("model").string(), "--to_ollama", "--torch_dtype", "fp32",
      "--output_dir", "wide"});
  ok({"diff", good("model").string(), "wide/model.gguf", "--tolerance", "0"});
}

TEST_F(Export, SaysWhatItDoesNotDo) {
  const std::string model = good("model").string();
  expect_error(run({"export"}), 2, {"nothing to export"});
  expect_error(run({"export", "--model", model, "--push_to_hub", "true"}), 2,
               {"nothing is sent anywhere"});
  expect_error(run({"export", "--model", model, "--to_hf", "--to_mcore"}), 2,
               {"one output has one form"});
  expect_error(
      run({"export", "--model", model, "--adapters", "run", "--to_mcore", "--merge_lora", "false"}),
      2, {"--merge_lora false: adapters are in PEFT's form"});
  expect_error(run({"export", "--adapters", "run", "--merge_lora", "false"}), 2,
               {"--merge_lora false: adapters are in PEFT's form"});
}

TEST_F(Export, ATrainingMergesItsAdaptersInTheEnd) {
  const ProgramResult trained =
      train(good("good.jsonl"),
            {"--tuner", "lora", "--lr", "0.05", "--max_steps", "2", "--merge_lora", "true"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  ok({"merge", "--adapters", "run", "--output", "by_merge"});
  ok({"diff", "by_merge", "run-merged"});
}

TEST_F(Export, ATrainingIn4BitsMergesIntoWhatItWasTrainedOn) {
  const ProgramResult trained =
      train(good("good.jsonl"), {"--tuner", "lora", "--lr", "0.05", "--max_steps", "2",
                                 "--quantization_bit", "4", "--merge_lora", "true"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const Json rank = Json::parse(content_of((*this) / "run" / "memory.json"))["ranks"][0];
  EXPECT_NEAR(rank["counted"]["weights"].get<double>() / rank["planned"]["weights"].get<double>(),
              1, 0.1)
      << rank.dump(1);
  ok({"merge", "--adapters", "run", "--output", "by_merge", "--quantization_bit", "4"});
  ok({"diff", "by_merge", "run-merged"});
}

}  // namespace
}  // namespace danlu::test
