#include "text/template_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "text/gguf_tokenizer.h"
#include "text/jinja/template.h"
#include "text/template_file.h"
#include "text/template_record.h"

namespace danlu::text {
namespace {

/// Written as separate bytes, the end of a turn would never be met: such a default is none.
std::string missing_stop_word(const Tokenizer& tokenizer, const std::string& name,
                              const fs::path& templates_file) {
  const auto named = find_template(name, templates_file);
  if (!named) return {};
  for (const std::string& word : named->stop_words) {
    if (!tokenizer.token_to_id(word)) return word;
  }
  return {};
}

TemplateChoice family_choice(std::shared_ptr<const Tokenizer> tokenizer,
                             const TemplateRequest& request, const Json& arguments) {
  const std::string& name = request.family_default;
  TemplateChoice choice{.templates_file = request.templates_file};
  if (name.empty()) {
    choice.reason = "this model ships no chat template";
    return choice;
  }
  const std::string word = missing_stop_word(*tokenizer, name, request.templates_file);
  if (!word.empty()) {
    choice.reason = tr(
        "this model ships no chat template, and its family's default '{}' needs the token {} that "
        "the tokenizer lacks",
        name, word);
    return choice;
  }
  try {
    choice.encoder =
        ChatEncoder::create(std::move(tokenizer), name, request.templates_file, arguments);
  } catch (const ModelError& error) {
    choice.reason =
        tr("this model ships no chat template, and its family's default '{}' cannot be used: {}",
           name, error.what());
    return choice;
  }
  choice.origin = TemplateOrigin::kFamily;
  choice.name = name;
  choice.reason = "the default of the model's family";
  return choice;
}

/// The templates that may write a conversation; none where the choice is no Jinja template.
std::vector<jinja::Template> jinja_templates(const Tokenizer& tokenizer,
                                             const TemplateChoice& choice) {
  std::vector<jinja::Template> templates;
  if (!choice.encoder) return templates;
  if (choice.name.ends_with(".jinja")) {
    templates.emplace_back(read_file(choice.name), choice.name);
  } else if (choice.name.empty() || choice.name == "hf") {
    for (const std::string* source : {&tokenizer.chat_template(), &tokenizer.tool_template()}) {
      if (!source->empty()) templates.emplace_back(*source, choice.encoder->description());
    }
  }
  return templates;
}

}  // namespace

std::shared_ptr<const ChatEncoder> TemplateChoice::required() const {
  if (encoder) return encoder;
  throw ModelError(tr("{}; choose one with --template: {}", reason,
                      fmt::join(ChatEncoder::names(templates_file), ", ")),
                   tr("for a base model, 'default', 'alpaca' or 'chatml' are common choices"));
}

TemplateChoice choose_template(std::shared_ptr<const Tokenizer> tokenizer,
                               const TemplateRequest& request, const Json& template_arguments) {
  TemplateChoice choice{.templates_file = request.templates_file};
  const auto made = [&](TemplateOrigin origin, const std::string& name, std::string reason) {
    choice.encoder =
        ChatEncoder::create(tokenizer, name, choice.templates_file, template_arguments);
    choice.origin = origin;
    choice.name = origin == TemplateOrigin::kTokenizer ? "" : name;
    choice.reason = std::move(reason);
    return choice;
  };
  if (!request.named.empty() && request.named != "auto")
    return made(TemplateOrigin::kUser, request.named, "named by the user");
  if (!request.recorded_in.empty()) {
    const RecordedTemplate recorded =
        recorded_template(read_record(request.recorded_in), request.recorded_in);
    if (recorded.is_named()) {
      if (choice.templates_file.empty()) choice.templates_file = recorded.templates_file;
      return made(TemplateOrigin::kRecord, recorded.name,
                  tr("from {}", (request.recorded_in / kRecordFile).string()));
    }
  }
  if (!tokenizer->chat_template().empty())
    return made(TemplateOrigin::kTokenizer, "hf", "the tokenizer's own");
  return family_choice(std::move(tokenizer), request, template_arguments);
}

void report_idle_arguments(const Tokenizer& tokenizer, const TemplateChoice& choice,
                           const Json& template_arguments) {
  const std::vector<jinja::Template> templates = jinja_templates(tokenizer, choice);
  if (templates.empty() || !template_arguments.is_object()) return;
  for (const auto& [name, value] : template_arguments.items()) {
    const bool is_asked_for =
        std::any_of(templates.begin(), templates.end(),
                    [&](const jinja::Template& one) { return one.mentions(name); });
    if (!is_asked_for)
      log::notice("{}={} has no effect: the chat template of {} does not ask for it", name,
                  value.dump(-1, ' ', false, Json::error_handler_t::replace),
                  choice.encoder->description());
  }
}

fs::path directory_of_model(const fs::path& model_or_file) {
  // What lies beside a GGUF file belongs to others.
  if (is_gguf(model_or_file)) return {};
  if (model_or_file.empty() || fs::is_directory(model_or_file)) return model_or_file;
  const fs::path parent = model_or_file.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace danlu::text
