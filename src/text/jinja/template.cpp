#include "text/jinja/template.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/parser.h"

namespace danlu::text::jinja {

Template::Template(std::string_view source, const std::string& name, Dialect dialect)
    : ast_(std::make_unique<const Ast>(parse(source, name, dialect))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

bool Template::mentions(std::string_view variable) const {
  return std::find(ast_->symbols.begin(), ast_->symbols.end(), variable) != ast_->symbols.end();
}

bool Template::has_generation_blocks() const { return ast_->has_generation; }

Rendered Template::render(const Bindings& bindings, const Limits& limits, std::time_t now) const {
  Interpreter interpreter(*ast_, limits, now);
  for (const auto& [name, value] : bindings.values()) {
    const auto symbol = std::find(ast_->symbols.begin(), ast_->symbols.end(), name);
    if (symbol != ast_->symbols.end()) {
      interpreter.set_variable(static_cast<Symbol>(symbol - ast_->symbols.begin()), value);
    }
  }
  const auto located = [&](const std::string& what) {
    return fmt::format("{}:{}: {}", ast_->name, interpreter.line(), what);
  };
  try {
    interpreter.run();
  } catch (const RaisedError& error) {
    throw TemplateRefusal(located(error.what()));  // the template's own words
  } catch (const LimitError& error) {
    throw TemplateLimit(located(translated_filled(error.what())),
                        tr("a chat template this costly is broken or hostile; "
                           "choose another one with --template"));
  } catch (const EvalError& error) {
    throw TemplateError(located(translated_filled(error.what())));
  }
  return {std::move(interpreter.output), std::move(interpreter.generations)};
}

}  // namespace danlu::text::jinja
