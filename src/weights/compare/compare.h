// weights/compare/compare.h: where two checkpoints differ, tensor by tensor.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weights/tensor_bands.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// How the numbers of two tensors of one shape differ.
struct ValueDifference {
  /// Elements whose bits differ; where the dtypes differ, whose values do (NaN is equal to NaN
  /// then).
  int64_t differing = 0;
  int64_t first = -1;  ///< flat index of the first such element
  int64_t worst = -1;  ///< of a NaN on one side only, else of the largest |a - b|
  int64_t one_sided_nans = 0;
  double max_abs = 0;  ///< largest |a - b| where neither is NaN; may be infinite
  double max_rel = 0;  ///< largest |a - b| / max(|a|, |b|), of the same elements
};

enum class TensorVerdict {
  kIdentical,   ///< same dtype, same bits, stored alike
  kSameValues,  ///< other dtype or stored type, equal values
  kValuesDiffer,
  kShapeDiffers,  ///< values were not compared
  kOnlyInA,
  kOnlyInB,
};

struct TensorComparison {
  std::string name;
  TensorVerdict verdict = TensorVerdict::kIdentical;
  std::optional<TensorInfo> a, b;
  std::string stored_a = {}, stored_b = {};  ///< Storage::type
  ValueDifference values = {};

  /// Same name and shape, no NaN on one side only, and no |a - b| above `tolerance`.
  bool within(double tolerance) const;
};

struct Comparison {
  std::vector<TensorComparison> tensors;  ///< by name
  bool identical() const;
  bool within(double tolerance) const;
  size_t count(TensorVerdict verdict) const;
};

struct CompareOptions {
  size_t num_threads = 0;  ///< 0: streaming_threads()
  BytesProgress progress = {};
};

/// What CompareOptions::progress counts up to.
uint64_t bytes_to_compare(const TensorSource& a, const TensorSource& b);

/// Streams both in bands; memory does not grow with the tensors. Integers are compared exactly.
/// Errors: what reading throws.
Comparison compare_sources(const TensorSource& a, const TensorSource& b,
                           const CompareOptions& options = {});

/// The tensors that are not identical, worst first: present on one side only, of different shapes,
/// then by NaNs on one side, largest difference, number of differing elements; names decide ties.
std::vector<const TensorComparison*> worst_first(const Comparison& comparison);

}  // namespace danlu::weights
