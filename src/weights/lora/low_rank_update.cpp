#include "weights/lora/low_rank_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/finite.h"

// Auto-vectorised in the widths there are. No clone has fused multiply-add: the merged weights then
// have the same bits on every machine.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DANLU_WEIGHTS_CLONES __attribute__((target_clones("avx2", "default"), optimize("O3")))
#elif defined(__GNUC__) && !defined(__clang__)
#define DANLU_WEIGHTS_CLONES __attribute__((optimize("O3", "fp-contract=off")))
#else
#define DANLU_WEIGHTS_CLONES
#endif

namespace danlu::weights {
namespace {

constexpr int64_t kTileColumns = 256;        // with the rows of A beside it, half of an L1 cache
constexpr size_t kSumBandBytes = 2'000'000;  // of the sums in a band of rows

template <typename Real>
struct Product {
  const Real* left;   ///< [rows, rank]
  const Real* right;  ///< [rank, cols]
  int64_t rows, rank, cols;
  Real scale;
};

/// sums[row][0..width) += scale · left[row] · right[.., 0..width).
template <typename Real>
inline __attribute__((always_inline)) void add_tile(const Product<Real>& p, int64_t row,
                                                    int64_t first, int64_t width,
                                                    Real* __restrict sums) {
  Real tile[kTileColumns] = {};
  const Real* l = p.left + row * p.rank;
  int64_t k = 0;
  // Four terms at a time, each added by itself: the order of one at a time.
  for (; k + 4 <= p.rank; k += 4) {
    const Real* __restrict r0 = p.right + k * p.cols + first;
    const Real* __restrict r1 = r0 + p.cols;
    const Real* __restrict r2 = r1 + p.cols;
    const Real* __restrict r3 = r2 + p.cols;
    const Real l0 = l[k], l1 = l[k + 1], l2 = l[k + 2], l3 = l[k + 3];
    for (int64_t c = 0; c < width; ++c)
      tile[c] = (((tile[c] + l0 * r0[c]) + l1 * r1[c]) + l2 * r2[c]) + l3 * r3[c];
  }
  for (; k < p.rank; ++k) {
    const Real* __restrict r = p.right + k * p.cols + first;
    for (int64_t c = 0; c < width; ++c) tile[c] += l[k] * r[c];
  }
  Real* __restrict out = sums + row * p.cols + first;
  for (int64_t c = 0; c < width; ++c) out[c] += p.scale * tile[c];
}

template <typename Real>
inline __attribute__((always_inline)) void add_all_tiles(const Product<Real>& p, Real* sums) {
  for (int64_t first = 0; first < p.cols; first += kTileColumns) {
    const int64_t width = std::min(kTileColumns, p.cols - first);
    for (int64_t row = 0; row < p.rows; ++row) add_tile(p, row, first, width, sums);
  }
}

DANLU_WEIGHTS_CLONES
void add_product(const Product<float>& p, float* sums) { add_all_tiles(p, sums); }
DANLU_WEIGHTS_CLONES
void add_product(const Product<double>& p, double* sums) { add_all_tiles(p, sums); }

template <typename Real>
constexpr DType kDTypeOf = sizeof(Real) == 4 ? DType::kF32 : DType::kF64;

/// A rectangle of a tensor as numbers, row by row.
template <typename Real>
std::vector<Real> read_numbers(const TensorSource& source, const std::string& name,
                               const Rect& rect) {
  const DType dtype = source.find(name)->dtype;
  std::vector<Real> numbers(static_cast<size_t>(rect.rows * rect.cols));
  if (dtype == kDTypeOf<Real>) {
    source.read_rect(name, rect, reinterpret_cast<std::byte*>(numbers.data()), rect.cols);
    return numbers;
  }
  std::vector<std::byte> bytes(numbers.size() * dtype_size_bytes(dtype));
  source.read_rect(name, rect, bytes.data(), rect.cols);
  cast_elements(bytes.data(), dtype, numbers.data(), kDTypeOf<Real>, numbers.size());
  return numbers;
}

template <typename Real>
std::vector<Real> transposed(const std::vector<Real>& matrix, int64_t rows, int64_t cols) {
  std::vector<Real> turned(matrix.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c)
      turned[static_cast<size_t>(c * rows + r)] = matrix[static_cast<size_t>(r * cols + c)];
  }
  return turned;
}

/// ‖row‖ in f64; four sums, so that additions need not wait for each other.
template <typename Real>
double length_of(const Real* row, int64_t count) {
  double sums[4] = {};
  for (int64_t i = 0; i < count; ++i) {
    const double value = row[i];
    sums[i % 4] += value * value;
  }
  return std::sqrt((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

int64_t rows_in_band(int64_t cols, size_t item) {
  const size_t row_bytes = std::max<size_t>(1, static_cast<size_t>(cols) * item);
  return static_cast<int64_t>(std::max<size_t>(1, kSumBandBytes / row_bytes));
}

}  // namespace

LowRankUpdate::LowRankUpdate(std::shared_ptr<const TensorSource> base,
                             std::shared_ptr<const TensorSource> adapter, LowRankParts parts,
                             DType result)
    : base_(std::move(base)),
      adapter_(std::move(adapter)),
      parts_(std::move(parts)),
      result_(result) {
  const TensorInfo& weight = *base_->find(parts_.weight);
  is_f64_ = weight.dtype == DType::kF64;
  matrix_ = matrix_of(weight.shape);
  rank_ = adapter_->find(parts_.a)->shape.front();
}

template <typename Real>
std::vector<Real> LowRankUpdate::sum_of(const Rect& rect) const {
  std::vector<Real> sums = read_numbers<Real>(*base_, parts_.weight, rect);
  std::vector<Real> left, right;
  if (parts_.transposed) {
    left = transposed(read_numbers<Real>(*adapter_, parts_.a, {0, rank_, rect.row, rect.rows}),
                      rank_, rect.rows);
    right = transposed(read_numbers<Real>(*adapter_, parts_.b, {rect.col, rect.cols, 0, rank_}),
                       rect.cols, rank_);
  } else {
    left = read_numbers<Real>(*adapter_, parts_.b, {rect.row, rect.rows, 0, rank_});
    right = read_numbers<Real>(*adapter_, parts_.a, {0, rank_, rect.col, rect.cols});
  }
  add_product(Product<Real>{left.data(), right.data(), rect.rows, rank_, rect.cols,
                            static_cast<Real>(parts_.scale)},
              sums.data());
  return sums;
}

/// m / ‖S‖ of the rectangle's rows. Lengths are of whole rows, whatever part of them is read.
template <typename Real>
std::vector<Real> LowRankUpdate::row_factors(const Rect& rect,
                                             const std::vector<Real>& sums) const {
  const auto factors_of = [&](const Rect& band, const std::vector<Real>& whole_rows) {
    const std::vector<double> m =
        read_numbers<double>(*adapter_, parts_.magnitude, {band.row, band.rows, 0, 1});
    std::vector<double> factors;
    for (int64_t r = 0; r < band.rows; ++r) {
      const double length = length_of(whole_rows.data() + r * matrix_.cols, matrix_.cols);
      factors.push_back(length == 0 ? 1 : m[static_cast<size_t>(r)] / length);
    }
    return factors;
  };
  std::vector<double> factors;
  if (rect.cols == matrix_.cols) {
    factors = factors_of(rect, sums);
  } else {
    std::call_once(factors_once_, [&] {
      std::vector<double> all;
      const int64_t step = rows_in_band(matrix_.cols, sizeof(Real));
      for (int64_t row = 0; row < matrix_.rows; row += step) {
        const Rect band{row, std::min(step, matrix_.rows - row), 0, matrix_.cols};
        const std::vector<double> part = factors_of(band, sum_of<Real>(band));
        all.insert(all.end(), part.begin(), part.end());
      }
      factors_ = std::move(all);
    });
    factors.assign(factors_.begin() + rect.row, factors_.begin() + rect.row + rect.rows);
  }
  return {factors.begin(), factors.end()};
}

template <typename Real>
void LowRankUpdate::read_bands(const Rect& rect, std::byte* out, int64_t out_stride) const {
  const size_t item = dtype_size_bytes(result_);
  const int64_t step = rows_in_band(rect.cols, sizeof(Real));
  for (int64_t done = 0; done < rect.rows; done += step) {
    const Rect band{rect.row + done, std::min(step, rect.rows - done), rect.col, rect.cols};
    std::vector<Real> sums = sum_of<Real>(band);
    if (!parts_.magnitude.empty()) {
      const std::vector<Real> factors = row_factors(band, sums);
      for (int64_t r = 0; r < band.rows; ++r) {
        Real* row = sums.data() + r * band.cols;
        for (int64_t c = 0; c < band.cols; ++c) row[c] *= factors[static_cast<size_t>(r)];
      }
    }
    for (int64_t r = 0; r < band.rows; ++r) {
      const Real* row = sums.data() + r * band.cols;
      std::byte* merged = out + static_cast<size_t>((done + r) * out_stride) * item;
      const auto count = static_cast<size_t>(band.cols);
      cast_elements(row, kDTypeOf<Real>, merged, result_, count);
      if (const size_t bad = first_non_finite(merged, result_, count); bad < count)
        refuse(row[bad]);
    }
  }
}

void LowRankUpdate::refuse(double value) const {
  throw ModelError(
      tr("{}: {} with {} merged into it holds {:g}, which {} cannot (the adapter's scale "
         "is {:g})",
         adapter_->file_of(parts_.a).string(), parts_.weight, parts_.a, value, dtype_name(result_),
         parts_.scale),
      tr("adapter or model are damaged or come from a diverged run"));
}

void LowRankUpdate::read_rect(const Rect& rect, std::byte* out, int64_t out_stride) const {
  if (rect.rows == 0 || rect.cols == 0) return;
  if (is_f64_) return read_bands<double>(rect, out, out_stride);
  read_bands<float>(rect, out, out_stride);
}

}  // namespace danlu::weights
