#include "cli/engine/ranking.h"

#include <memory>

#include "arch/score_head.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/lower_case.h"
#include "cli/engine/adapter_head.h"
#include "models/read_head.h"
#include "settings/ranking_tokens.h"
#include "text/template_record.h"
#include "weights/lora/peft.h"

namespace danlu::cli {
namespace {

namespace fs = std::filesystem;

std::optional<RanksBy> of_task(const std::string& task) {
  if (task == "reranker") return RanksBy::kHead;
  if (task == "generative_reranker") return RanksBy::kTokens;
  return std::nullopt;
}

/// A model of one score that says nothing of what it is of.
bool has_one_score(const ModelLocation& where) {
  std::error_code unknown;
  if (!where.adapter.empty() && fs::exists(where.adapter / "adapter_config.json", unknown)) {
    const auto head = head_in(where.adapter);
    if (head) return head->form == arch::ScoreForm::kSequence && head->labels == 1;
  }
  if (!fs::exists(where.model / "config.json", unknown)) return false;
  // Whoever opens the model says what is wrong with its file.
  const std::optional<Json> config = try_parse_json(read_file(where.model / "config.json"));
  if (!config || !arch::is_scorer(*config)) return false;
  const arch::ScoreHead head = *arch::parse_scorer(*config).score;
  return head.form == arch::ScoreForm::kSequence && head.labels == 1;
}

}  // namespace

std::optional<RanksBy> ranks_by(const Options& options, const ModelLocation& where, bool by_files) {
  if (options.has_value("task_type")) return of_task(lower_case(options.get_string("task_type")));
  if (const std::string task = lower_case(text::recorded_text(where.run_args, "task_type"));
      !task.empty() && !where.run_args.empty())
    return of_task(task);
  if (by_files && has_one_score(where)) return RanksBy::kHead;
  if (settings::is_called_qwen3_reranker(where.model)) return RanksBy::kTokens;
  return std::nullopt;
}

bool is_told_to_rank(const Options& options, const ModelLocation& where) {
  const std::string task = options.has_value("task_type")
                               ? options.get_string("task_type")
                               : text::recorded_text(where.run_args, "task_type");
  return of_task(lower_case(task)) == RanksBy::kHead;
}

arch::ScoreHead head_of_one_score(const ModelLocation& where) {
  arch::ScoreHead head;
  if (!where.adapter.empty()) head.seed = 0;  // the adapter has it, if the base has none
  return head;
}

std::string ranking_template(const Options& options, const ModelLocation& where) {
  const bool is_named = text::was_plain(where.run_args) || options.has_value("prompt_type") ||
                        options.get_bool_or("hf_chat_template", false) ||
                        text::recorded_template(where.run_args, where.record).is_named();
  return !is_named && settings::is_called_qwen3_reranker(where.model) ? "qwen3_reranker" : "";
}

std::vector<text::TokenId> ranking_tokens(const Options& options, const ModelLocation& where,
                                          const text::Tokenizer& tokenizer) {
  settings::RankingTokens tokens = settings::ranking_tokens_from(options);
  const auto take_recorded = [&](const char* flag, std::string& token) {
    const std::string recorded = text::recorded_text(where.run_args, flag);
    if (!options.is_given(flag) && !recorded.empty()) token = recorded;
  };
  take_recorded("reranker_positive_token", tokens.positive);
  take_recorded("reranker_negative_token", tokens.negative);
  return settings::ranking_token_ids(tokens, tokenizer);
}

void refuse_adapters_on_head(const fs::path& adapter) {
  std::error_code unknown;
  if (adapter.empty() || !fs::exists(adapter / "adapter_config.json", unknown)) return;
  const weights::PeftConfig peft = weights::load_peft_config(adapter);
  if (!weights::peft_targets(peft, "lm_head", /*is_linear=*/true, /*is_head=*/true)) return;
  throw ModelError(
      tr("{}: adapters on lm_head do not go with ranking by its tokens", adapter.string()),
      tr("danlu merge makes them a part of it"));
}

std::function<double(const std::vector<float>&)> score_reader(const Options& options,
                                                              const ModelLocation& where,
                                                              const InferenceModel& loaded) {
  std::vector<text::TokenId> ids;
  if (where.ranks_by == RanksBy::kTokens) ids = ranking_tokens(options, where, *loaded.tokenizer);
  const auto head = std::make_shared<const models::ReadHead>(models::read_head(*loaded.model, ids));
  return [head](const std::vector<float>& hidden) {
    const std::vector<double> numbers = models::numbers_of(*head, hidden);
    return numbers.size() == 2 ? numbers[0] - numbers[1] : numbers[0];
  };
}

}  // namespace danlu::cli
