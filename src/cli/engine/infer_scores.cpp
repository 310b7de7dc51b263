#include "cli/engine/infer_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "arch/score_head.h"
#include "base/error.h"
#include "base/file.h"
#include "base/in_english.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "cli/engine/adapter_head.h"
#include "cli/engine/dataset_rows.h"
#include "cli/engine/infer_flags.h"
#include "cli/engine/infer_output.h"
#include "cli/engine/judged_rows.h"
#include "cli/engine/sorting.h"
#include "cli/engine/text_judge.h"
#include "data/labelled_text.h"
#include "data/preprocess_run.h"
#include "train/objectives/text_labels.h"
#include "weights/hf/value_head.h"

namespace danlu::cli {
namespace {

using Text = std::variant<data::TextRow, text::Conversation, data::TokenRow>;

/// The texts of a row that are scored, and where it stands: a pair's chosen and rejected one, or
/// one alone.
struct RowToScore {
  std::vector<Text> texts;
  std::string place;
};

bool is_reward_model(const fs::path& model) {
  std::error_code unknown;
  if (!fs::exists(model / "config.json", unknown)) return false;
  // Whoever opens the model says what is wrong with its file.
  const std::optional<Json> config = try_parse_json(read_file(model / "config.json"));
  if (!config || !arch::is_scorer(*config)) return false;
  const arch::ScoreHead head = *arch::parse_scorer(*config).score;
  return head.form == arch::ScoreForm::kSequence && head.labels == 1 && !head.problem;
}

bool is_reward_adapter(const fs::path& adapter) {
  std::error_code unknown;
  if (adapter.empty() || !fs::exists(adapter / "adapter_config.json", unknown)) return false;
  const auto head = head_in(adapter);
  return head && head->form == arch::ScoreForm::kSequence && head->labels == 1 && !head->problem;
}

Text text_of(data::AnsweredRow row) {
  return std::visit([](auto&& one) -> Text { return std::move(one); }, std::move(row));
}

/// Errors: DataError for rows that have no answers, such as steps.
RowToScore row_to_score(data::Row row, std::string place) {
  RowToScore taken{.texts = {}, .place = std::move(place)};
  if (auto* pair = std::get_if<data::PairRow>(&row)) {
    taken.texts.push_back(text_of(std::move(pair->chosen)));
    taken.texts.push_back(text_of(std::move(pair->rejected)));
  } else if (auto* unpaired = std::get_if<data::UnpairedRow>(&row)) {
    taken.texts.push_back(text_of(std::move(unpaired->answer)));
  } else if (auto* conversation = std::get_if<text::Conversation>(&row)) {
    taken.texts.emplace_back(std::move(*conversation));
  } else if (auto* tokens = std::get_if<data::TokenRow>(&row)) {
    taken.texts.emplace_back(std::move(*tokens));
  } else if (auto* plain = std::get_if<data::TextRow>(&row)) {
    taken.texts.emplace_back(std::move(*plain));
  } else {
    throw DataError(tr("[--dataset] {}: no answer that a reward model scores", taken.place));
  }
  return taken;
}

std::vector<RowToScore> read_rows(const Options& options, std::vector<fs::path>& files) {
  std::vector<RowToScore> rows;
  if (options.has_value("prompt"))
    rows.push_back({{Text(data::TextRow{{options.get_string("prompt")}})}, "--prompt"});
  const std::vector<std::string> names = options.get_list("dataset");
  if (rows.empty() && names.empty()) {
    throw UsageError(tr("[infer] a reward model does not chat"),
                     tr("give --dataset with answers or pairs of them, or --prompt TEXT"));
  }
  data::FormatOptions format;
  format.kind = std::nullopt;  // pairs, or answers
  if (options.has_value("columns")) format.columns = options.get_json("columns");
  format.handler_name = options.get_string_or("handler_name", "");
  each_row_of(names, format, options, rows.size(), files, [&](data::Row row, RowPlace place) {
    rows.push_back(row_to_score(std::move(row), std::move(place.text)));
  });
  if (rows.empty()) throw DataError(tr("[--dataset] {}: no usable row", names.front()));
  return rows;
}

/// What became of a row: a number for each text, or why there is none.
struct ScoredRow {
  std::vector<double> rewards;
  std::string error;
};

std::vector<ScoredRow> scored(const TextJudge& judge, std::span<const RowToScore> rows) {
  const InEnglish english;  // rows are stored, and read the same everywhere
  const int64_t window = judge.model->stage().config().max_positions;
  std::vector<ScoredRow> all(rows.size());
  std::vector<std::vector<int32_t>> together;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::vector<int32_t>> of_row;
    try {
      for (const Text& text : rows[i].texts) {
        of_row.push_back(
            data::ids_of_text({text, nullptr}, judge.tokenizer.get(), judge.encoder.get()));
        if (of_row.back().empty()) throw DataError(tr("a text without a token"));
        if (window > 0 && std::ssize(of_row.back()) > window)
          throw DataError(
              tr("{} tokens, the model has {} positions", of_row.back().size(), window));
      }
    } catch (const DataError& error) {
      all[i].error = error.what();
      continue;
    }
    for (std::vector<int32_t>& ids : of_row) together.push_back(std::move(ids));
  }
  const auto numbers = train::numbers_of_texts(*judge.model, together);
  size_t next = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!all[i].error.empty()) continue;
    for (size_t text = 0; text < rows[i].texts.size(); ++text)
      all[i].rewards.push_back(numbers[next++].front());
  }
  return all;
}

