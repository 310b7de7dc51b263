#include "weights/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

#include "base/threads.h"

namespace danlu::weights {
namespace {

/// Numbers converted at a time: small enough to stay in a first-level cache.
constexpr int64_t kBlock = 1024;

template <typename Stored>
void widen_as(const std::byte* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
    to[i] = static_cast<double>(value);
  }
}

/// REQUIRES: count <= kBlock.
void widen_half(const std::byte* from, DType dtype, int64_t count, double* to) {
  float narrow[kBlock];
  cast_elements(from, dtype, narrow, DType::kF32, static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) to[i] = narrow[i];
}

void widen(const std::byte* from, DType dtype, int64_t count, double* to) {
  switch (dtype) {
    case DType::kF32:
      return widen_as<float>(from, count, to);
    case DType::kF64:
      return widen_as<double>(from, count, to);
    case DType::kF16:
    case DType::kBF16:
      return widen_half(from, dtype, count, to);
    case DType::kI8:
      return widen_as<int8_t>(from, count, to);
    case DType::kU8:
    case DType::kBool:
      return widen_as<uint8_t>(from, count, to);
    case DType::kI16:
      return widen_as<int16_t>(from, count, to);
    case DType::kU16:
      return widen_as<uint16_t>(from, count, to);
    case DType::kI32:
      return widen_as<int32_t>(from, count, to);
    case DType::kU32:
      return widen_as<uint32_t>(from, count, to);
    case DType::kI64:
      return widen_as<int64_t>(from, count, to);
    case DType::kU64:
      return widen_as<uint64_t>(from, count, to);
  }
}

/// |a - b| of 64-bit integers, which f64 does not hold exactly.
template <typename Integer>
double distance(const std::byte* a, const std::byte* b) {
  Integer x, y;
  std::memcpy(&x, a, sizeof x);
  std::memcpy(&y, b, sizeof y);
  const auto large = static_cast<uint64_t>(std::max(x, y));
  return static_cast<double>(large - static_cast<uint64_t>(std::min(x, y)));
}

/// Adds elements to a ValueDifference; `index` counts from the tensor's first element.
class Tally {
 public:
  ValueDifference result;

  void add(int64_t index, double a, double b, double abs) {
    if (result.differing++ == 0) result.first = index;
    if (std::isnan(a) && std::isnan(b)) {
      if (result.worst < 0) result.worst = index;
      return;
    }
    if (std::isnan(a) || std::isnan(b)) {
      if (result.one_sided_nans++ == 0) result.worst = index;
      return;
    }
    if (abs > result.max_abs || result.worst < 0) {
      result.max_abs = std::max(result.max_abs, abs);
      if (result.one_sided_nans == 0) result.worst = index;
    }
    const double size = std::max(std::abs(a), std::abs(b));
    if (std::isinf(abs)) {
      result.max_rel = abs;
    } else if (abs > result.max_rel * size) {  // a division is rarely needed
      result.max_rel = std::max(result.max_rel, abs / size);
    }
  }
};

struct Side {
  const std::byte* bytes;
  DType dtype;
};

void compare_block(const Side& a, const Side& b, int64_t first, int64_t count, Tally& tally) {
  const bool same_dtype = a.dtype == b.dtype;
  const bool wide_integers = same_dtype && (a.dtype == DType::kI64 || a.dtype == DType::kU64);
  const size_t item = dtype_size_bytes(a.dtype), item_b = dtype_size_bytes(b.dtype);
  if (same_dtype && std::memcmp(a.bytes, b.bytes, static_cast<size_t>(count) * item) == 0) return;
  double x[kBlock], y[kBlock];
  widen(a.bytes, a.dtype, count, x);
  widen(b.bytes, b.dtype, count, y);
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* at_a = a.bytes + static_cast<size_t>(i) * item;
    const std::byte* at_b = b.bytes + static_cast<size_t>(i) * item_b;
    const bool same_value = x[i] == y[i], nans = std::isnan(x[i]) || std::isnan(y[i]);
    if (!same_dtype && (same_value || (std::isnan(x[i]) && std::isnan(y[i])))) continue;
    // Zeros have signs, NaNs payloads, and f64 not all 64 bits: there the bits decide.
    const bool values_decide = same_value ? x[i] != 0 && !wide_integers : !nans;
    if (same_dtype && (values_decide ? same_value : std::memcmp(at_a, at_b, item) == 0)) continue;
    double abs = x[i] == y[i] ? 0 : std::abs(x[i] - y[i]);  // not inf - inf
    if (wide_integers) {
      abs = a.dtype == DType::kI64 ? distance<int64_t>(at_a, at_b) : distance<uint64_t>(at_a, at_b);
    }
    tally.add(first + i, x[i], y[i], abs);
  }
}

/// Whether `a`'s worst element is worse than `b`'s.
bool is_worse(const ValueDifference& a, const ValueDifference& b) {
  if (b.worst < 0 || a.worst < 0) return b.worst < 0 && a.worst >= 0;
  const bool a_nan = a.one_sided_nans > 0, b_nan = b.one_sided_nans > 0;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a.max_abs != b.max_abs) return a.max_abs > b.max_abs;
  return a.worst < b.worst;
}

void merge_into(ValueDifference& all, const ValueDifference& part) {
  if (part.differing == 0) return;
  if (is_worse(part, all)) all.worst = part.worst;
  if (all.first < 0 || part.first < all.first) all.first = part.first;
  all.differing += part.differing;
  all.one_sided_nans += part.one_sided_nans;
  all.max_abs = std::max(all.max_abs, part.max_abs);
  all.max_rel = std::max(all.max_rel, part.max_rel);
}

