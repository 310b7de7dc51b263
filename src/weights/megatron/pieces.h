// weights/megatron/pieces.h: the ways in which Megatron lays global matrices into a rank's
// matrices, as pieces. Formulas: docs/formats/megatron.md.
#pragma once
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "arch/model_config.h"
#include "weights/layout.h"

namespace danlu::weights::megatron {

/// Finds a model's global tensors by what they are.
class GlobalIndex {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  /// Errors: InternalError if a parameter of the model is not among `globals`.
  GlobalIndex(const arch::ModelConfig& config, const std::vector<TensorInfo>& globals);
  size_t find(arch::Role role, int64_t layer, int64_t expert, bool is_bias) const;
  size_t at(arch::Role role, int64_t layer, int64_t expert, bool is_bias) const;
  /// The tensor with that HF name; kNone if the model has no such parameter.
  size_t named(const std::string& name) const;

 private:
  std::unordered_map<std::string, size_t> by_name_;
  std::map<std::tuple<arch::Role, int64_t, int64_t, bool>, size_t> by_role_;
};

/// Rank `rank` of `count` equal parts.
struct RankCut {
  int64_t count = 1, rank = 0;
};

/// Indices of the query, key and value globals; a fused family has only `q`, its one matrix.
struct QkvGlobals {
  size_t q, k, v;
};

/// The rank's KV groups: per group its query rows, then its key, then its value rows.
/// `cols`: columns of the matrices (1 for biases).
Section qkv_rows(const arch::ModelConfig& config, const QkvGlobals& from, int64_t cols,
                 const RankCut& cut);
/// The rank's heads of a vision tower: of each its query, key and value rows.
Section tower_qkv_rows(const arch::VisionConfig& vision, size_t global, int64_t cols,
                       const RankCut& cut);
/// The rank's gate rows, then its up rows. `matrix`: of either.
Section two_halves(size_t gate, size_t up, const Rect& matrix, const RankCut& cut);
/// The same of a family that has both in one matrix.
Section joined_halves(size_t gate_up, const Rect& matrix, const RankCut& cut);
Section row_block(size_t global, const Rect& matrix, const RankCut& cut);
Section column_block(size_t global, const Rect& matrix, const RankCut& cut);
/// Rows [first, first + rows) of a matrix that is continued by copies of its last row.
Section padded_rows(size_t global, const Rect& matrix, int64_t first, int64_t rows);
/// GroupedMLP's weight1 as the matrix [experts·h, 2f/count]. `matrix`: of one gate, [f, h].
Section grouped_up(const std::vector<size_t>& gates, const std::vector<size_t>& ups,
                   const Rect& matrix, const RankCut& cut);
/// GroupedMLP's weight2 as the matrix [experts·f/count, h]. `matrix`: of one down, [h, f].
Section grouped_down(const std::vector<size_t>& downs, const Rect& matrix, const RankCut& cut);

}  // namespace danlu::weights::megatron
