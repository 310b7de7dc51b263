// Native checkpoints: any cut reads back as the same bits, and a damaged index is an error.
#include "weights/native/native.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "support/throws.h"
#include "weights/bytes.h"
#include "weights/convert/joined_source.h"
#include "weights/convert/layout_writer.h"
#include "weights/random_models.h"

namespace danlu::weights::native {
namespace {

using test::RandomModels;
using testing::HasSubstr;

void write(const fs::path& directory, const TensorSource& globals, const Target& target) {
  fs::create_directories(directory);
  check_layout(target.layout);
  write_layout(globals, target.layout, target.plans, directory);
  for (const auto& [path, text] : target.texts) write_file_atomic(directory / path, text);
}

void expect_same(const TensorSource& a, const TensorSource& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const TensorInfo& info : a.tensors()) {
    ASSERT_TRUE(b.find(info.name)) << info.name;
    EXPECT_EQ(b.find(info.name)->dtype, info.dtype);
    EXPECT_EQ(b.find(info.name)->shape, info.shape);
    EXPECT_EQ(test::read_tensor(a, info.name), test::read_tensor(b, info.name)) << info.name;
  }
}

TEST(Native, AnyCutReadsBackAsTheSameBits) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    RandomModels random(3000 + seed);
    const Json json = random.config_json();
    const arch::ModelConfig config = random.parse(json);
    SCOPED_TRACE(std::to_string(seed) + " " + json.dump());
    const auto globals = megatron::global_tensors(config, config.dtype);
    const auto model = random.source(globals);
    const bool has_state = random.coin();
    const OptimizerState state = random.optimizer(globals, random.coin());
    const test::TemporaryDirectory directory;
    write(directory / "a", *join_optimizer(model, state.tensors),
          plan_checkpoint(config, globals, random.split(config), 9, has_state ? &state : nullptr));
    const Checkpoint opened = open_checkpoint(directory / "a");
    expect_same(*model, *opened.model);
    EXPECT_EQ(opened.iteration, 9);
    ASSERT_EQ(opened.optimizer.tensors != nullptr, has_state);
    if (!has_state) continue;
    expect_same(*state.tensors, *opened.optimizer.tensors);
    EXPECT_EQ(opened.optimizer.settings.groups, state.settings.groups);
    EXPECT_EQ(opened.optimizer.has_master, state.has_master);
  }
}

TEST(Native, NothingIsStoredTwice) {
  RandomModels random(1);
  const arch::ModelConfig config = random.parse(test::tiny_config("mixtral"));
  const auto globals = megatron::global_tensors(config, DType::kF32);
  const Target target = plan_checkpoint(config, globals, {.tp = 2, .pp = 2, .ep = 2}, 1, nullptr);
  uint64_t stored = 0, needed = 0;
  for (const StoredTensor& tensor : target.layout.tensors) stored += tensor.size_bytes();
  for (const TensorInfo& info : globals) needed += info.size_bytes();
  EXPECT_EQ(stored, needed);
  EXPECT_EQ(target.layout.files.size(), 8u);
}

class DamagedIndex : public testing::Test {
 protected:
  DamagedIndex() {
    RandomModels random(5);
    const arch::ModelConfig config = random.parse(test::tiny_config("llama"));
    const auto globals = megatron::global_tensors(config, DType::kF32);
    write(directory_ / "a", *random.source(globals),
          plan_checkpoint(config, globals, {.tp = 2}, 1, nullptr));
    index_ = read_json_file(directory_ / "a" / kIndexFile);
  }
  std::string message_with(const Json& index) {
    write_json_file(directory_ / "a" / kIndexFile, index);
    return test::error_of<ModelError>([&] { open_checkpoint(directory_ / "a"); });
  }
  Json& piece(int number) {
    return index_["tensors"]["model.embed_tokens.weight"]["pieces"][number];
  }

  test::TemporaryDirectory directory_;
  Json index_;
};

TEST_F(DamagedIndex, HolesAndOverlapsAreRefused) {
  piece(1)[1] = piece(1)[1].get<int64_t>() + 1;
  EXPECT_THAT(message_with(index_), HasSubstr("model.embed_tokens.weight"));
  piece(1)[1] = piece(0)[1];
  EXPECT_THAT(message_with(index_), HasSubstr("model.embed_tokens.weight"));
}

TEST_F(DamagedIndex, NumbersBeyondReasonAreRefused) {
  for (const int64_t number : {int64_t{-1}, int64_t{1} << 41, INT64_MAX, int64_t{1} << 39}) {
    for (int at = 0; at < 6; ++at) {
      const Json kept = piece(0)[at];
      piece(0)[at] = number;
      EXPECT_THAT(message_with(index_), HasSubstr("danlu_checkpoint.json")) << at << " " << number;
      piece(0)[at] = kept;
    }
  }
  index_["tensors"]["model.embed_tokens.weight"]["shape"] = {int64_t{1} << 39, int64_t{1} << 39};
  EXPECT_THAT(message_with(index_), HasSubstr("impossible"));
}

TEST_F(DamagedIndex, FilesOutsideTheCheckpointAreRefused) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "a/../../x", ""}) {
    Json index = index_;
    index["files"][0] = name;
    EXPECT_THAT(message_with(index), HasSubstr("no path inside the checkpoint")) << name;
  }
}

