#include "eval/benchmarks/checked_object.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/nearest_name.h"

namespace danlu::eval {

CheckedObject::CheckedObject(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object())
    throw UsageError(tr("{}: expected `name: value` lines, got {}", where_, object_.type_name()));
}

bool CheckedObject::has(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it != object_.end() && !it->is_null();
}

const Json& CheckedObject::at(std::string_view key) {
  static const Json kNull;
  known_.emplace_back(key);
  const auto it = object_.find(std::string(key));
  return it == object_.end() ? kNull : *it;
}

void CheckedObject::fail(std::string_view key, const std::string& wanted) const {
  const auto it = object_.find(std::string(key));
  const std::string found = it == object_.end() ? "nothing" : dump_text(*it).substr(0, 80);
  throw UsageError(tr("{}: '{}' must be {}, got {}", where_, key, wanted, found));
}

std::optional<std::string> CheckedObject::text(std::string_view key) {
  const Json& value = at(key);
  if (value.is_null()) return std::nullopt;
  if (!value.is_string()) fail(key, tr("a text"));
  return value.get<std::string>();
}

std::optional<int64_t> CheckedObject::integer(std::string_view key) {
  const Json& value = at(key);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number_integer()) fail(key, tr("a whole number"));
  return value.get<int64_t>();
}

std::optional<double> CheckedObject::number(std::string_view key) {
  const Json& value = at(key);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) fail(key, tr("a number"));
  return value.get<double>();
}

std::optional<bool> CheckedObject::boolean(std::string_view key) {
  const Json& value = at(key);
  if (value.is_null()) return std::nullopt;
  if (!value.is_boolean()) fail(key, tr("true or false"));
  return value.get<bool>();
}

std::optional<std::vector<std::string>> CheckedObject::texts(std::string_view key) {
  const Json& value = at(key);
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return std::vector<std::string>{value.get<std::string>()};
  if (!value.is_array()) fail(key, tr("a text or a list of texts"));
  std::vector<std::string> out;
  for (const Json& element : value) {
    if (!element.is_string()) fail(key, tr("a text or a list of texts"));
    out.push_back(element.get<std::string>());
  }
  return out;
}

std::string CheckedObject::required_text(std::string_view key) {
  const std::optional<std::string> value = text(key);
  if (!value || value->empty()) fail(key, tr("a text"));
  return *value;
}

void CheckedObject::ignore(std::initializer_list<std::string_view> keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
}

void CheckedObject::refuse_others() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::optional<std::string> nearest = nearest_name(key, known_);
    throw UsageError(tr("{}: the key '{}' is not known", where_, key),
                     nearest ? tr("did you mean '{}'?", *nearest) : "");
  }
}

Json CheckedObject::take_others() {
  Json others = Json::object();
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) others[key] = value;
  }
  return others;
}

}  // namespace danlu::eval
