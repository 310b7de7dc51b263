// settings/sharing.h: how the ranks of a job share a training.
#pragma once
#include <cstdint>
#include <filesystem>

#include "settings/context_cut.h"

namespace danlu::settings {

/// Sizes of the axes. Ranks are numbered with the tensor axis innermost (neighbours on one
/// machine) and the pipeline outermost, as Megatron does:
/// rank = ((pipeline · data_size + data) · context_size + context) · tensor_size + tensor.
struct MeshShape {
  int64_t tensor = 1, data = 1, pipeline = 1;
  ContextShape context = {};
  bool sequence_parallel = false;  ///< between regions, ranks of the tensor axis share the rows
  /// Neighbours among the copies of whom each keeps its share of what Keeping says; other
  /// neighbours keep the same again (hybrid sharding). 0: all copies.
  int64_t sharers = 0;
  /// Stages hold several runs of layers each (arch::Stage): the last one gives to the first.
  bool ring = false;
  /// Ranks that hold the same parameters: those of the data and the context axis.
  int64_t copies() const { return data * context.size(); }
  bool are_some_sharers() const { return sharers > 1 && sharers < copies(); }
  int64_t size() const { return tensor * copies() * pipeline; }
  /// Ranks that compute one micro-batch between them.
  int64_t per_batch() const { return tensor * context.size() * pipeline; }
  /// Of a stage.
  int64_t stage_size() const { return tensor * copies(); }
  /// Of whom the batches are.
  int64_t data_rank(int64_t rank) const { return rank / tensor / context.size() % data; }
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
