#include "serve/constraints.h"

#include "base/error.h"

namespace danlu::serve {
namespace {

/// compile(), whose refusal names `param`.
template <typename Compile>
auto compiled(const std::string& param, const Compile& compile) {
  try {
    return compile();
  } catch (const UsageError& error) {
    throw api::Refusal(error.what(), param);
  } catch (const ModelError& error) {
    throw api::Refusal(error.what(), param);
  }
}

/// What the first token may be, beside the engine's steps and for all choices at once. Forms that
/// fit in too many ways show here, or where an answer meets it.
void begin_work(text::TokenConstraint& constraint) {
  int64_t work = 1 << 15;
  constraint.prepare(work);
}

}  // namespace

const grammar::Compiler& Constraints::compiler() const {
  std::call_once(once_, [this] {
    compiler_ = std::make_unique<const grammar::Compiler>(tokenizer_, stop_ids_);
  });
  return *compiler_;
}

std::shared_ptr<text::TokenConstraint> Constraints::of_form(const api::OutputForm& form) const {
  using Kind = api::OutputForm::Kind;
  if (form.kind == Kind::kFree) return nullptr;
  return compiled(form.param, [&]() -> std::shared_ptr<text::TokenConstraint> {
    const auto constraint = begun(form);
    begin_work(*constraint);
    return constraint;
  });
}

std::shared_ptr<text::TokenConstraint> Constraints::begun(const api::OutputForm& form) const {
  using Kind = api::OutputForm::Kind;
  const grammar::Compiler& made = compiler();
  switch (form.kind) {
    case Kind::kFree:
      break;
    case Kind::kJsonObject:
      return made.begin(made.json_object());
    case Kind::kJsonSchema:
      return made.begin(made.json_schema(form.schema));
    case Kind::kRegex:
      return made.begin(made.regex(form.pattern));
    case Kind::kChoice:
      return made.begin(made.choice(form.choices));
  }
  return nullptr;
}

std::shared_ptr<text::TokenConstraint> Constraints::of_calls(
    const api::ChatRequest& request, const std::optional<text::ToolFormat>& format) const {
  using Kind = api::ToolChoice::Kind;
  const Kind kind = request.tool_choice.kind;
  if (kind == Kind::kNone || kind == Kind::kAuto) return nullptr;
  if (!format) {
    throw api::Refusal(
        "'tool_choice': how this model writes calls is not known: start the server "
        "with --tool_call_parser, or leave tool_choice to auto",
        "tool_choice");
  }
  return compiled("tool_choice", [&]() -> std::shared_ptr<text::TokenConstraint> {
    const grammar::Compiler& made = compiler();
    // A name asks for one call: with `min_tokens` a second one would else be all that may follow.
    const bool many = request.calls_in_parallel && kind != Kind::kNamed;
    std::shared_ptr<text::TokenConstraint> constraint =
        made.begin(made.tool_calls({.format = *format,
                                    .tools = request.conversation.tools,
                                    .name = request.tool_choice.name,
                                    .many = many}));
    begin_work(*constraint);
    return constraint;
  });
}

}  // namespace danlu::serve
