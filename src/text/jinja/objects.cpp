#include "text/jinja/objects.h"

#include <fmt/format.h>

#include <algorithm>

namespace danlu::text::jinja {

Value* NamespaceObject::find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void NamespaceObject::set(std::string_view name, Value value) {
  if (Value* old = find(name)) {
    *old = std::move(value);
  } else {
    attributes.emplace_back(std::string(name), std::move(value));
  }
}

Signature::Signature(std::string_view function, const Arguments& arguments,
                     std::initializer_list<std::string_view> names)
    : function_(function) {
  std::copy(names.begin(), names.end(), names_);
  if (arguments.positional.size() > names.size()) {
    throw EvalError(fmt::format("{}() takes {} arguments, got {}", function, names.size(),
                                arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      throw EvalError(fmt::format("{}() has no argument '{}'", function, name));
    const size_t i = static_cast<size_t>(found - names.begin());
    if (values_[i]) throw EvalError(fmt::format("{}() got argument '{}' twice", function, name));
    values_[i] = &value;
  }
}

const Value& Signature::required(size_t i) const {
  if (!values_[i])
    throw EvalError(fmt::format("{}() needs the argument '{}'", function_, names_[i]));
  return *values_[i];
}

int64_t Signature::integer(size_t i, int64_t fallback) const {
  if (!values_[i] || values_[i]->is_none()) return fallback;
  if (!values_[i]->is_integral()) {
    throw EvalError(fmt::format("{}(): '{}' must be an integer, got {}", function_, names_[i],
                                type_name(*values_[i])));
  }
  return values_[i]->as_int();
}

bool Signature::boolean(size_t i, bool fallback) const {
  return values_[i] ? truthy(*values_[i]) : fallback;
}

std::string Signature::text(size_t i, std::string_view fallback) const {
  if (!values_[i]) return std::string(fallback);
  if (!values_[i]->is_string()) {
    throw EvalError(fmt::format("{}(): '{}' must be a string, got {}", function_, names_[i],
                                type_name(*values_[i])));
  }
  return values_[i]->as_string();
}

}  // namespace danlu::text::jinja
