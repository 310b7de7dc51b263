#include "weights/compare/verify_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/message.h"
#include "base/threads.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

using Kind = CopyMismatch::Kind;

/// One element as text: the shortest that reads back as the same number.
std::string element_text(const std::byte* at, DType dtype) {
  if (dtype == DType::kF64) {
    double value;
    std::memcpy(&value, at, sizeof value);
    return fmt::format("{}", value);
  }
  if (is_floating(dtype)) {
    float value;
    cast_elements(at, dtype, &value, DType::kF32, 1);
    return fmt::format("{}", value);
  }
  uint64_t bits = 0;
  const size_t size = dtype_size_bytes(dtype);
  std::memcpy(&bits, at, size);
  const bool is_signed =
      dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 || dtype == DType::kI64;
  if (!is_signed) return fmt::format("{}", bits);
  const auto shift = static_cast<unsigned>(64 - 8 * size);
  return fmt::format("{}", static_cast<int64_t>(bits << shift) >> shift);
}

class Verifier {
 public:
  Verifier(const TensorSource& source, const TensorSource& result, const DTypeRule& dtype_of,
           ReadMeter& meter)
      : source_(source), result_(result), dtype_of_(dtype_of), meter_(meter) {}

  struct Outcome {
    std::optional<TensorDigest> digest;
    std::optional<CopyMismatch> mismatch;
  };

  Outcome check(const std::string& name) const {
    const TensorInfo* from = source_.find(name);
    const TensorInfo* to = result_.find(name);
    if (!to) return {{}, mismatch(Kind::kMissing, name, shape_text(from->shape), "")};
    if (!from) return {{}, mismatch(Kind::kUnexpected, name, "", shape_text(to->shape))};
    if (from->shape != to->shape)
      return {{}, mismatch(Kind::kShape, name, shape_text(from->shape), shape_text(to->shape))};
    const DType dtype = dtype_of_ && is_floating(from->dtype) ? dtype_of_(*from) : from->dtype;
    if (to->dtype != dtype) {
      return {{},
              mismatch(Kind::kDType, name, std::string(dtype_name(dtype)),
                       std::string(dtype_name(to->dtype)))};
    }
    return compare(*from, *to);
  }

 private:
  CopyMismatch mismatch(Kind kind, const std::string& name, std::string source,
                        std::string result) const {
    CopyMismatch found{
        .kind = kind, .tensor = name, .source = std::move(source), .result = std::move(result)};
    if (source_.find(name)) found.source_file = source_.file_of(name);
    if (result_.find(name)) found.result_file = result_.file_of(name);
    return found;
  }

  Outcome compare(const TensorInfo& from, const TensorInfo& to) const {
    thread_local std::vector<std::byte> from_buffer, to_buffer, cast;
    Outcome outcome;
    DigestStream digest;
    const size_t item = dtype_size_bytes(to.dtype);
    for (const Band& band : bands_of(from)) {
      const auto count = static_cast<size_t>(band.end - band.begin);
      std::span<const std::byte> expected = band_bytes(source_, from, band, from_buffer);
      const std::span<const std::byte> got = band_bytes(result_, to, band, to_buffer);
      if (from.dtype != to.dtype) {
        cast.resize(count * item);
        cast_elements(expected.data(), from.dtype, cast.data(), to.dtype, count);
        expected = cast;
      }
      digest.add(got);
      if (!outcome.mismatch && std::memcmp(expected.data(), got.data(), got.size()) != 0)
        outcome.mismatch = first_difference(to, band, expected, got);
      meter_.add(got.size());
    }
    outcome.digest = TensorDigest{to.name, to.dtype, to.shape, digest.digest()};
    return outcome;
  }

  CopyMismatch first_difference(const TensorInfo& info, const Band& band,
                                std::span<const std::byte> expected,
                                std::span<const std::byte> got) const {
    const size_t item = dtype_size_bytes(info.dtype);
    const auto differs = std::mismatch(expected.begin(), expected.end(), got.begin());
    const size_t element = static_cast<size_t>(differs.first - expected.begin()) / item;
    CopyMismatch found = mismatch(Kind::kValue, info.name,
                                  element_text(expected.data() + element * item, info.dtype),
                                  element_text(got.data() + element * item, info.dtype));
    const int64_t flat = band.begin + static_cast<int64_t>(element);
    const int64_t cols = matrix_of(info.shape).cols;
    found.row = flat / cols;
    found.col = flat % cols;
    return found;
  }

  const TensorSource& source_;
  const TensorSource& result_;
  const DTypeRule& dtype_of_;
  ReadMeter& meter_;
};

}  // namespace

std::string CopyMismatch::text() const {
  const std::string from = source_file.string(), to = result_file.string();
  switch (kind) {
    case Kind::kMissing:
      return tr("{} {} of {} is missing in the result", tensor, source, from);
    case Kind::kUnexpected:
      return tr("{}: {} {} is not in the source", to, tensor, result);
    case Kind::kShape:
      return fmt::format("{}: {} is {}; {} has {}", to, tensor, result, from, source);
    case Kind::kDType:
      return tr("{}: {} is {}, it should be {}", to, tensor, result, source);
    case Kind::kValue:
      return tr("{}: {} is {} at row {}, column {}; {} has {}", to, tensor, result, row, col, from,
                source);
  }
  return tensor;
}

CopyCheck verify_copy(const TensorSource& source, const TensorSource& result,
                      const DTypeRule& dtype_of, const BytesProgress& progress,
                      size_t num_threads) {
  // Large tensors first: one of them at the end would leave the other threads idle.
  std::vector<std::pair<size_t, std::string>> names;
  for (const TensorInfo& info : source.tensors()) names.emplace_back(info.size_bytes(), info.name);
  for (const TensorInfo& info : result.tensors()) {
    if (!source.find(info.name)) names.emplace_back(info.size_bytes(), info.name);
  }
  std::sort(names.begin(), names.end(), std::greater<>());
  ReadMeter meter({&source, &result}, progress);
  const Verifier verifier(source, result, dtype_of, meter);
  std::vector<Verifier::Outcome> outcomes(names.size());
  parallel_for(names.size(), streaming_threads(num_threads),
               [&](size_t i) { outcomes[i] = verifier.check(names[i].second); });
  CopyCheck check;
  for (Verifier::Outcome& outcome : outcomes) {
    if (outcome.digest) check.digests.push_back(std::move(*outcome.digest));
    if (!outcome.mismatch) continue;
    if (!check.first || outcome.mismatch->tensor < check.first->tensor)
      check.first = std::move(outcome.mismatch);
  }
  std::sort(check.digests.begin(), check.digests.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.name < b.name; });
  return check;
}

}  // namespace danlu::weights
