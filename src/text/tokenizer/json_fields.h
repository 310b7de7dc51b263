// text/tokenizer/json_fields.h: typed reading of the small parts of tokenizer.json.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace danlu::text {

/// `spec[key]`, or `fallback` if it is absent or null. Errors: ModelError naming origin and key.
template <typename T>
T field_or(const Json& spec, std::string_view key, T fallback, const std::string& origin) {
  const auto it = spec.find(std::string(key));
  if (it == spec.end() || it->is_null()) return fallback;
  bool fits = true;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    // Numbers convert among one another silently, whatever their range.
    fits = it->is_number_integer() && std::in_range<T>(it->get<int64_t>()) &&
           (!it->is_number_unsigned() || std::in_range<T>(it->get<uint64_t>()));
  }
  try {
    if (fits) return it->get<T>();
  } catch (const nlohmann::json::exception&) {
    fits = false;
  }
  if (!fits) {
    throw ModelError(tr("{}: \"{}\" has the wrong type: {}", origin, key,
                        it->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80)));
  }
  return fallback;
}

/// `spec[key]`, which must be there.
template <typename T>
T field(const Json& spec, std::string_view key, const std::string& origin) {
  const auto it = spec.find(std::string(key));
  if (it == spec.end() || it->is_null()) {
    throw ModelError(tr("{}: \"{}\" is missing in {}", origin, key,
                        spec.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 120)));
  }
  return field_or<T>(spec, key, T{}, origin);
}

/// The member object or array `key`. Errors: ModelError if absent.
inline const Json& member(const Json& spec, std::string_view key, const std::string& origin) {
  const auto it = spec.find(std::string(key));
  if (it == spec.end()) {
    throw ModelError(tr("{}: \"{}\" is missing", origin, key));
  }
  return *it;
}

/// spec["type"] of a component. Errors: ModelError if spec is no object or has no type.
inline std::string component_type(const Json& spec, std::string_view what,
                                  const std::string& origin) {
  if (!spec.is_object()) {
    throw ModelError(tr("{}: {} must be an object with a \"type\"", origin, what));
  }
  return field<std::string>(spec, "type", origin);
}

[[noreturn]] inline void fail_unknown_type(std::string_view what, std::string_view type,
                                           const std::string& origin) {
  throw ModelError(tr("{}: {} of type \"{}\" is not known", origin, what, type),
                   tr("the file was made for a newer tokenizers library; report it with the file"));
}

}  // namespace danlu::text
