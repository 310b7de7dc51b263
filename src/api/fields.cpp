#include "api/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/in_english.h"
#include "base/json_text.h"
#include "base/nearest_name.h"

namespace danlu::api {
namespace {

[[noreturn]] void refuse_kind(const std::string& path, const char* wanted, const Json& found) {
  throw Refusal(fmt::format("'{}' must be {}, got {}", path, wanted, kind_of(found)), path);
}

std::optional<int64_t> whole_of(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::trunc(number) != number || std::abs(number) >= 0x1p53) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

std::string kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    default:
      return value.dump();
  }
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  const std::string name = path_.empty() ? "" : path_.substr(0, path_.size() - 1);
  throw Refusal(fmt::format("{} must be an object, got {}",
                            name.empty() ? "the request" : "'" + name + "'", kind_of(object)),
                name);
}

const Json* Fields::find(std::string_view name) {
  read_.emplace(name);
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse_kind(path_of(name), "a string", *value);
  return value->get<std::string>();
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse_kind(path_of(name), "true or false", *value);
  return value->get<bool>();
}

bool Fields::boolean_or(std::string_view name, bool fallback) {
  return boolean(name).value_or(fallback);
}

std::optional<int64_t> Fields::whole(std::string_view name, int64_t least, int64_t most) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  const auto number = whole_of(*value);
  if (!number) refuse_kind(path_of(name), "a whole number", *value);
  if (*number < least || *number > most) {
    const bool is_open = most == std::numeric_limits<int64_t>::max();
    throw Refusal(
        is_open ? fmt::format("'{}' must be at least {}, got {}", path_of(name), least, *number)
                : fmt::format("'{}' must be from {} to {}, got {}", path_of(name), least, most,
                              *number),
        path_of(name));
  }
  return number;
}

std::optional<double> Fields::number(std::string_view name, double least, double most) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) refuse_kind(path_of(name), "a number", *value);
  const double number = value->get<double>();
  if (!(number >= least && number <= most)) {
    throw Refusal(
        fmt::format("'{}' must be from {:g} to {:g}, got {:g}", path_of(name), least, most, number),
        path_of(name));
  }
  return number;
}

std::optional<std::vector<std::string>> Fields::texts(std::string_view name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_array()) refuse_kind(path_of(name), "a list of strings", *value);
  std::vector<std::string> found;
  for (const Json& entry : *value) {
    if (!entry.is_string()) refuse_kind(path_of(name), "a list of strings", entry);
    found.push_back(entry.get<std::string>());
  }
  return found;
}

std::optional<std::vector<int64_t>> Fields::wholes(std::string_view name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_array()) refuse_kind(path_of(name), "a list of whole numbers", *value);
  std::vector<int64_t> found;
  for (const Json& entry : *value) {
    const auto number = whole_of(entry);
    if (!number) refuse_kind(path_of(name), "a list of whole numbers", entry);
    found.push_back(*number);
  }
  return found;
}

void Fields::pass(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) read_.emplace(name);
}

void Fields::refuse(std::string_view name, std::string_view why) {
  const Json* value = find(name);
  if (!value) return;
  const bool is_off = (value->is_boolean() && !value->get<bool>()) ||
                      (value->is_number() && value->get<double>() == 0) ||
                      (value->is_string() && value->get_ref<const std::string&>().empty()) ||
                      (value->is_structured() && value->empty());
  if (!is_off) throw Refusal(fmt::format("'{}': {}", path_of(name), why), path_of(name));
}

void Fields::refuse_unless(std::string_view name, double neutral, std::string_view why) {
  const Json* value = find(name);
  if (value && !(value->is_number() && value->get<double>() == neutral))
    throw Refusal(fmt::format("'{}': {}", path_of(name), why), path_of(name));
}

void Fields::require_on(std::string_view name, std::string_view why) {
  if (!boolean_or(name, true))
    throw Refusal(fmt::format("'{}': {}", path_of(name), why), path_of(name));
}

void Fields::take_unread(const Fields& within, const std::string& path) {
  for (const auto& [name, nearest] : within.unread()) {
    if (path.empty()) {
      unread_within_[name] = nearest;
    } else {
      unread_within_[path + name.substr(within.path_.size())] =
          nearest.empty() ? "" : path + nearest.substr(within.path_.size());
    }
  }
}

std::map<std::string, std::string> Fields::unread() const {
  constexpr size_t kMostLookedUp = 20, kLongestName = 64;
  std::map<std::string, std::string> names = unread_within_;
  const std::vector<std::string> known(read_.begin(), read_.end());
  for (const auto& [name, value] : object_.items()) {
    if (read_.contains(name)) continue;
    const bool is_looked_up = names.size() < kMostLookedUp && name.size() <= kLongestName;
    const auto nearest = is_looked_up ? nearest_name(name, known) : std::nullopt;
    names[path_ + name] = nearest ? path_ + *nearest : "";
  }
  return names;
}

namespace {

/// Commas outside of strings: a list has as many entries. Syntax is not looked at.
bool has_more_values(std::string_view text, size_t most) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',' && ++count > most) return true;
    if (text[i] != '"') continue;
    for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
  }
  return false;
}

}  // namespace

Json parse_body(const std::string& body) {
  const InEnglish english;
  // A value takes up to a hundred times the memory of its text.
  constexpr size_t kMostValues = size_t{1} << 21;
  if (has_more_values(body, kMostValues)) {
    throw Refusal(fmt::format("the request's body has more than {} values", kMostValues));
  }
  if (!nests_too_deep(body) && has_wider_object(body, kMostMembers)) {
    throw Refusal(
        fmt::format("an object in the request's body has more than {} members", kMostMembers));
  }
  Json json;
  try {
    json = parse_json(body, "body");
  } catch (const DataError& error) {
    throw Refusal(fmt::format("the request's body is not JSON: {}", error.what()));
  }
  if (!json.is_object())
    throw Refusal(fmt::format("the request's body must be an object, got {}", kind_of(json)));
  return json;
}

}  // namespace danlu::api
