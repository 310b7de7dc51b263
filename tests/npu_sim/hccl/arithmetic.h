// Element types of HCCL and its reductions.
#pragma once

#include <string>
#include <vector>

#include "hccl_api.h"

namespace npu_sim::hccl {

/// Bytes of an element, 0 for unknown types.
size_t size_of(uint32_t dtype);
/// Whether the card reduces this type with this operation.
bool can_reduce(HcclDataType dtype, HcclReduceOp op);
/// All contributions in the order of ranks; each step is rounded to the type.
std::string reduced(const std::vector<const char*>& parts, uint64_t count, uint32_t dtype,
                    uint32_t op);

}  // namespace npu_sim::hccl
