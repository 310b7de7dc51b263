// settings/activation_offload.h: which activations are elsewhere between their passes, as data.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace danlu::settings {

enum class OffloadTo { kNone, kHost, kFile };

/// What layers keep for backward leaves the device when their forward is over, and comes back one
/// layer ahead of their backward.
struct ActivationOffload {
  OffloadTo to = OffloadTo::kNone;
  std::filesystem::path directory = {};    ///< of kFile
  std::optional<int64_t> num_layers = {};  ///< of each virtual stage, from its first; absent: all
  /// Parts of a layer, as MindSpeed names them. Of layers that are run again whole only the input
  /// is kept, which is input_norm's.
  bool input_norm = true, self_attention = true, post_attention_norm = true, mlp = true;
  bool operator==(const ActivationOffload&) const = default;

  /// first: of a layer, or of a group that is run again together, in its run of layers.
  bool takes(int64_t first) const {
    return to != OffloadTo::kNone && (!num_layers || first < *num_layers);
  }
};

}  // namespace danlu::settings