bool comparable(const TensorComparison& tensor) {
  return tensor.a && tensor.b && tensor.a->shape == tensor.b->shape;
}

std::vector<TensorComparison> pair_up(const TensorSource& a, const TensorSource& b) {
  std::map<std::string, TensorComparison> all;
  for (const TensorInfo& info : a.tensors()) {
    all[info.name].a = info;
    all[info.name].stored_a = a.storage(info.name).type;
  }
  for (const TensorInfo& info : b.tensors()) {
    all[info.name].b = info;
    all[info.name].stored_b = b.storage(info.name).type;
  }
  std::vector<TensorComparison> tensors;
  for (auto& [name, tensor] : all) {
    tensor.name = name;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

TensorVerdict verdict_of(const TensorComparison& tensor) {
  if (!tensor.b) return TensorVerdict::kOnlyInA;
  if (!tensor.a) return TensorVerdict::kOnlyInB;
  if (tensor.a->shape != tensor.b->shape) return TensorVerdict::kShapeDiffers;
  if (tensor.values.differing > 0) return TensorVerdict::kValuesDiffer;
  const bool alike = tensor.a->dtype == tensor.b->dtype && tensor.stored_a == tensor.stored_b;
  return alike ? TensorVerdict::kIdentical : TensorVerdict::kSameValues;
}

/// A run of elements that one thread compares: the same count on both sides.
struct Job {
  size_t tensor;
  Band band;
};

ValueDifference compare_band(const TensorSource& a, const TensorSource& b,
                             const TensorComparison& tensor, const Band& band) {
  thread_local std::vector<std::byte> buffer_a, buffer_b;
  const auto bytes_a = band_bytes(a, *tensor.a, band, buffer_a);
  const auto bytes_b = band_bytes(b, *tensor.b, band, buffer_b);
  const size_t item_a = dtype_size_bytes(tensor.a->dtype);
  const size_t item_b = dtype_size_bytes(tensor.b->dtype);
  Tally tally;
  for (int64_t at = band.begin; at < band.end; at += kBlock) {
    const auto offset = static_cast<size_t>(at - band.begin);
    compare_block({bytes_a.data() + offset * item_a, tensor.a->dtype},
                  {bytes_b.data() + offset * item_b, tensor.b->dtype}, at,
                  std::min(kBlock, band.end - at), tally);
  }
  return tally.result;
}

}  // namespace

bool TensorComparison::within(double tolerance) const {
  if (verdict == TensorVerdict::kIdentical || verdict == TensorVerdict::kSameValues) return true;
  return verdict == TensorVerdict::kValuesDiffer && values.one_sided_nans == 0 &&
         values.max_abs <= tolerance;
}

bool Comparison::identical() const { return count(TensorVerdict::kIdentical) == tensors.size(); }

bool Comparison::within(double tolerance) const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const TensorComparison& t) { return t.within(tolerance); });
}

size_t Comparison::count(TensorVerdict verdict) const {
  return static_cast<size_t>(
      std::count_if(tensors.begin(), tensors.end(),
                    [&](const TensorComparison& t) { return t.verdict == verdict; }));
}

uint64_t bytes_to_compare(const TensorSource& a, const TensorSource& b) {
  uint64_t bytes = 0;
  for (const TensorComparison& tensor : pair_up(a, b)) {
    if (comparable(tensor)) bytes += tensor.a->size_bytes() + tensor.b->size_bytes();
  }
  return bytes;
}

Comparison compare_sources(const TensorSource& a, const TensorSource& b,
                           const CompareOptions& options) {
  Comparison comparison{pair_up(a, b)};
  std::vector<Job> jobs;
  for (size_t i = 0; i < comparison.tensors.size(); ++i) {
    const TensorComparison& tensor = comparison.tensors[i];
    if (!comparable(tensor)) continue;
    const bool a_is_wider = dtype_size_bytes(tensor.a->dtype) > dtype_size_bytes(tensor.b->dtype);
    for (const Band& band : bands_of(a_is_wider ? *tensor.a : *tensor.b)) jobs.push_back({i, band});
  }
  ReadMeter meter({&a, &b}, options.progress);
  std::mutex mutex;
  parallel_for(jobs.size(), streaming_threads(options.num_threads), [&](size_t index) {
    const Job& job = jobs[index];
    TensorComparison& tensor = comparison.tensors[job.tensor];
    const ValueDifference part = compare_band(a, b, tensor, job.band);
    {
      const std::lock_guard<std::mutex> lock(mutex);
      merge_into(tensor.values, part);
    }
    meter.add(static_cast<uint64_t>(job.band.end - job.band.begin) *
              (dtype_size_bytes(tensor.a->dtype) + dtype_size_bytes(tensor.b->dtype)));
  });
  for (TensorComparison& tensor : comparison.tensors) tensor.verdict = verdict_of(tensor);
  return comparison;
}

std::vector<const TensorComparison*> worst_first(const Comparison& comparison) {
  std::vector<const TensorComparison*> tensors;
  for (const TensorComparison& tensor : comparison.tensors) {
    if (tensor.verdict != TensorVerdict::kIdentical) tensors.push_back(&tensor);
  }
  const auto order = [](const TensorComparison* t) {
    const bool one_sided =
        t->verdict == TensorVerdict::kOnlyInA || t->verdict == TensorVerdict::kOnlyInB;
    const bool shape = t->verdict == TensorVerdict::kShapeDiffers;
    return std::tuple(!one_sided, !shape, t->values.one_sided_nans == 0, -t->values.max_abs,
                      -t->values.differing, t->name);
  };
  std::sort(tensors.begin(), tensors.end(),
            [&](const auto* x, const auto* y) { return order(x) < order(y); });
  return tensors;
}

}  // namespace danlu::weights
