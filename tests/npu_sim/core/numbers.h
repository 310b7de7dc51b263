// Number formats of the card, and reading and writing views of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "acl_api.h"

namespace npu_sim {

/// A strided view: dimensions, strides and offset in elements.
struct View {
  std::vector<int64_t> dims, strides;
  int64_t offset = 0;
  aclDataType dtype = ACL_DT_UNDEFINED;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t numel() const;
  /// Elements from the offset to behind the last; 0 for an empty view.
  int64_t extent() const;
  bool contiguous() const;
};

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& dims);
/// `v` seen as `dims`, with strides of 0 where it is repeated. False if it does not fit.
bool broadcast_to(const View& v, const std::vector<int64_t>& dims, View* out);
/// The common shape of two; false if there is none.
bool common_shape(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
                  std::vector<int64_t>* out);

/// Bytes of an element; 0 for types that have none.
size_t size_of(aclDataType dtype);
bool is_floating(aclDataType dtype);
bool is_integer(aclDataType dtype);  // bool counts as one
const char* name_of(aclDataType dtype);

float bf16_to_float(uint16_t bits);
uint16_t float_to_bf16(float value);  // to nearest, ties to even
float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);  // to nearest, ties to even; too large becomes Inf
/// What a chip without Inf and NaN stores, and whether that changed the value.
double saturated(double value, aclDataType dtype, bool* overflow);

/// A view with the bytes behind its base.
struct Live {
  View view;
  char* base = nullptr;
};

/// Elements in the order of the view's dimensions. T: float, double or int64_t.
template <typename T>
std::vector<T> read(const Live& t);
/// Writes them there, rounded to the view's type. Chips without Inf saturate, which `write` notes
/// for the card.
template <typename T>
void write(const Live& t, const std::vector<T>& values);
/// One element, `at` elements behind the view's base.
template <typename T>
T load(const Live& t, int64_t at);
template <typename T>
void store(const Live& t, int64_t at, T value);

/// Calls with the place (in elements from the base) of each element in order.
template <typename F>
void each_place(const View& v, F&& use) {
  const int64_t n = v.numel();
  if (n == 0) return;
  const int64_t rank = v.rank();
  std::vector<int64_t> at(static_cast<size_t>(rank), 0);
  int64_t place = v.offset;
  for (int64_t i = 0; i < n; ++i) {
    use(place);
    for (int64_t d = rank - 1; d >= 0; --d) {
      const auto k = static_cast<size_t>(d);
      place += v.strides[k];
      if (++at[k] < v.dims[k]) break;
      place -= v.strides[k] * v.dims[k];
      at[k] = 0;
    }
  }
}

/// Whether values overflowed since the last reset (the hardware's flag).
bool overflow_flag(bool reset);

}  // namespace npu_sim
