// What several operators share.
#pragma once

#include <initializer_list>

#include "aclnn_ops.h"
#include "nn/plan.h"

namespace npu_sim {

inline constexpr std::initializer_list<aclDataType> kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
inline constexpr std::initializer_list<aclDataType> kNumbers = {
    ACL_FLOAT, ACL_FLOAT16, ACL_BF16,  ACL_DOUBLE, ACL_INT8,
    ACL_UINT8, ACL_INT16,   ACL_INT32, ACL_INT64,  ACL_BOOL};
inline constexpr std::initializer_list<aclDataType> kIds = {ACL_INT32, ACL_INT64};

/// The bytes of an argument, repeated to `dims`.
Live seen_as(const Run& run, const Tensor& t, const std::vector<int64_t>& dims);
/// The bytes of an argument.
inline Live bytes(const Run& run, const Tensor& t) { return run.at(t.slot); }

/// dims = [outer..., middle, inner...] around an axis.
struct Around {
  int64_t outer = 1, middle = 1, inner = 1;
};
Around around(const std::vector<int64_t>& dims, int64_t axis);

/// Ids of a tensor, each in 0 … limit−1; otherwise the task fails as a vector core does (507035).
std::vector<int64_t> ids_below(const Live& t, int64_t limit, const char* name);

inline size_t at(int64_t i) { return static_cast<size_t>(i); }

}  // namespace npu_sim
