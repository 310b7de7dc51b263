#include "board/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json_text.h"

namespace danlu::board {
namespace {

constexpr size_t kMostCurves = 500, kLongestName = 200;
constexpr int64_t kLargestStep = int64_t{1} << 53;  // JavaScript's integers

/// "371/3090" as its two numbers.
struct Fraction {
  int64_t step = 0, total = 0;
};

std::optional<Fraction> fraction_of(const Json& object) {
  const auto found = object.find("global_step/max_steps");
  if (found == object.end() || !found->is_string()) return std::nullopt;
  const std::string text = *found;
  Fraction fraction;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, fraction.step);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '/') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, fraction.total);
  if (second.ec != std::errc()) return std::nullopt;
  return fraction;
}

std::optional<int64_t> recorded_step(const Json& object, const std::optional<Fraction>& fraction) {
  const auto step = object.find("global_step");
  std::optional<int64_t> number;
  if (step != object.end() && step->is_number_integer()) {
    number = step->get<int64_t>();
  } else if (fraction) {
    number = fraction->step;
  }
  if (!number || *number < 0 || *number > kLargestStep) return std::nullopt;
  return number;
}

/// NaN, Infinity and -Infinity outside strings become null.
std::string without_pythons_numbers(std::string_view line) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_string && c == '\\' && i + 1 < line.size()) {
      out += c;
      out += line[++i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    bool replaced = false;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (in_string || line.substr(i, word.size()) != word) continue;
      out += "null";
      i += word.size() - 1;
      replaced = true;
      break;
    }
    if (!replaced) out += c;
  }
  return out;
}

}  // namespace

std::optional<Json> parse_record(std::string_view line) {
  auto object = try_parse_json(line);
  if (!object && (line.find("NaN") != line.npos || line.find("Infinity") != line.npos))
    object = try_parse_json(without_pythons_numbers(line));
  if (!object || !object->is_object()) return std::nullopt;
  return object;
}

void Metrics::clear() {
  const uint64_t generation = generation_ + 1;
  *this = Metrics();
  generation_ = generation;
}

void Metrics::forget_from(int64_t step) {
  ++generation_;
  last_step_ = 0;
  for (auto it = curves_.begin(); it != curves_.end();) {
    Curve& curve = it->second;
    const auto keep = static_cast<size_t>(
        std::lower_bound(curve.steps.begin(), curve.steps.end(), step) - curve.steps.begin());
    curve.steps.resize(keep);
    curve.values.resize(keep);
    if (keep == 0) {
      it = curves_.erase(it);
      continue;
    }
    last_step_ = std::max(last_step_, curve.steps.back());
    ++it;
  }
}

void Metrics::put(const std::string& name, int64_t step, double value) {
  auto found = curves_.find(name);
  if (found == curves_.end()) {
    if (curves_.size() >= kMostCurves || name.size() > kLongestName) return;
    found = curves_.try_emplace(name).first;
  }
  Curve& curve = found->second;
  if (curve.steps.empty() || curve.steps.back() < step) {
    curve.steps.push_back(step);
    curve.values.push_back(value);
    return;
  }
  const auto at = std::lower_bound(curve.steps.begin(), curve.steps.end(), step);
  const auto index = at - curve.steps.begin();
  if (*at == step) {
    curve.values[static_cast<size_t>(index)] = value;
  } else {
    curve.steps.insert(at, step);
    curve.values.insert(curve.values.begin() + index, value);
  }
}

void Metrics::add(std::string_view line) {
  const auto object = parse_record(line);
  if (!object) return;
  const auto fraction = fraction_of(*object);
  const auto step = recorded_step(*object, fraction);
  if (!step) return;
  if (fraction && fraction->total > 0) max_steps_ = fraction->total;
  if (object->contains("loss")) {
    if (*step < last_trained_) forget_from(*step);
    last_trained_ = *step;
    const auto left = object->find("remaining_time");
    remaining_ = left != object->end() && left->is_string() ? left->get<std::string>() : "";
  }
  if (*step < last_step_) ++generation_;
  last_step_ = std::max(last_step_, *step);
  for (const auto& item : object->items()) {
    if (item.key() == "global_step") continue;
    if (item.value().is_number()) {
      const double value = item.value().get<double>();
      put(item.key(), *step, std::isfinite(value) ? value : std::nan(""));
    } else if (item.value().is_null()) {
      put(item.key(), *step, std::nan(""));
    }
  }
}

std::optional<double> Metrics::last(const std::string& name) const {
  const auto found = curves_.find(name);
  if (found == curves_.end() || found->second.values.empty()) return std::nullopt;
  return found->second.values.back();
}

std::optional<double> Metrics::least(const std::string& name) const {
  const auto found = curves_.find(name);
  if (found == curves_.end()) return std::nullopt;
  std::optional<double> least;
  for (const double value : found->second.values) {
    if (!std::isnan(value) && (!least || value < *least)) least = value;
  }
  return least;
}

Json curve_json(const Curve& curve, int64_t from, int64_t to, size_t most_points) {
  const auto begin = static_cast<size_t>(
      std::lower_bound(curve.steps.begin(), curve.steps.end(), from) - curve.steps.begin());
  const auto end = static_cast<size_t>(
      std::upper_bound(curve.steps.begin(), curve.steps.end(), to) - curve.steps.begin());
  Json x = Json::array(), y = Json::array();
  const auto put = [&](size_t i) {
    x.push_back(curve.steps[i]);
    y.push_back(std::isnan(curve.values[i]) ? Json(nullptr) : Json(curve.values[i]));
  };
  const size_t count = end > begin ? end - begin : 0;
  const size_t stretches = std::max<size_t>(1, most_points / 2);
  if (count <= 2 * stretches) {
    for (size_t i = begin; i < end; ++i) put(i);
    return {{"x", x}, {"y", y}, {"thinned", false}};
  }
  for (size_t s = 0; s < stretches; ++s) {
    const size_t first = begin + s * count / stretches;
    const size_t behind = begin + (s + 1) * count / stretches;
    size_t low = first, high = first;
    for (size_t i = first; i < behind; ++i) {
      if (std::isnan(curve.values[low]) || curve.values[i] < curve.values[low]) low = i;
      if (std::isnan(curve.values[high]) || curve.values[i] > curve.values[high]) high = i;
    }
    put(std::min(low, high));
    if (low != high) put(std::max(low, high));
  }
  return {{"x", x}, {"y", y}, {"thinned", true}};
}

}  // namespace danlu::board
