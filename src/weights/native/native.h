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

/// One file per rank that owns something; nothing is stored twice. `optimizer` may be null.
/// `globals`: in the dtypes to store. Errors: as megatron::check_split.
Target plan_checkpoint(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
                       const megatron::Split& split, int64_t iteration,
                       const OptimizerState* optimizer);

}  // namespace danlu::weights::native
