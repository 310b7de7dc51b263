// settings/recompute_layers.h: which layers of a stage are computed again in backward, as data.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "settings/model_setup.h"

namespace danlu::settings {

/// What of one layer is computed again; a layer takes one kind.
enum class LayerRecompute {
  kNone,
  kSelective,           ///< attention core and gated activation
  kActivationFunction,  ///< output of the gated activation
  kNorm,                ///< outputs of the norms
  kNormAndActivation,   ///< both of these
  kFull,                ///< all but the input of its group
};

inline bool makes_norms_again(LayerRecompute kind) {
  return kind == LayerRecompute::kNorm || kind == LayerRecompute::kNormAndActivation;
}
/// Alone, not with the product after it.
inline bool makes_activation_again(LayerRecompute kind) {
  return kind == LayerRecompute::kActivationFunction || kind == LayerRecompute::kNormAndActivation;
}

/// The word that --recompute takes.
std::string recompute_name(Recompute recompute);

/// Megatron's and MindSpeed's flags as given; an absent number means what its comment says.
struct RecomputeFlags {
  /// none, selective or full; auto until a plan has chosen.
  std::string granularity = "none";
  std::string method = {};                 ///< "", uniform or block; "": uniform
  std::optional<int64_t> num_layers = {};  ///< uniform: layers of a group (1); block: must be given
  bool activation_function = false, norm = false;
  /// Layers of the stage, from the first that full recomputation leaves; absent: all of those.
  std::optional<int64_t> activation_function_num_layers = {}, norm_num_layers = {};
  bool operator==(const RecomputeFlags&) const = default;
};

/// For people: "none", "full", "full block 2, norm 3".
std::string recompute_text(const RecomputeFlags& flags);

/// Layers [first, end) of a stage, counted from the stage's first. Where `kind` is kFull they are
/// run again together and only the input of the first is kept; else first + 1 == end.
struct RecomputeGroup {
  int64_t first = 0, end = 0;
  LayerRecompute kind = LayerRecompute::kNone;
  bool operator==(const RecomputeGroup&) const = default;
};

/// The groups of a stage of `num_layers` >= 0 layers: in order, without gaps. More layers asked for
/// than the stage has: all of them. Errors  UsageError for flags that do not go together.
std::vector<RecomputeGroup> recompute_groups(const RecomputeFlags& flags, int64_t num_layers);

}  // namespace danlu::settings
