#include "hccl/arithmetic.h"

#include <algorithm>
#include <cstring>

#include "core/config.h"
#include "core/numbers.h"

namespace npu_sim::hccl {
namespace {

template <typename T>
T combine(T a, T b, uint32_t op) {
  switch (op) {
    case HCCL_REDUCE_SUM:
      return static_cast<T>(a + b);
    case HCCL_REDUCE_PROD:
      return static_cast<T>(a * b);
    case HCCL_REDUCE_MAX:
      return std::max(a, b);
    default:
      return std::min(a, b);
  }
}

template <typename T>
void combine_all(char* into, const char* from, uint64_t count, uint32_t op) {
  for (uint64_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, into + i * sizeof(T), sizeof(T));
    std::memcpy(&b, from + i * sizeof(T), sizeof(T));
    a = combine(a, b, op);
    std::memcpy(into + i * sizeof(T), &a, sizeof(T));
  }
}

template <float (*Widen)(uint16_t), uint16_t (*Narrow)(float)>
void combine_short(char* into, const char* from, uint64_t count, uint32_t op) {
  for (uint64_t i = 0; i < count; ++i) {
    uint16_t a, b;
    std::memcpy(&a, into + i * 2, 2);
    std::memcpy(&b, from + i * 2, 2);
    a = Narrow(combine(Widen(a), Widen(b), op));
    std::memcpy(into + i * 2, &a, 2);
  }
}

void add_in(char* into, const char* from, uint64_t count, uint32_t dtype, uint32_t op) {
  switch (dtype) {
    case HCCL_DATA_TYPE_INT8:
      return combine_all<int8_t>(into, from, count, op);
    case HCCL_DATA_TYPE_INT16:
      return combine_all<int16_t>(into, from, count, op);
    case HCCL_DATA_TYPE_INT32:
      return combine_all<int32_t>(into, from, count, op);
    case HCCL_DATA_TYPE_INT64:
      return combine_all<int64_t>(into, from, count, op);
    case HCCL_DATA_TYPE_FP32:
      return combine_all<float>(into, from, count, op);
    case HCCL_DATA_TYPE_FP16:
      return combine_short<f16_to_float, float_to_f16>(into, from, count, op);
    case HCCL_DATA_TYPE_BFP16:
      return combine_short<bf16_to_float, float_to_bf16>(into, from, count, op);
    default:
      return;
  }
}

}  // namespace

size_t size_of(uint32_t dtype) {
  static const size_t kBytes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2, 16};
  return dtype < sizeof kBytes / sizeof *kBytes ? kBytes[dtype] : 0;
}

bool can_reduce(HcclDataType dtype, HcclReduceOp op) {
  switch (dtype) {
    case HCCL_DATA_TYPE_INT8:
    case HCCL_DATA_TYPE_INT32:
    case HCCL_DATA_TYPE_INT64:
    case HCCL_DATA_TYPE_FP16:
    case HCCL_DATA_TYPE_FP32:
      return true;
    case HCCL_DATA_TYPE_INT16:
    case HCCL_DATA_TYPE_BFP16:
      return op != HCCL_REDUCE_PROD && config().chip.family == Family::k910B;
    default:
      return false;
  }
}

std::string reduced(const std::vector<const char*>& parts, uint64_t count, uint32_t dtype,
                    uint32_t op) {
  std::string result(parts[0], count * size_of(dtype));
  for (size_t i = 1; i < parts.size(); ++i) add_in(result.data(), parts[i], count, dtype, op);
  return result;
}

}  // namespace npu_sim::hccl
