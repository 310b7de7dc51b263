// Reading of option values that are already parsed; parsing is in options_parse.cpp.
#include "base/options.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/option_text.h"

namespace danlu {
namespace {

const char* type_name(OptionType type) {
  switch (type) {
    case OptionType::kString:
      return "string";
    case OptionType::kInt:
      return "int";
    case OptionType::kFloat:
      return "float";
    case OptionType::kBool:
      return "bool";
    case OptionType::kList:
      return "list";
    case OptionType::kJson:
      return "json";
  }
  return "?";
}

const char* source_name(OptionSource source) {
  switch (source) {
    case OptionSource::kDefault:
      return "default";
    case OptionSource::kProfile:
      return "profile";
    case OptionSource::kEnvironment:
      return "environment";
    case OptionSource::kFile:
      return "file";
    case OptionSource::kFlag:
      return "flag";
  }
  return "?";
}

double to_double(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

const Options::Value& Options::find(std::string_view name) const {
  const auto at = values_.find(name);
  if (at == values_.end()) {
    throw InternalError(fmt::format("[options] the table has no option '{}'", name));
  }
  return at->second;
}

const std::string& Options::text_of(std::string_view name, OptionType type) const {
  const Value& value = find(name);
  if (value.spec.type != type) {
    throw InternalError(fmt::format("[options] '{}' is of type {}, asked for as {}", name,
                                    type_name(value.spec.type), type_name(type)));
  }
  if (!value.text) {
    throw UsageError(tr("--{} has no value", name), tr("give --{}", name));
  }
  return *value.text;
}

bool Options::is_given(std::string_view name) const {
  const OptionSource from = source(name);
  return from == OptionSource::kFlag || from == OptionSource::kFile;
}

bool Options::is_set(std::string_view name) const {
  const Value& value = find(name);
  return value.text.has_value() && value.source != OptionSource::kDefault;
}

bool Options::has_value(std::string_view name) const { return find(name).text.has_value(); }
OptionSource Options::source(std::string_view name) const { return find(name).source; }

std::string Options::given_as(std::string_view name) const {
  const Value& value = find(name);
  switch (value.source) {
    case OptionSource::kFlag:
      return value.origin;
    case OptionSource::kFile:
      return value.origin + ": " + value.file_key;
    case OptionSource::kEnvironment:
      return value.spec.environment;
    case OptionSource::kProfile:
    case OptionSource::kDefault:
      break;
  }
  return "--" + std::string(name);
}

std::set<std::string> Options::names(OptionScope scope) const {
  std::set<std::string> result;
  for (const auto& [name, value] : values_) {
    if (value.spec.scope == scope) result.insert(name);
  }
  return result;
}

std::string Options::get_string(std::string_view name) const {
  return text_of(name, OptionType::kString);
}

int64_t Options::get_int(std::string_view name) const {
  return std::stoll(text_of(name, OptionType::kInt));
}

double Options::get_float(std::string_view name) const {
  return to_double(text_of(name, OptionType::kFloat));
}

bool Options::get_bool(std::string_view name) const {
  return text_of(name, OptionType::kBool) == "true";
}

std::vector<std::string> Options::get_list(std::string_view name) const {
  if (find(name).spec.type == OptionType::kList && !has_value(name)) return {};
  return option_text::split_list(text_of(name, OptionType::kList));
}

std::vector<int64_t> Options::get_int_list(std::string_view name) const {
  std::vector<int64_t> numbers;
  for (const std::string& word : get_list(name)) {
    int64_t number = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || stop != word.data() + word.size()) {
      throw UsageError(
          tr("[{}] must be whole numbers, got \"{}\"", given_as(std::string(name)), word));
    }
    numbers.push_back(number);
  }
  return numbers;
}

Options Options::with(std::string_view name, const std::string& text,
                      const std::string& origin) const {
  Options copy = *this;
  Value& value = copy.values_.find(name)->second;
  value.text = option_text::canonical(value.spec, text, origin);
  value.source = OptionSource::kFlag;
  value.origin = origin;
  return copy;
}

Options Options::without_ignored() const {
  Options copy = *this;
  for (auto& [name, value] : copy.values_) {
    if (value.spec.ignored_because.empty()) continue;
    const OptionSpec spec = value.spec;
    value = Value();
    value.spec = spec;
    if (!spec.default_text.empty())
      value.text = option_text::canonical(spec, spec.default_text, "default of --" + name);
  }
  return copy;
}

Json Options::get_json(std::string_view name) const {
  return parse_json(text_of(name, OptionType::kJson), std::string(name));
}

std::string Options::get_string_or(std::string_view name, std::string fallback) const {
  return has_value(name) ? get_string(name) : std::move(fallback);
}

int64_t Options::get_int_or(std::string_view name, int64_t fallback) const {
  return has_value(name) ? get_int(name) : fallback;
}

double Options::get_float_or(std::string_view name, double fallback) const {
  return has_value(name) ? get_float(name) : fallback;
}

bool Options::get_bool_or(std::string_view name, bool fallback) const {
  return has_value(name) ? get_bool(name) : fallback;
}

std::vector<std::string> Options::from_profile() const {
  std::vector<std::string> names;
  for (const std::string& name : order_) {
    if (name != "profile" && source(name) == OptionSource::kProfile) names.push_back(name);
  }
  return names;
}

Json Options::to_json() const {
  Json out = Json::object();
  for (const std::string& name : order_) {
    const Value& value = find(name);
    if (option_text::is_inert(value.spec) && !value.text) continue;
    out[name] = value.text ? option_text::typed_value(value.spec, *value.text) : Json(nullptr);
  }
  return out;
}

std::string Options::print_config() const {
  // JSON values are YAML too, so that the printed text can be saved and used as a file. What no
  // flag and no file gave is a comment: as a setting it would outweigh, or contradict, what it
  // follows from.
  std::string out;
  const Json values = to_json();
  for (const auto& [name, json] : values.items()) {
    const Value& value = find(name);
    std::string from = source_name(value.source);
    if (!value.origin.empty()) from += " " + value.origin;
    const char* unset = is_given(name) || name == "profile" ? "" : "# ";
    const std::string& key = value.version_mark.empty() ? name : value.version_mark;
    // A file's null is a key that was not given.
    const bool is_none = value.spec.may_be_none && !value.text && is_given(name);
    const std::string text = is_none ? option_text::kNoNumber
                                     : json.dump(-1, ' ', false, Json::error_handler_t::replace);
    const std::string line = fmt::format("{}{}: {}", unset, key, text);
    out += fmt::format("{:<47} # {}\n", line, from);
  }
  return out;
}

}  // namespace danlu
