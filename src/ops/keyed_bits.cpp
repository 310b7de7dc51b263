#include "ops/keyed_bits.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/stack.h>

namespace danlu::ops {
namespace {

at::Tensor shifted_right(const at::Tensor& bits, int64_t count) {
  return at::bitwise_and(at::bitwise_right_shift(bits, count),
                         static_cast<int64_t>(~uint64_t{0} >> count));
}

/// base/rng.h's mix64, element by element; int64 arithmetic wraps as uint64's does.
at::Tensor mix(const at::Tensor& seeds, const at::Tensor& indices) {
  const auto wrapped = [](uint64_t bits) { return static_cast<int64_t>(bits); };
  at::Tensor z = seeds + (indices + 1) * wrapped(0x9e3779b97f4a7c15ull);
  z = at::bitwise_xor(z, shifted_right(z, 30)) * wrapped(0xbf58476d1ce4e5b9ull);
  z = at::bitwise_xor(z, shifted_right(z, 27)) * wrapped(0x94d049bb133111ebull);
  return at::bitwise_xor(z, shifted_right(z, 31));
}

}  // namespace

at::Tensor keyed_bits(const at::Tensor& keys_N, uint64_t salt, int64_t first_column,
                      int64_t columns) {
  const at::Tensor salts = at::arange(1, keys_N.options()).fill_(static_cast<int64_t>(salt));
  const at::Tensor rows_N1 = mix(keys_N, salts).unsqueeze(1);
  const int64_t end = first_column + columns;
  const at::Tensor pairs = at::arange(first_column / 2, (end + 1) / 2, keys_N.options());
  const at::Tensor bits_NP = mix(rows_N1, pairs.unsqueeze(0));
  const at::Tensor draws_NP2 = at::stack(
      {at::bitwise_and(bits_NP, int64_t{0xffffffff}), shifted_right(bits_NP, 32)}, /*dim=*/2);
  return draws_NP2.flatten(1).narrow(1, first_column % 2, columns);
}

}  // namespace danlu::ops
