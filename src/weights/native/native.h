// weights/native/native.h: Danlu's own sharded checkpoint: safetensors files under HF names and one
// JSON file that says which rectangle of which tensor each holds. Any job may read any part of it,
// however it was cut. docs/formats/native.md.
#pragma once
#include <filesystem>
#include <optional>

#include "arch/model_config.h"
#include "weights/convert/optimizer_state.h"
#include "weights/convert/target.h"
#include "weights/megatron/split.h"

namespace danlu::weights::native {

inline constexpr const char* kIndexFile = "danlu_checkpoint.json";
inline constexpr int kVersion = 1;
/// The version of an index whose tensors may lie in a file in several stored tensors.
inline constexpr int kVersionOfParts = 2;

bool is_native_directory(const std::filesystem::path& path);

struct Checkpoint {
  std::shared_ptr<const TensorSource> model;  ///< HF names
  OptimizerState optimizer;                   ///< without tensors if it was not saved
  int64_t iteration = 0;
  std::string split;  ///< how it was cut, for people
};

/// Errors: ModelError for a broken index (naming the key), pieces that leave a hole or overlap, a
/// missing file, a tensor of another shape; IoError.
Checkpoint open_checkpoint(const std::filesystem::path& directory);

/// A rectangle of a tensor (F32) that a rank of a training stores.
struct Part {
  std::string name;            ///< of the tensor
  std::vector<int64_t> shape;  ///< of the whole
  Rect rect;
};
/// What each is called in its file: by its tensor's name; further ones of the same tensor "name#1",
/// "name#2" …
std::vector<TensorInfo> stored_as(const std::vector<Part>& parts);
/// The index of files that hold nothing but parts[i], stored so.
Json index_of(const std::vector<std::string>& files, const std::vector<std::vector<Part>>& parts);

/// State of an optimizer in a training checkpoint's folder of it: "exp_avg.X", "exp_avg_sq.X",
/// "momentum.X", "master.X" in the files that an index names. nullptr if there is none.
/// `some_elsewhere`: a file that is missing is an error where it is read. Errors: as
/// open_checkpoint.
std::shared_ptr<const TensorSource> open_state(const std::filesystem::path& directory,
                                               bool some_elsewhere = false);

/// One file per rank that owns something; nothing is stored twice. `optimizer` may be null.
/// `globals`: in the dtypes to store. Errors: as megatron::check_split.
Target plan_checkpoint(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
                       const megatron::Split& split, int64_t iteration,
                       const OptimizerState* optimizer);

}  // namespace danlu::weights::native
