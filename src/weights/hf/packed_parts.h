// weights/hf/packed_parts.h: which tensors of a file make a packed matrix, and their checks
// (weights/hf/packed_weights.h).
#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "weights/tensor_source.h"

namespace danlu::weights {

enum class Packing { kGptq, kAwq, kPacked, kScaled };

/// What configuration files say of all packed matrices.
struct PackedConfig {
  std::string method;  ///< "gptq", "awq", "compressed-tensors"; "": nothing is said
  int64_t bits = 4;
  int64_t group = -1;          ///< columns of a group; -1: one group
  bool zeros_less_one = true;  ///< of GPTQ
  std::vector<int64_t> block;  ///< rows and columns of a block, of compressed-tensors; or empty
};

/// Errors: ModelError for versions of AWQ other than GEMM.
PackedConfig packed_config_in(const std::filesystem::path& directory);

/// A matrix and the names of its parts; "" where there is none.
struct PackedMatrix {
  Packing packing = Packing::kGptq;
  int64_t bits = 4, rows = 0, cols = 0, groups = 1;
  int64_t row_block = 1;  ///< rows that share scales
  int64_t col_block = 0;  ///< columns that share one, where `groups_of` names nothing
  bool zeros_less_one = false;
  DType dtype = DType::kF16;  ///< of the scales, and so of the numbers
  std::string codes, scales, zeros, groups_of;
  std::vector<std::string> parts;  ///< all of the tensors, to be hidden
  std::string storage_name() const;
};

/// The packed matrices of `source` by the names that they are given. Errors: as
/// with_packed_weights.
std::map<std::string, PackedMatrix> packed_matrices(const TensorSource& source,
                                                    const std::filesystem::path& directory);

}  // namespace danlu::weights
