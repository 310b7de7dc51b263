// Hugging Face directories: which file is opened, shards behind an index, and files carried over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arch/model_config.h"
#include "base/error.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"

namespace danlu::weights {
namespace {

using test::error_of;
using test::safetensors_bytes;
using ::testing::HasSubstr;

/// One U8 tensor of this name and content.
std::string one_tensor(const std::string& name, const std::string& content) {
  const std::string size = std::to_string(content.size());
  return safetensors_bytes("{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + size +
                               "],\"data_offsets\":[0," + size + "]}}",
                           content);
}

TEST(Parameters, NamesAndShapesOfEveryGoldenEqualItsWeights) {
  DANLU_REQUIRES_SHARED();
  for (const char* name : {"llama", "llama_sharded_bf16", "qwen2", "qwen3", "baichuan2_7b"}) {
    SCOPED_TRACE(name);
    const auto directory = test::shared_dir() / "golden" / name;
    const arch::ModelConfig config = arch::load_model_config(directory);
    const auto source = open_weights(directory);
    size_t stored = 0;
    for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
      const TensorInfo* info = source->find(spec.name);
      if (!spec.tied_to.empty()) {
        EXPECT_EQ(info, nullptr) << spec.name;
        continue;
      }
      ASSERT_NE(info, nullptr) << spec.name;
      EXPECT_EQ(info->shape, spec.shape) << spec.name;
      EXPECT_EQ(info->dtype, config.dtype) << spec.name;
      ++stored;
    }
    EXPECT_EQ(stored, source->tensors().size());
  }
}

TEST(HfDirectory, ShardedAndSingleFileGiveTheSameTensors) {
  const test::TemporaryDirectory directory;
  test::write_tiny_model(directory / "one");
  test::write_tiny_model(directory / "many", test::tiny_config(), 1, DType::kF32,
                         {.max_shard_bytes = 9000});
  EXPECT_FALSE(std::filesystem::exists(directory / "many" / "model.safetensors"));
  const auto one = open_weights(directory / "one"), many = open_weights(directory / "many");
  ASSERT_EQ(one->tensors().size(), many->tensors().size());
  std::set<std::filesystem::path> files;
  for (const TensorInfo& info : one->tensors()) {
    EXPECT_EQ(test::read_tensor(*one, info.name), test::read_tensor(*many, info.name)) << info.name;
    EXPECT_EQ(many->mapped(info.name).size(), info.size_bytes());
    files.insert(many->file_of(info.name));
  }
  EXPECT_GT(files.size(), 3u);
  EXPECT_EQ(many->metadata()["format"], "pt");
}

TEST(HfDirectory, ShardsOfTheGoldenAreReadThroughItsIndex) {
  DANLU_REQUIRES_SHARED();
  const auto source = open_weights(test::shared_dir() / "golden" / "llama_sharded_bf16");
  EXPECT_NE(source->file_of("lm_head.weight"), source->file_of("model.embed_tokens.weight"));
}

TEST(HfDirectory, BinAndSafetensorsOfTheSameModelAreEqual) {
  DANLU_REQUIRES_SHARED();
  const auto directory = test::shared_dir() / "golden" / "baichuan2_7b";
  const auto one = open_weights(directory / "model.safetensors"),
             other = open_weights(directory / "pytorch_model.bin");
  ASSERT_EQ(one->tensors().size(), other->tensors().size());
  for (const TensorInfo& info : one->tensors()) {
    ASSERT_NE(other->find(info.name), nullptr) << info.name;
    EXPECT_EQ(other->find(info.name)->shape, info.shape);
    EXPECT_EQ(test::read_tensor(*one, info.name), test::read_tensor(*other, info.name))
        << info.name;
  }
}

TEST(HfDirectory, PrefersSafetensorsOverIndexOverBin) {
  const test::TemporaryDirectory directory;
  write_file_atomic(directory / "s.safetensors", one_tensor("shard", "a"));
  write_file_atomic(directory / "model.safetensors.index.json",
                    R"({"weight_map":{"shard":"s.safetensors"}})");
  write_file_atomic(directory / "pytorch_model.bin", one_tensor("bin", "a"));
  EXPECT_NE(open_weights(directory.path())->find("shard"), nullptr);
  write_file_atomic(directory / "model.safetensors", one_tensor("single", "a"));
  EXPECT_NE(open_weights(directory.path())->find("single"), nullptr);
}

TEST(HfDirectoryErrors, IndexFiles) {
  const test::TemporaryDirectory directory;
  const auto index = directory / "model.safetensors.index.json";
  const auto error_with = [&](const std::string& text) {
    write_file_atomic(index, text);
    return error_of<ModelError>([&] { open_weights(directory.path()); });
  };
  write_file_atomic(directory / "s.safetensors", one_tensor("a", "x"));
  EXPECT_THAT(error_with("[]"), HasSubstr("weight_map (tensor name -> file name) is missing"));
  EXPECT_THAT(error_with(R"({"weight_map":{}})"), HasSubstr("is missing or empty"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":"../s.safetensors"}})"),
              HasSubstr("without a directory, got \"../s.safetensors\""));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":".."}})"), HasSubstr("without a directory"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":3}})"),
              HasSubstr("weight_map of a must be a file name"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":"s.safetensors","b":"t.safetensors"}})"),
              HasSubstr("shard t.safetensors is missing"));
  EXPECT_THAT(error_with(R"({"weight_map":{"a":"s.safetensors","b":"s.safetensors"}})"),
              HasSubstr("tensor b is listed in s.safetensors, but that file has no such tensor"));
}

