#include "weights/hf/sharded_source.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "base/lfs_pointer.h"
#include "base/log.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

class ShardedSource final : public SourceBase<const TensorSource*> {
 public:
  ShardedSource(std::filesystem::path index_file,
                std::vector<std::shared_ptr<const TensorSource>> shards,
                std::vector<std::pair<TensorInfo, const TensorSource*>> tensors)
      : index_file_(std::move(index_file)), shards_(std::move(shards)) {
    set_tensors(std::move(tensors));
    if (!shards_.empty()) metadata_ = shards_.front()->metadata();
  }
  void read(const std::string& name, std::span<std::byte> out) const override {
    shard_of(name).read(name, out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    shard_of(name).read_range(name, begin, end, out);
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return shard_of(name).mapped(name);
  }
  std::filesystem::path file_of(const std::string& name) const override {
    return shard_of(name).file_of(name);
  }
  Storage storage(const std::string& name) const override { return shard_of(name).storage(name); }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    shard_of(name).read_rect(name, rect, out, out_stride);
  }
  void forget() const override {
    for (const auto& shard : shards_) shard->forget();
  }

 private:
  const TensorSource& shard_of(const std::string& name) const {
    return *locations_[index_of(name, index_file_)];
  }

  std::filesystem::path index_file_;
  std::vector<std::shared_ptr<const TensorSource>> shards_;
};

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

/// A broken index is the model's fault, not a data set's.
Json read_index(const std::filesystem::path& index_file) {
  try {
    return read_json_file(index_file);
  } catch (const DataError& error) {
    throw ModelError(error.what());
  }
}

WeightMap read_weight_map(const std::filesystem::path& index_file) {
  refuse_lfs_pointer(index_file, "the index of the weights");
  return parse_weight_map(read_index(index_file), index_file.string());
}

}  // namespace

WeightMap parse_weight_map(const Json& index, const std::string& origin) {
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object() || map->empty()) {
    throw ModelError(tr("{}: weight_map (tensor name -> file name) is missing or empty", origin));
  }
  WeightMap shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get<std::string>())) {
      throw ModelError(tr("{}: weight_map of {} must be a file name without a directory, got {}",
                          origin, tensor,
                          file.dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    shards[file.get<std::string>()].push_back(tensor);
  }
  return shards;
}

std::shared_ptr<const TensorSource> open_index(const std::filesystem::path& index_file) {
  std::vector<std::shared_ptr<const TensorSource>> shards;
  std::vector<std::pair<TensorInfo, const TensorSource*>> tensors;
  for (const auto& [file_name, names] : read_weight_map(index_file)) {
    const std::filesystem::path file = index_file.parent_path() / file_name;
    if (!std::filesystem::exists(file)) {
      throw ModelError(tr("{}: shard {} is missing", index_file.string(), file_name),
                       tr("the download is incomplete: fetch that file too"));
    }
    shards.push_back(open_weight_file(file));
    for (const std::string& name : names) {
      const TensorInfo* info = shards.back()->find(name);
      if (!info) {
        throw ModelError(tr("{}: tensor {} is listed in {}, but that file has no such tensor",
                            index_file.string(), name, file_name));
      }
      tensors.emplace_back(*info, shards.back().get());
    }
    if (const size_t unlisted = shards.back()->tensors().size() - names.size()) {
      log::warning("{}: {} tensors are not listed in {} and are left out", file.string(), unlisted,
                   index_file.filename().string());
    }
  }
  return std::make_shared<ShardedSource>(index_file, std::move(shards), std::move(tensors));
}

}  // namespace danlu::weights
