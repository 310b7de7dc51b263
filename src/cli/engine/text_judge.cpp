#include "cli/engine/text_judge.h"

#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "cli/engine/infer_rows.h"
#include "cli/engine/load_for_inference.h"
#include "cli/engine/trained_prompt.h"
#include "device/dtype.h"
#include "device/select.h"
#include "settings/embedding_files.h"
#include "settings/model_changes.h"
#include "settings/options/precision.h"
#include "text/template_choice.h"
#include "text/template_record.h"
#include "train/lone_judge.h"
#include "train/rollouts/judges.h"

namespace danlu::cli {

std::vector<std::string> datasets_to_judge(const Options& options, const ModelLocation& where) {
  std::vector<std::string> names = options.get_list("dataset");
  if (options.get_bool("load_dataset_config")) {
    const std::filesystem::path& checkpoint = where.adapter.empty() ? where.model : where.adapter;
    names.push_back(held_out_file(checkpoint.string(), where.run_args));
  }
  return names;
}

data::FormatOptions format_to_judge(const Options& options, data::SampleKind kind) {
  data::FormatOptions format;
  format.kind = kind;
  if (options.has_value("columns")) format.columns = options.get_json("columns");
  format.handler_name = options.get_string_or("handler_name", "");
  return format;
}

std::shared_ptr<const text::ChatEncoder> judging_encoder(
    const Options& options, const ModelLocation& where, const std::string& family_default,
    const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  const std::string asked = template_named(options);
  const std::string& named = asked.empty() ? where.usual_template : asked;
  if (text::was_plain(where.run_args) && named.empty()) return nullptr;
  const auto with = [&](const Json& variables) {
    return text::choose_template(tokenizer,
                                 {.named = named,
                                  .templates_file = options.get_string_or("prompt_type_path", ""),
                                  .recorded_in = where.record,
                                  .family_default = family_default},
                                 variables);
  };
  const Json typed = template_arguments_from(options);
  const Json trained = trained_prompt(options, where.record).variables;
  Json all = typed;
  all.update(trained);
  text::TemplateChoice choice;
  try {
    choice = with(all);
  } catch (const UsageError&) {
    if (trained.empty()) throw;
    choice = with(typed);  // training passes over variables that its template does not know, too
  }
  if (choice.is_news()) log::info("template: {}, {}", choice.name, choice.reason);
  return choice.encoder;
}

bool embeds_by_template(const Options& options, const Json& record, const fs::path& model) {
  const std::string named = template_named(options);
  if (named == text::kPlainTexts) return false;
  const bool is_recorded = settings::is_embedding_record(record),
             has_files = settings::has_sentence_files(model);
  const bool is_told = lower_case(options.get_string_or("task_type", "")) == "embedding";
  if (!is_recorded && !has_files && !is_told) return false;
  // The line's template is that of chats: vectors are made as training made them.
  if (is_recorded) return !text::was_plain(record);
  return !named.empty() || (!text::was_plain(record) && !has_files);
}

TextJudge load_text_judge(const Options& options, const ModelLocation& where,
                          const settings::ModelSource& source, bool plainly) {
  weights::CheckpointSource opened = settings::open_model(source);
  change_as_asked(options, where.adapter, opened);
  train::say_trained_base(where.adapter);
  const fs::path beside = settings::tokenizer_beside(opened.companions, where.adapter);
  TextJudge judge;
  judge.tokenizer = text::Tokenizer::load(
      options.has_value("tokenizer") ? fs::path(options.get_string("tokenizer")) : beside);
  const std::string named = template_named(options);
  if (opened.config.encoder && !named.empty() && named != text::kPlainTexts) {
    throw UsageError(tr("[infer] {} beside an encoder, which reads texts by its tokenizer's "
                        "template",
                        options.given_as("prompt_type")),
                     tr("leave it out"));
  }
  if (!opened.config.encoder && !plainly && !options.get_bool_or("raw", false)) {
    judge.encoder =
        judging_encoder(options, where, opened.config.default_template, judge.tokenizer);
  }
  std::optional<at::ScalarType> dtype;
  if (const auto precision = settings::precision_of(options))
    dtype = device::scalar_type_of(dtype_from_name(settings::precision_name(*precision)));
  judge.model = train::lone_judge(opened, where.adapter, dtype,
                                  device::select(options.get_string("device"), 0));
  return judge;
}

}  // namespace danlu::cli
