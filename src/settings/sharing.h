// settings/sharing.h: what of a training the ranks that hold one model divide among them.
#pragma once
#include <filesystem>

namespace danlu::settings {

/// What each rank of the data axis, or of its part that shares, keeps its share of only: stages 0
/// to 3 of ZeRO (arXiv:1910.02054). Each includes those before it.
enum class Sharding { kNone, kState, kGradients, kParameters };

/// How training keeps what it keeps.
struct Keeping {
  Sharding sharding = Sharding::kNone;
  /// Where files hold parameters, and the optimizer's state, instead of memory; empty: memory.
  /// Parameters on a CPU only.
  std::filesystem::path parameters_in = {}, state_in = {};
};

}  // namespace danlu::settings