/// What of a text is scored: the last message of a conversation, else all.
std::string scored_text(const Text& text, const text::Tokenizer& tokenizer) {
  if (const auto* plain = std::get_if<data::TextRow>(&text)) return plain->texts.front();
  if (const auto* tokens = std::get_if<data::TokenRow>(&text)) return tokenizer.decode(tokens->ids);
  const auto& messages = std::get<text::Conversation>(text).messages;
  return messages.empty() ? "" : messages.back().content;
}

Json messages_json(const Text& text) {
  Json list = Json::array();
  if (const auto* conversation = std::get_if<text::Conversation>(&text)) {
    for (const text::Message& message : conversation->messages)
      list.push_back({{"role", message.role}, {"content", message.content}});
  }
  return list;
}

Json row_of(const RowToScore& given, const ScoredRow& found, const text::Tokenizer& tokenizer) {
  Json row = Json::object();
  if (Json messages = messages_json(given.texts.front()); !messages.empty())
    row["messages"] = std::move(messages);
  else
    row["text"] = scored_text(given.texts.front(), tokenizer);
  const bool is_pair = given.texts.size() == 2;
  if (is_pair) row["rejected_response"] = scored_text(given.texts.back(), tokenizer);
  if (!found.error.empty()) {
    row["error"] = found.error;
  } else if (is_pair) {
    row["chosen_reward"] = found.rewards[0];
    row["rejected_reward"] = found.rewards[1];
  } else {
    row["reward"] = found.rewards[0];
  }
  return row;
}

std::string shown_row(const RowToScore& given, const ScoredRow& found,
                      const text::Tokenizer& tokenizer) {
  if (!found.error.empty()) return fmt::format("{}: [ERROR] {}\n", given.place, found.error);
  std::string all;
  for (size_t i = 0; i < given.texts.size(); ++i)
    all += fmt::format("[REWARD] {:.6g} {}\n", found.rewards[i],
                       scored_text(given.texts[i], tokenizer));
  return all;
}

/// Metrics of reward models, as their trainings name them.
class Figures {
 public:
  void add(const ScoredRow& row) {
    if (!row.error.empty()) return;
    ++rows_;
    first_ += row.rewards[0];
    if (row.rewards.size() < 2) return;
    ++pairs_;
    second_ += row.rewards[1];
    right_ += row.rewards[0] > row.rewards[1] ? 1 : 0;
  }
  void report() const {
    if (pairs_ > 0) {
      const auto pairs = static_cast<double>(pairs_);
      log::info(
          "accuracy {:.4f}, margin {:.6g}, rewards/chosen {:.6g}, rewards/rejected {:.6g} "
          "({} pairs)",
          static_cast<double>(right_) / pairs, (first_ - second_) / pairs, first_ / pairs,
          second_ / pairs, pairs_);
    } else if (rows_ > 0) {
      log::info("mean reward {:.6g} ({} rows)", first_ / static_cast<double>(rows_), rows_);
    }
  }

 private:
  int64_t rows_ = 0, pairs_ = 0, right_ = 0;
  double first_ = 0, second_ = 0;
};

}  // namespace

bool scores_answers(const Options& options, const ModelLocation& where) {
  const bool is_told = lower_case(options.get_string_or("task_type", "")) == "seq_cls";
  if (is_told && weights::has_value_head(where.adapter.empty() ? where.model : where.adapter))
    return true;
  if (sorts_texts(options, where)) return false;
  return is_reward_adapter(where.adapter) ||
         (where.adapter.empty() && is_reward_model(where.model));
}

int score_answers(const Options& options, const ModelLocation& where) {
  std::vector<fs::path> files;
  const std::vector<RowToScore> rows = read_rows(options, files);
  std::optional<FileLock> lock;
  if (options.has_value("output")) lock.emplace(require_usable_output(options, files));
  report_idle_label_flags(options);
  settings::ModelSource source =
      settings::reward_model_at(where.adapter.empty() ? where.model : where.adapter);
  if (!where.model.empty()) source.path = where.model;
  const TextJudge judge = load_text_judge(options, where, source);
  Figures figures;
  const size_t errors = judge_rows<RowToScore, ScoredRow>(
      options, rows,
      {.judge = [&](std::span<const RowToScore> some) { return scored(judge, some); },
       .count = [&](const RowToScore&, const ScoredRow& found) { figures.add(found); },
       .json = [&](const RowToScore& given,
                   const ScoredRow& found) { return row_of(given, found, *judge.tokenizer); },
       .text = [&](const RowToScore& given,
                   const ScoredRow& found) { return shown_row(given, found, *judge.tokenizer); }});
  figures.report();
  if (errors == rows.size()) throw DataError(tr("[infer] no row has an answer that can be scored"));
  return 0;
}

}  // namespace danlu::cli
