#include "ops/noise.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <type_traits>

#include "base/rng.h"
#include "device/dtype.h"
#include "device/parallel.h"
#include "device/sent.h"
#include "ops/check.h"
#include "ops/keyed_bits.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

/// Low bits of an element's 32 that are left out: f32 holds the other 24 exactly.
constexpr int kUnusedBits = 8;
constexpr double kStep = 1.0 / (1 << 23);

/// Rows that the operators of a device work on at a time: they hold several times 64 bits for each
/// element, which is to stay less than what the first layer's forward needs.
constexpr int64_t kNoiseRowsAtATime = 128;

template <typename T>
void fill_noise(double size, uint64_t row, int64_t columns, T* to) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto wide_size = static_cast<Wide>(size);
  const auto value = [&](uint64_t bits) {
    const Wide drawn = static_cast<Wide>(bits >> kUnusedBits) * static_cast<Wide>(kStep) - Wide{1};
    return static_cast<T>(drawn * wide_size);
  };
  for (int64_t i = 0; i < columns; i += 2) {
    const uint64_t bits = mix64(row, static_cast<uint64_t>(i) / 2);
    to[i] = value(bits & 0xffffffff);
    if (i + 1 < columns) to[i + 1] = value(bits >> 32);
  }
}

at::Tensor host_noise(const at::Tensor& sizes_N, const at::Tensor& keys_N, uint64_t salt,
                      int64_t columns, at::ScalarType type) {
  const at::Tensor noise_NH = at::empty({keys_N.size(0), columns}, type);
  const double* size = sizes_N.data_ptr<double>();
  const int64_t* key = keys_N.data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, type, "noise", [&] {
    scalar_t* const to = noise_NH.data_ptr<scalar_t>();
    device::parallel_for(0, keys_N.size(0), /*grain_size=*/16, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        fill_noise(size[n], mix64(static_cast<uint64_t>(key[n]), salt), columns, to + n * columns);
      }
    });
  });
  return noise_NH;
}

at::Tensor device_noise(const at::Tensor& sizes_N, const at::Tensor& keys_N, uint64_t salt,
                        const at::Tensor& like_NH) {
  const at::Tensor noise_NH = at::empty(like_NH.sizes(), like_NH.options());
  for (int64_t row = 0; row < keys_N.size(0); row += kNoiseRowsAtATime) {
    const int64_t count = std::min(kNoiseRowsAtATime, keys_N.size(0) - row);
    const auto part = [&](const at::Tensor& of_N) {
      return device::sent(of_N.narrow(0, row, count).contiguous(), like_NH.device());
    };
    noise_NH.narrow(0, row, count)
        .copy_(oracle::noise(part(sizes_N), part(keys_N), salt, like_NH.size(1),
                             like_NH.scalar_type()));
  }
  return noise_NH;
}

}  // namespace

at::Tensor with_noise(const at::Tensor& x_NH, const at::Tensor& sizes_N, const at::Tensor& keys_N,
                      uint64_t salt) {
  require(x_NH.dim() == 2 && keys_N.dim() == 1 && keys_N.size(0) == x_NH.size(0) &&
              keys_N.scalar_type() == at::kLong && sizes_N.sizes() == keys_N.sizes() &&
              sizes_N.scalar_type() == at::kDouble,
          "noise", "x ", x_NH.sizes(), " needs an int64 key and an f64 size for each row, got ",
          keys_N.sizes(), " and ", sizes_N.sizes());
  at::Tensor noise_NH;
  {
    const at::NoGradGuard constant;
    // A device that computes through its table alone has no operators to draw with.
    noise_NH = device_of_numbers(x_NH.device()).is_cpu()
                   ? device::sent(host_noise(sizes_N.contiguous(), keys_N.contiguous(), salt,
                                             x_NH.size(1), x_NH.scalar_type()),
                                  x_NH.device())
                   : device_noise(sizes_N, keys_N, salt, x_NH);
  }
  return ops::add(x_NH, noise_NH);
}

at::Tensor oracle::noise(const at::Tensor& sizes_N, const at::Tensor& keys_N, uint64_t salt,
                         int64_t columns, at::ScalarType type) {
  const at::ScalarType wide = device::wide_type(type);
  const at::Tensor drawn_NH =
      at::bitwise_right_shift(keyed_bits(keys_N, salt, 0, columns), int64_t{kUnusedBits}).to(wide) *
          kStep -
      1.0;
  return (drawn_NH * sizes_N.to(wide).unsqueeze(1)).to(type);
}

}  // namespace danlu::ops
