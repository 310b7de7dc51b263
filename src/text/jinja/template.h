// text/jinja/template.h: a Jinja2 template as Hugging Face's chat templates use them.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"

namespace danlu::text::jinja {

/// The template called raise_exception(): it refuses this input. what() is "name:line: message".
class TemplateRefusal : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

/// The template passed a limit. Where the input is small it would with every other one too.
class TemplateLimit : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

/// What a template is rendered with. Names the template never mentions cost nothing.
class Bindings {
 public:
  void set(std::string name, Value value) {
    values_.emplace_back(std::move(name), std::move(value));
  }
  void set(std::string name, std::string text) {
    set(std::move(name), Value::string(std::move(text)));
  }
  const std::vector<std::pair<std::string, Value>>& values() const { return values_; }

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

struct Rendered {
  std::string text;
  /// Byte ranges of `text` that came from {% generation %} blocks, in order.
  std::vector<std::pair<size_t, size_t>> generations;
};

/// A parsed template. Immutable and thread-safe. Data, not code: it can reach nothing but its
/// bindings, and steps, text and depth are limited.
class Template {
 public:
  /// `name` begins error messages. Errors: TemplateError "name:line: what".
  Template(std::string_view source, const std::string& name, Dialect dialect = Dialect::kChat);
  ~Template();
  Template(Template&&) noexcept;

  /// Errors: TemplateRefusal from raise_exception(), TemplateLimit, TemplateError for all else.
  /// `now` is the time that strftime_now() writes as local time.
  Rendered render(const Bindings& bindings, const Limits& limits = {},
                  std::time_t now = std::time(nullptr)) const;
  /// True if the variable is mentioned anywhere.
  bool mentions(std::string_view variable) const;
  bool has_generation_blocks() const;

 private:
  std::unique_ptr<const Ast> ast_;
};

}  // namespace danlu::text::jinja