TEST(HfDirectoryErrors, WhatIsNotThere) {
  const test::TemporaryDirectory directory;
  EXPECT_THAT(error_of<ModelError>([&] { open_weights(directory / "nowhere"); }),
              HasSubstr("no such file or directory"));
  EXPECT_THAT(error_of<ModelError>([&] { open_weights(directory.path()); }),
              HasSubstr("no weights here; looked for model.safetensors"));
  write_file_atomic(directory / "model-00001-of-00002.safetensors", one_tensor("a", "x"));
  EXPECT_THAT(error_of<ModelError>([&] { open_weights(directory.path()); }),
              HasSubstr("fetch model.safetensors.index.json"));
  write_file_atomic(directory / "x.gguf", "GGUF....");
  EXPECT_THAT(error_of<ModelError>([&] { open_weights(directory / "x.gguf"); }),
              HasSubstr("GGUF version 774778414; versions 2 and 3 are read"));
  write_file_atomic(directory / "empty.bin", "");
  EXPECT_THAT(error_of<ModelError>([&] { open_weights(directory / "empty.bin"); }),
              HasSubstr("it is empty"));
}

TEST(HfDirectoryErrors, AGitLfsPointerIsNamedWhereverItStands) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 988097824\n";
  const auto expect_pointer = [](const std::string& error, const fs::path& file) {
    EXPECT_THAT(error, HasSubstr(file.string() + ": this is a Git LFS pointer, not "));
    EXPECT_THAT(error, HasSubstr("run `git lfs pull` in " + file.parent_path().string()));
  };
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "adapter_model.safetensors"}) {
    const test::TemporaryDirectory directory;
    write_file_atomic(directory / name, pointer);
    expect_pointer(error_of<ModelError>([&] { open_weights(directory.path()); }), directory / name);
  }
  // A shard behind an index that was fetched, and files opened by their format.
  const test::TemporaryDirectory directory;
  write_file_atomic(directory / "model.safetensors.index.json",
                    R"({"weight_map":{"a":"s.safetensors"}})");
  const auto shard = directory / "s.safetensors";
  write_file_atomic(shard, pointer);
  expect_pointer(error_of<ModelError>([&] { open_weights(directory.path()); }), shard);
  expect_pointer(error_of<ModelError>([&] { open_safetensors(shard); }), shard);
  expect_pointer(error_of<ModelError>([&] { open_torch_file(shard); }), shard);
}

TEST(CarryOver, TakesWhatDescribesTheModelAndLeavesTheRest) {
  const test::TemporaryDirectory directory;
  const auto from = directory / "from", to = directory / "to";
  std::filesystem::create_directories(from / "sub");
  std::filesystem::create_directories(to);
  const std::vector<std::string> wanted = {"config.json",
                                           "generation_config.json",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "tokenizer.model",
                                           "added_tokens.json"};
  const std::vector<std::string> left = {"model.safetensors", "model.safetensors.index.json",
                                         "pytorch_model.bin", "trainer_state.json",
                                         "training_args.bin", "optimizer.pt",
                                         "modeling_x.py",     "README.md"};
  for (const auto& name : wanted) write_file_atomic(from / name, "{}");
  for (const auto& name : left) write_file_atomic(from / name, "{}");
  write_file_atomic(to / "config.json", "mine");
  carry_over_files(from, to);
  for (const auto& name : wanted) EXPECT_TRUE(std::filesystem::exists(to / name)) << name;
  for (const auto& name : left) EXPECT_FALSE(std::filesystem::exists(to / name)) << name;
  EXPECT_EQ(read_file(to / "config.json"), "mine");
  // A model that needs its own modules to be opened elsewhere gets them.
  write_file_atomic(from / "config.json", R"({"auto_map":{"AutoConfig":"configuration_x.X"}})");
  carry_over_files(from, to);
  EXPECT_TRUE(std::filesystem::exists(to / "modeling_x.py"));
}

}  // namespace
}  // namespace danlu::weights
