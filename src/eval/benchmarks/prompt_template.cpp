#include "eval/benchmarks/prompt_template.h"

#include "base/error.h"

namespace danlu::eval {
namespace {

/// The expression of a template that is one and nothing else; "": it is not.
std::string_view sole_expression(std::string_view source) {
  if (!source.starts_with("{{") || !source.ends_with("}}") || source.size() < 5) return {};
  const std::string_view inside = source.substr(2, source.size() - 4);
  if (inside.starts_with('-') || inside.starts_with('+') || inside.ends_with('-')) return {};
  if (inside.find("{{") != inside.npos || inside.find("}}") != inside.npos) return {};
  return inside.find("{%") == inside.npos ? inside : std::string_view();
}

std::unique_ptr<const text::jinja::Template> parsed_prompt(const std::string& source,
                                                           const std::string& name) {
  try {
    return std::make_unique<const text::jinja::Template>(source, name,
                                                         text::jinja::Dialect::kStrict);
  } catch (const text::jinja::TemplateError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

PromptTemplate::PromptTemplate(std::string source, std::string name)
    : source_(std::move(source)), name_(std::move(name)) {
  if (source_.find("{{") == source_.npos && source_.find("{%") == source_.npos &&
      source_.find("{#") == source_.npos) {
    return;
  }
  text_ = parsed_prompt(source_, name_);
  if (const std::string_view expression = sole_expression(source_); !expression.empty())
    typed_ = parsed_prompt("{{ (" + std::string(expression) + ") | tojson }}", name_);
}

std::string PromptTemplate::rendered(const text::jinja::Template& made, const Json& row,
                                     const std::string& place) const {
  try {
    text::jinja::Bindings bindings;
    for (const auto& [field, value] : row.items()) {
      if (made.mentions(field)) bindings.set(field, text::jinja::Value::from_json(value));
    }
    return made.render(bindings).text;
  } catch (const text::jinja::TemplateError& error) {
    throw DataError(tr("{}: {}; the row has: {}", place, error.what(), field_names(row)));
  } catch (const text::jinja::EvalError& error) {  // a value that templates cannot hold
    throw DataError(tr("{}: {}; the row has: {}", place, error.what(), field_names(row)));
  }
}

std::string PromptTemplate::text(const Json& row, const std::string& place) const {
  if (text_) return rendered(*text_, row, place);
  const auto field = row.find(source_);
  return field == row.end() ? source_ : python_text(*field);
}

Json PromptTemplate::value(const Json& row, const std::string& place) const {
  if (typed_) return parse_json(rendered(*typed_, row, place), place);
  if (text_) return rendered(*text_, row, place);
  const auto field = row.find(source_);
  return field == row.end() ? Json(source_) : *field;
}

std::string python_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return text::jinja::to_text(text::jinja::Value::from_json(value));
}

std::string field_names(const Json& row) {
  std::string out;
  for (const auto& [field, value] : row.items()) out += (out.empty() ? "" : ", ") + field;
  return out.empty() ? "{}" : out;
}

}  // namespace danlu::eval
