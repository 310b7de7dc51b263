// settings/sharing.h: how the ranks of a job share a training.
#pragma once
#include <cstdint>
#include <filesystem>

namespace danlu::settings {

/// Sizes of the axes. Ranks are numbered with the tensor axis innermost (neighbours on one
/// machine) and the pipeline outermost, as Megatron does:
/// rank = (pipeline · data_size + data) · tensor_size + tensor.
struct MeshShape {
  int64_t tensor = 1, data = 1, pipeline = 1;
  bool sequence_parallel = false;  ///< between regions, ranks of the tensor axis share the rows
  /// Neighbours on the data axis of whom each keeps its share of what Keeping says; other
  /// neighbours keep the same again (hybrid sharding). 0: all of the axis.
  int64_t sharers = 0;
  bool are_some_sharers() const { return sharers > 1 && sharers < data; }
  int64_t size() const { return tensor * data * pipeline; }
  /// Of a stage.
  int64_t stage_size() const { return tensor * data; }
  int64_t data_rank(int64_t rank) const { return rank / tensor % data; }
  int64_t stage(int64_t rank) const { return rank / stage_size(); }
};

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
