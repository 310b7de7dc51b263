// A save that dies between two of its steps: whatever loads is the old set or the new one.
#include "weights/hf/publish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/bytes.h"
#include "weights/tensor_source.h"

namespace danlu::weights {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

constexpr size_t kNumTensors = 6;

/// Six tensors of four bytes, every byte `value`, in `num_shards` files.
void save(const fs::path& directory, int num_shards, char value) {
  fs::create_directories(directory);
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < kNumTensors; ++i)
    infos.push_back({"t" + std::to_string(i), DType::kU8, {4}});
  const std::string content(4, value);
  save_safetensors(directory, infos, [&](size_t) { return test::as_bytes(content); },
                   {.max_shard_bytes = 4 * kNumTensors / static_cast<size_t>(num_shards)});
}

/// 'o', 'n', or '-' for a directory that does not load; fails for a mixture.
char what_loads(const fs::path& directory) {
  std::shared_ptr<const TensorSource> source;
  try {
    source = open_weights(directory);
  } catch (const ModelError&) {
    return '-';
  }
  std::string all;
  for (const TensorInfo& info : source->tensors()) {
    std::string bytes(info.size_bytes(), 0);
    source->read(info.name, std::as_writable_bytes(std::span(bytes)));
    all += bytes;
  }
  EXPECT_EQ(all, std::string(4 * kNumTensors, all.at(0)));
  return all.at(0);
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// What loads after each number of steps, from none to all.
std::string loads_after_each_step(const fs::path& folder, int old_shards, int new_shards) {
  std::string loads;
  for (size_t done = 0;; ++done) {
    const fs::path directory = folder / "model", staging = folder / "staging";
    fs::remove_all(directory);
    fs::remove_all(staging);
    save(directory, old_shards, 'o');
    save(staging, new_shards, 'n');
    std::vector<std::string> names = names_in(staging);
    // The index is what a save writes last.
    std::stable_partition(names.begin(), names.end(),
                          [](const std::string& name) { return !name.ends_with(".json"); });
    std::vector<PublishStep> steps = publish_steps(names_in(directory), names, "model");
    if (done > steps.size()) return loads;
    const bool all = done == steps.size();
    steps.resize(done);
    publish(staging, directory, steps);
    loads += what_loads(directory);
    if (all) {
      std::sort(names.begin(), names.end());
      EXPECT_EQ(names_in(directory), names);
    }
  }
}

TEST(Publish, AKilledSaveLeavesTheOldSetTheNewOneOrNone) {
  const TemporaryDirectory folder;
  for (int old_shards = 1; old_shards <= 3; ++old_shards) {
    for (int new_shards = 1; new_shards <= 3; ++new_shards) {
      SCOPED_TRACE(std::to_string(old_shards) + " to " + std::to_string(new_shards));
      const std::string loads = loads_after_each_step(folder.path(), old_shards, new_shards);
      EXPECT_EQ(loads.front(), 'o');
      EXPECT_EQ(loads.back(), 'n');
      // Once the new set is there it stays; a gap is met only where shards have the same names.
      EXPECT_THAT(loads, ::testing::MatchesRegex(
                             old_shards == new_shards && old_shards > 1 ? "o+-+n+" : "o+n+"));
    }
  }
}

TEST(Publish, ALeftStagingFolderIsNamed) {
  const TemporaryDirectory folder;
  fs::create_directory(folder / ".saving.tmp-123");
  const std::string error = test::error_of<ModelError>([&] { open_weights(folder.path()); });
  EXPECT_THAT(error, ::testing::HasSubstr("saving weights here was interrupted"));
}

TEST(HasWeights, ByTheNamesThatAreLoaded) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(has_weights(folder.path()));
  EXPECT_FALSE(has_weights(folder / "none"));
  test::TemporaryDirectory adapter;
  write_file_atomic(adapter / "adapter_model.safetensors", "");
  EXPECT_FALSE(has_weights(adapter.path()));
  for (const int shards : {1, 2}) {
    save(folder / std::to_string(shards), shards, 'x');
    EXPECT_TRUE(has_weights(folder / std::to_string(shards)));
  }
}

}  // namespace
}  // namespace danlu::weights
