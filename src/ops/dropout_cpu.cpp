#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <type_traits>

#include "base/rng.h"
#include "device/parallel.h"
#include "ops/dropout_threshold.h"
#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {
namespace {

struct Columns {
  int64_t first, count;  ///< of the whole row
};

/// One hash gives the bits of two neighbours.
template <typename T>
void drop_row(const T* x, T* y, const Columns& columns, uint64_t row, uint64_t threshold,
              double p) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Wide factor = static_cast<Wide>(1.0 / (1.0 - p));
  const auto value = [&](int64_t i, uint64_t draw) {
    return draw >= threshold ? static_cast<T>(static_cast<Wide>(x[i]) * factor) : T(0);
  };
  const int64_t odd = columns.first % 2;  // the first pair's other half is another rank's
  for (int64_t i = -odd; i < columns.count; i += 2) {
    const uint64_t bits = mix64(row, static_cast<uint64_t>(columns.first + i) / 2);
    if (i >= 0) y[i] = value(i, bits & 0xffffffff);
    if (i + 1 < columns.count) y[i + 1] = value(i + 1, bits >> 32);
  }
}

}  // namespace

at::Tensor dropout(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                   int64_t first_column) {
  const at::Tensor x = x_NI.contiguous(), keys = keys_N.contiguous();
  const at::Tensor y = at::empty(x.sizes(), x.options());
  const int64_t width = x.size(1);
  const uint64_t threshold = dropout_threshold(p);
  const int64_t* key = keys.data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "dropout", [&] {
    const scalar_t* from = x.data_ptr<scalar_t>();
    scalar_t* to = y.data_ptr<scalar_t>();
    device::parallel_for(0, x.size(0), /*grain_size=*/16, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const uint64_t row = mix64(static_cast<uint64_t>(key[n]), salt);
        drop_row(from + n * width, to + n * width, {first_column, width}, row, threshold, p);
      }
    });
  });
  return y;
}

}  // namespace danlu::ops::cpu
