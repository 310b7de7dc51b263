#include "weights/compare/compare_text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>

#include "base/progress.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

constexpr size_t kShownLines = 20;

/// One index per dimension of a flat, row-major one.
std::vector<int64_t> index_in(const std::vector<int64_t>& shape, int64_t flat) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0; flat /= shape[d]) index[d] = flat % shape[d];
  return index;
}

std::string tensors_text(size_t count) {
  return fmt::format("{} {}", format_count(count), count == 1 ? "tensor" : "tensors");
}

std::string info_line(const TensorComparison& t) {
  const bool in_a = t.a.has_value();
  return fmt::format("  {:<4} {:<20} {}\n", in_a ? t.stored_a : t.stored_b,
                     shape_text((in_a ? t.a : t.b)->shape), t.name);
}

/// "12 (0.039 %)".
std::string share_text(int64_t part, int64_t all) {
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(all);
  return fmt::format("{} ({:.2g} %)", format_count(static_cast<uint64_t>(part)), percent);
}

std::string types_text(const TensorComparison& t) {
  if (t.stored_a == t.stored_b) return {};
  return fmt::format(" ({} and {})", t.stored_a, t.stored_b);
}

std::string values_line(const TensorComparison& t) {
  const ValueDifference& v = t.values;
  const std::string share =
      v.differing == t.a->num_elements() ? "all" : share_text(v.differing, t.a->num_elements());
  return fmt::format("  {:>9} {:>9} {:>20}  {:<14} {}{}\n",
                     v.one_sided_nans > 0 ? "NaN" : fmt::format("{:.3g}", v.max_abs),
                     v.one_sided_nans > 0 ? "NaN" : fmt::format("{:.3g}", v.max_rel), share,
                     shape_text(index_in(t.a->shape, v.worst)), t.name, types_text(t));
}

std::string line_of(const TensorComparison& t) {
  switch (t.verdict) {
    case TensorVerdict::kValuesDiffer:
      return values_line(t);
    case TensorVerdict::kShapeDiffers:
      return fmt::format("  {:<20} {:<20} {}\n", shape_text(t.a->shape), shape_text(t.b->shape),
                         t.name);
    case TensorVerdict::kSameValues:
      return fmt::format("  {:<4} {:<4} {}\n", t.stored_a, t.stored_b, t.name);
    default:
      return info_line(t);
  }
}

struct Heading {
  TensorVerdict verdict;
  std::string_view key;      ///< in JSON
  std::string_view heading;  ///< above the table
  std::string_view columns;  ///< of the table; empty: none
};
const std::array<Heading, 5> kHeadings{{
    {TensorVerdict::kOnlyInA, "only_in_a", "only in A", ""},
    {TensorVerdict::kOnlyInB, "only_in_b", "only in B", ""},
    {TensorVerdict::kShapeDiffers, "shape_differs", "of another shape (A, B)", ""},
    {TensorVerdict::kValuesDiffer, "values_differ", "of other values, worst first",
     "    max abs   max rel   differing elements  worst at       tensor\n"},
    {TensorVerdict::kSameValues, "same_values", "of another dtype (A, B), equal in value", ""},
}};

std::string_view key_of(TensorVerdict verdict) {
  for (const Heading& heading : kHeadings) {
    if (heading.verdict == verdict) return heading.key;
  }
  return "identical";
}

Json number_or_inf(double value) { return std::isinf(value) ? Json("inf") : Json(value); }

Json tensor_json(const TensorComparison& t) {
  Json json = {{"name", t.name}, {"verdict", key_of(t.verdict)}};
  if (t.a) json["a"] = {{"dtype", t.stored_a}, {"shape", t.a->shape}};
  if (t.b) json["b"] = {{"dtype", t.stored_b}, {"shape", t.b->shape}};
  if (t.verdict != TensorVerdict::kValuesDiffer) return json;
  json["differing"] = t.values.differing;
  json["first"] = index_in(t.a->shape, t.values.first);
  json["worst"] = index_in(t.a->shape, t.values.worst);
  json["max_abs"] = number_or_inf(t.values.max_abs);
  json["max_rel"] = number_or_inf(t.values.max_rel);
  json["one_sided_nans"] = t.values.one_sided_nans;
  return json;
}

}  // namespace

std::string describe_comparison(const Comparison& comparison, bool every_tensor) {
  std::string text;
  const std::vector<const TensorComparison*> different = worst_first(comparison);
  for (const Heading& heading : kHeadings) {
    const size_t count = comparison.count(heading.verdict);
    if (count == 0) continue;
    text += fmt::format("{} {}:\n{}", tensors_text(count), heading.heading, heading.columns);
    size_t shown = 0;
    for (const TensorComparison* tensor : different) {
      if (tensor->verdict != heading.verdict) continue;
      if (shown++ < kShownLines || every_tensor) text += line_of(*tensor);
    }
    if (shown > kShownLines && !every_tensor)
      text += fmt::format("  and {} more\n", format_count(shown - kShownLines));
  }
  const size_t identical = comparison.count(TensorVerdict::kIdentical);
  if (identical == 0) return text;
  const bool all = identical == comparison.tensors.size();
  text +=
      fmt::format("{}{} {} bit-identical{}\n", all && identical > 1 ? "all " : "",
                  tensors_text(identical), identical == 1 ? "is" : "are", every_tensor ? ":" : "");
  if (!every_tensor) return text;
  for (const TensorComparison& tensor : comparison.tensors) {
    if (tensor.verdict == TensorVerdict::kIdentical) text += info_line(tensor);
  }
  return text;
}

Json comparison_json(const Comparison& comparison, bool every_tensor) {
  Json json = {{"identical", comparison.identical()}, {"tensors", comparison.tensors.size()}};
  Json counts = Json::object();
  for (const Heading& heading : kHeadings)
    counts[std::string(heading.key)] = comparison.count(heading.verdict);
  counts["identical"] = comparison.count(TensorVerdict::kIdentical);
  json["counts"] = std::move(counts);
  Json differences = Json::array();
  for (const TensorComparison* tensor : worst_first(comparison))
    differences.push_back(tensor_json(*tensor));
  if (every_tensor) {
    for (const TensorComparison& tensor : comparison.tensors) {
      if (tensor.verdict == TensorVerdict::kIdentical) differences.push_back(tensor_json(tensor));
    }
  }
  json["differences"] = std::move(differences);
  return json;
}

}  // namespace danlu::weights
