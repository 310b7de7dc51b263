#include "arch/config_reader.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace danlu::arch {
namespace {

/// A value as it stands in the file, short enough for a message.
std::string shown(const Json& value) {
  // To JSON they are null.
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return fmt::format("{}", value.get<double>());
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) {
    throw ModelError(tr("[config.json] {} must be a JSON object, got {}",
                        where_.empty() ? "the file" : where_.substr(0, where_.size() - 1),
                        shown(object_)));
  }
}

bool ConfigReader::mentions(std::string_view key) const {
  return object_.find(std::string(key)) != object_.end();
}

const Json* ConfigReader::value(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void ConfigReader::wrong(std::string_view key, std::string_view rule, const Json& got) const {
  throw ModelError(tr("[config.json] {}{} must be {}, got {}", where_, key, rule, shown(got)));
}

std::optional<int64_t> ConfigReader::as_integer(const Json& got) const {
  if (got.is_number_unsigned()) {
    const auto unsigned_value = got.get<uint64_t>();
    if (unsigned_value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(unsigned_value);
  }
  if (got.is_number_integer()) return got.get<int64_t>();
  // Some exporters write 4096.0.
  if (got.is_number_float()) {
    const double real = got.get<double>();
    if (std::abs(real) < 9e15 && real == std::floor(real)) return static_cast<int64_t>(real);
  }
  return std::nullopt;
}

int64_t ConfigReader::checked_size(std::string_view key, const Json& got, int64_t limit) const {
  const auto size = as_integer(got);
  if (!size || *size < 1 || *size > limit) {
    wrong(key, tr("a whole number from 1 to {}", limit), got);
  }
  return *size;
}

int64_t ConfigReader::required_size(std::string_view key, int64_t limit) const {
  const Json* got = value(key);
  if (!got) throw ModelError(tr("[config.json] required key {}{} is missing", where_, key));
  return checked_size(key, *got, limit);
}

int64_t ConfigReader::size_or(std::string_view key, int64_t fallback, int64_t limit) const {
  const Json* got = value(key);
  return got ? checked_size(key, *got, limit) : fallback;
}

std::optional<int64_t> ConfigReader::integer(std::string_view key) const {
  const Json* got = value(key);
  if (!got) return std::nullopt;
  const auto number = as_integer(*got);
  if (!number) wrong(key, "a whole number", *got);
  return number;
}

std::optional<double> ConfigReader::number(std::string_view key) const {
  const Json* got = value(key);
  if (!got) return std::nullopt;
  if (!got->is_number() || !std::isfinite(got->get<double>())) wrong(key, "a number", *got);
  return got->get<double>();
}

double ConfigReader::number_or(std::string_view key, double fallback) const {
  return number(key).value_or(fallback);
}

bool ConfigReader::boolean_or(std::string_view key, bool fallback) const {
  const Json* got = value(key);
  if (!got) return fallback;
  if (!got->is_boolean()) wrong(key, "true or false", *got);
  return got->get<bool>();
}

std::optional<std::string> ConfigReader::text(std::string_view key) const {
  const Json* got = value(key);
  if (!got) return std::nullopt;
  if (!got->is_string()) wrong(key, "a string", *got);
  return got->get<std::string>();
}

std::vector<int64_t> ConfigReader::integers(std::string_view key) const {
  const Json* got = value(key);
  if (!got) return {};
  if (!got->is_array()) return {*integer(key)};
  std::vector<int64_t> numbers;
  for (const Json& item : *got) {
    const auto number = as_integer(item);
    if (!number) wrong(key, "a whole number or a list of them", *got);
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<std::vector<std::string>> ConfigReader::texts(std::string_view key) const {
  const Json* got = value(key);
  if (!got) return std::nullopt;
  if (!got->is_array()) wrong(key, "a list of strings", *got);
  std::vector<std::string> items;
  for (const Json& item : *got) {
    if (!item.is_string()) wrong(key, "a list of strings", *got);
    items.push_back(item.get<std::string>());
  }
  return items;
}

}  // namespace danlu::arch
