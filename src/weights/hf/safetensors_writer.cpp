// Saving: plan the shards, write them aside, and only then put them in place.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/temporary.h"
#include "weights/hf/publish.h"
#include "weights/hf/safetensors_header.h"
#include "weights/hf/shard_plan.h"

namespace danlu::weights {
namespace {

void write_shard(const fs::path& file, const std::vector<TensorInfo>& tensors,
                 const ShardPlan& shard, const TensorParts& give) {
  std::vector<TensorInfo> chosen;
  for (const size_t index : shard.tensors) chosen.push_back(tensors[index]);
  const std::vector<size_t> order = safetensors_file_order(chosen);
  std::vector<TensorInfo> in_order;
  for (const size_t at : order) in_order.push_back(chosen[at]);
  AtomicFile out(file);
  out.write(build_safetensors_header(in_order, {{"format", "pt"}}));
  for (const size_t at : order) {
    uint64_t given = 0;
    give(shard.tensors[at], [&](std::span<const std::byte> part) {
      out.write(part.data(), part.size());
      given += part.size();
    });
    if (given != chosen[at].size_bytes()) {
      throw InternalError(fmt::format("[save_safetensors] {} takes {} bytes, {} were given",
                                      chosen[at].name, chosen[at].size_bytes(), given));
    }
  }
  out.commit();
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void check_names(const std::vector<TensorInfo>& tensors) {
  std::unordered_set<std::string> seen;
  for (const TensorInfo& info : tensors) {
    if (info.name == "__metadata__" || !seen.insert(info.name).second) {
      throw InternalError(
          fmt::format("[save_safetensors] tensor name {} is reserved or given twice", info.name));
    }
  }
}

}  // namespace

void save_safetensors(const std::filesystem::path& directory,
                      const std::vector<TensorInfo>& tensors, const TensorBytes& bytes_of,
                      const SaveOptions& options) {
  const auto give = [&](size_t index, const BytesSink& sink) { sink(bytes_of(index)); };
  save_safetensors(directory, tensors, TensorParts(give), options);
}

void save_safetensors(const std::filesystem::path& directory,
                      const std::vector<TensorInfo>& tensors, const TensorParts& give,
                      const SaveOptions& options) {
  check_names(tensors);
  if (!fs::is_directory(directory)) throw IoError(tr("{}: no such directory", directory.string()));
  const std::vector<ShardPlan> shards = plan_shards(tensors, options.max_shard_bytes);
  uint64_t total_bytes = 0;
  for (const ShardPlan& shard : shards) total_bytes += shard.data_bytes;
  constexpr uint64_t kHeaderBytesPerTensor = 256;
  require_free_space(directory, total_bytes + tensors.size() * kHeaderBytesPerTensor,
                     "saving the weights");
  const Temporary staging(directory / kStagingStem, Temporary::Kind::kDirectory);
  if (staging.fd() < 0)
    throw IoError(tr("{}: cannot write into it: {}", directory.string(), std::strerror(errno)));
  std::vector<std::string> names;
  for (size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shard_name(options.base_name, i, shards.size()));
    write_shard(staging.path() / names.back(), tensors, shards[i], give);
  }
  if (shards.size() > 1) {
    names.push_back(options.base_name + ".safetensors.index.json");
    write_file_atomic(staging.path() / names.back(),
                      shard_index_json(tensors, shards, options.base_name));
  }
  // Everything is on disk by now: only renames and removals are left.
  publish(staging.path(), directory, publish_steps(names_in(directory), names, options.base_name));
}

}  // namespace danlu::weights