TEST_F(DamagedIndex, ATensorOfNothingNeedsAPlaceToo) {
  Json& tensors = index_["tensors"];
  tensors["extra"] = {{"shape", {0}}, {"pieces", Json::array()}};
  EXPECT_THAT(message_with(index_), HasSubstr("extra"));
  constexpr int64_t kHuge = int64_t{1} << 40;
  tensors["extra"] = {{"shape", {0, kHuge, kHuge}}, {"pieces", {{0, 0, 0, 0, 1, 0}}}};
  EXPECT_THAT(message_with(index_), HasSubstr("extra"));
  tensors["extra"]["shape"] = {kHuge, kHuge, 0};
  EXPECT_THAT(message_with(index_), HasSubstr("extra"));
}

TEST_F(DamagedIndex, SettingsOfTheWrongKindAreRefused) {
  const auto message = [&](const char* key, const Json& value) {
    Json index = index_;
    index["optimizer"] = {{key, value}};
    return message_with(index);
  };
  EXPECT_THAT(message("groups", {1}), HasSubstr("groups[0]"));
  EXPECT_THAT(message("groups", 1), HasSubstr("groups"));
  EXPECT_THAT(message("groups", {Json::object(), {{"wd_mult", nullptr}}}),
              testing::AllOf(HasSubstr("groups[1]"), HasSubstr("wd_mult")));
  EXPECT_THAT(message("groups", {{{"lr_mult", "1"}}}), HasSubstr("lr_mult"));
  EXPECT_THAT(message("groups", {{{"is_expert_parallel", 1}}}), HasSubstr("is_expert_parallel"));
  EXPECT_THAT(message("scheduler", {1}), HasSubstr("scheduler"));
  EXPECT_THAT(message("iteration", "1"), HasSubstr("danlu_checkpoint.json"));
}

TEST_F(DamagedIndex, MissingPartsAreNamed) {
  fs::remove(directory_ / "a/weights/mp_rank_01.safetensors");
  EXPECT_THAT(message_with(index_), HasSubstr("weights/mp_rank_01.safetensors is missing"));
  for (const char* key : {"files", "tensors", "format"}) {
    Json index = index_;
    index.erase(key);
    EXPECT_THAT(message_with(index), HasSubstr(key));
  }
  Json newer = index_;
  newer["version"] = 3;
  EXPECT_THAT(message_with(newer), HasSubstr("version 3"));
  newer["version"] = 2;
  EXPECT_THAT(message_with(newer), HasSubstr("a piece must be 7 numbers"));
}

/// One of the files of several ranks' state: each tensor's values are its element numbers.
void write_parts(const fs::path& directory, const std::string& file,
                 const std::vector<Part>& parts) {
  std::vector<std::vector<float>> values;
  for (const Part& part : parts) {
    const int64_t width = matrix_of(part.shape).cols;
    std::vector<float>& list = values.emplace_back();
    for (int64_t row = part.rect.row; row < part.rect.row + part.rect.rows; ++row) {
      for (int64_t col = part.rect.col; col < part.rect.col + part.rect.cols; ++col)
        list.push_back(static_cast<float>(row * width + col));
    }
  }
  save_safetensors(directory, stored_as(parts),
                   [&](size_t i) { return std::as_bytes(std::span(values[i])); },
                   {.max_shard_bytes = UINT64_MAX, .base_name = file});
}

TEST(StateOfSeveralRanks, PartsOfOneTensorInOneFileReadAsTheWhole) {
  // A matrix and a kernel cut in the middle of rows, and a vector: what a share of a flat buffer
  // is.
  const std::vector<int64_t> shape{5, 4}, vector{6}, kernel{3, 2, 2};
  const std::vector<std::vector<Part>> parts = {{{"exp_avg.w", shape, {0, 1, 0, 4}},
                                                 {"exp_avg.w", shape, {1, 1, 0, 3}},
                                                 {"exp_avg.k", kernel, {0, 2, 0, 4}},
                                                 {"exp_avg.k", kernel, {2, 1, 0, 1}}},
                                                {{"exp_avg.w", shape, {1, 1, 3, 1}},
                                                 {"exp_avg.w", shape, {2, 3, 0, 4}},
                                                 {"exp_avg.k", kernel, {2, 1, 1, 3}},
                                                 {"exp_avg.b", vector, {0, 6, 0, 1}}}};
  const test::TemporaryDirectory directory;
  for (size_t i = 0; i < parts.size(); ++i)
    write_parts(directory.path(), "rank-" + std::to_string(i), parts[i]);
  write_json_file(directory / kIndexFile,
                  index_of({"rank-0.safetensors", "rank-1.safetensors"}, parts));
  const auto state = open_state(directory.path());
  ASSERT_TRUE(state);
  ASSERT_EQ(state->tensors().size(), 3u);
  for (const TensorInfo& info : state->tensors()) {
    std::vector<float> values(static_cast<size_t>(info.num_elements()));
    state->read(info.name, std::as_writable_bytes(std::span(values)));
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
  }
  std::vector<std::vector<Part>> hole = parts;
  hole[0].erase(hole[0].begin() + 1);
  write_json_file(directory / kIndexFile,
                  index_of({"rank-0.safetensors", "rank-1.safetensors"}, hole));
  EXPECT_THAT(test::error_of<ModelError>([&] { open_state(directory.path()); }),
              HasSubstr("exp_avg.w"));
  EXPECT_FALSE(open_state(directory / "nothing"));
}

}  // namespace
}  // namespace danlu::weights::native
