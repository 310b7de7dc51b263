#include "cli/engine/infer_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/in_english.h"
#include "base/log.h"
#include "cli/engine/dataset_rows.h"
#include "cli/engine/infer_flags.h"
#include "cli/engine/infer_output.h"
#include "cli/engine/judged_rows.h"
#include "cli/engine/ranking.h"
#include "cli/engine/text_judge.h"
#include "cli/engine/trained_prompt.h"
#include "data/groups.h"
#include "data/preprocess_run.h"
#include "settings/options/system_message.h"
#include "text/query_and_document.h"
#include "train/objectives/text_labels.h"

namespace danlu::cli {
namespace {

/// A row's query with each of its documents, those that go with it first.
struct RowToRank {
  std::string query;
  std::vector<text::Conversation> pairs;
  size_t positives = 0;
  std::string error;  ///< why there is no pair
  std::string place;
};

struct RankedRow {
  std::vector<double> scores;
  std::string error;
};

std::string query_of(const data::LabelledRow& anchor) {
  const auto* asked = std::get_if<text::Conversation>(&anchor.text);
  return asked && !asked->messages.empty() ? asked->messages.back().content : "";
}

RowToRank row_to_rank(data::Row row, std::string place) {
  RowToRank taken;
  taken.place = std::move(place);
  auto& group = std::get<data::GroupRow>(row);
  std::string reason, detail;
  data::GroupForm form;
  form.texts = data::GroupForm::Texts::kBehindAnchor;
  form.needs_positives = false;  // only mrr and ndcg need one
  taken.positives = group.positives.size();
  taken.query = query_of(group.anchor);
  auto texts = data::texts_of_group(std::move(group), form, &reason, &detail);
  if (!texts) {
    taken.error = fmt::format("{}: {} ({})", taken.place, reason, detail);
    return taken;
  }
  for (data::GroupText& text : *texts)
    taken.pairs.push_back(std::get<text::Conversation>(std::move(text.text.text)));
  return taken;
}

/// Documents are judged by what --system says, where a row says nothing.
void add_instruction(const std::string& system, RowToRank& row) {
  if (system.empty()) return;
  for (text::Conversation& pair : row.pairs) {
    auto& messages = pair.messages;
    if (messages.empty() || messages.front().role != "system")
      messages.insert(messages.begin(), {"system", system});
  }
}

std::vector<RowToRank> read_rows_to_rank(const Options& options, const ModelLocation& where,
                                         std::vector<fs::path>& files) {
  const std::vector<std::string> names = datasets_to_judge(options, where);
  if (names.empty() || options.has_value("prompt")) {
    throw UsageError(tr("[infer] a model that ranks documents answers no prompts"),
                     tr("give --dataset with rows of a query and its documents, or ask danlu serve "
                        "at /v1/rerank; --task_type causal_lm answers them"));
  }
  data::FormatOptions format = format_to_judge(options, data::SampleKind::kGroups);
  std::vector<RowToRank> rows;
  std::string system = settings::system_message_from(options);
  if (system.empty()) system = trained_prompt(options, where.record).system;
  each_row_of(names, format, options, 0, files, [&](data::Row row, RowPlace place) {
    rows.push_back(row_to_rank(std::move(row), std::move(place.text)));
    add_instruction(system, rows.back());
  });
  if (rows.empty()) throw DataError(tr("[--dataset] {}: no usable row", names.front()));
  return rows;
}

struct Ranker : TextJudge {
  std::vector<int64_t> ids;  ///< of the tokens that are compared; empty: a head gives scores
  bool activates = true;
};

Ranker load_ranker(const Options& options, const ModelLocation& where) {
  settings::ModelSource source;
  source.path = where.model;
  source.adapter = where.adapter;
  source.as_trained = true;
  if (where.ranks_by == RanksBy::kHead) source.score = head_of_one_score(where);
  if (where.ranks_by == RanksBy::kTokens) refuse_adapters_on_head(where.adapter);
  Ranker ranker{load_text_judge(options, where, source), {}};
  if (where.ranks_by == RanksBy::kTokens) {
    const auto found = ranking_tokens(options, where, *ranker.tokenizer);
    ranker.ids.assign(found.begin(), found.end());
  }
  ranker.activates = options.get_bool("reranker_use_activation");
  return ranker;
}

/// Errors: DataError for a score that is no number.
double score_from(const Ranker& ranker, const std::vector<double>& numbers) {
  const double score = numbers.size() == 2 ? numbers[0] - numbers[1] : numbers[0];
  if (!std::isfinite(score)) throw DataError(tr("the model's score is no number"));
  return ranker.activates ? 1 / (1 + std::exp(-score)) : score;
}

/// The scores of some rows, a pass for each row's documents.
std::vector<RankedRow> ranked_rows(const Ranker& ranker, std::span<const RowToRank> rows) {
  const InEnglish english;  // rows are stored, and read the same everywhere
  const int64_t window = ranker.model->stage().config().max_positions;
  std::vector<RankedRow> all;
  for (const RowToRank& row : rows) {
    RankedRow& one = all.emplace_back();
    std::vector<std::vector<int32_t>> texts;
    one.error = row.error;
    if (!one.error.empty()) continue;
    try {
      for (const text::Conversation& pair : row.pairs) {
        texts.push_back(text::pair_ids(pair, *ranker.tokenizer, ranker.encoder.get()));
        if (texts.back().empty()) throw DataError(tr("a text without a token"));
        if (window > 0 && std::ssize(texts.back()) > window)
          throw DataError(tr("{} tokens, the model has {} positions", texts.back().size(), window));
      }
      for (const auto& numbers : train::numbers_of_texts(*ranker.model, texts, ranker.ids))
        one.scores.push_back(score_from(ranker, numbers));
    } catch (const DataError& error) {
      one.error = error.what();
    }
  }
  return all;
}

std::string document_of(const text::Conversation& pair) {
  return pair.messages.empty() ? "" : pair.messages.back().content;
}

Json row_of_ranks(const RowToRank& given, const RankedRow& found) {
  Json json{{"query", given.query}};
  Json documents = Json::array(), labels = Json::array();
  for (size_t i = 0; i < given.pairs.size(); ++i) {
    documents.push_back(document_of(given.pairs[i]));
    labels.push_back(i < given.positives ? 1 : 0);
  }
  json["documents"] = std::move(documents);
  if (given.pairs.size() > 1) json["labels"] = std::move(labels);
  if (!found.error.empty()) {
    json["error"] = found.error;
    return json;
  }
  json["scores"] = found.scores;
  if (found.scores.size() == 1) json["response"] = found.scores.front();
  return json;
}

std::string shown_ranks(const RowToRank& given, const RankedRow& found) {
  std::string all = fmt::format("[QUERY] {}\n", given.query);
  if (!found.error.empty()) return all + fmt::format("[ERROR] {}\n", found.error);
  for (size_t i = 0; i < given.pairs.size(); ++i)
    all += fmt::format("[SCORE] {:.6g} {}\n", found.scores[i], document_of(given.pairs[i]));
  return all;
}

/// Metrics of rerankers, as their trainings name them.
class Places {
 public:
  void add(const RowToRank& given, const RankedRow& found) {
    if (!found.error.empty() || given.positives == given.pairs.size()) return;
    for (size_t right = 0; right < given.positives; ++right) {
      double place = 1;
      for (size_t other = given.positives; other < found.scores.size(); ++other)
        place += found.scores[other] >= found.scores[right] ? 1 : 0;
      reciprocal_ += 1 / place;
      gain_ += 1 / std::log2(place + 1);
      ++count_;
    }
  }
  void report() const {
    if (count_ == 0) return;
    const auto count = static_cast<double>(count_);
    log::info("mrr {:.4f}, ndcg {:.4f} ({} documents that go with their query)",
              reciprocal_ / count, gain_ / count, count_);
  }

 private:
  double reciprocal_ = 0, gain_ = 0;
  int64_t count_ = 0;
};

}  // namespace

int rank_rows(const Options& options, const ModelLocation& where) {
  std::vector<fs::path> files;
  const std::vector<RowToRank> rows = read_rows_to_rank(options, where, files);
  std::optional<FileLock> lock;
  if (options.has_value("output")) lock.emplace(require_usable_output(options, files));
  report_idle_rank_flags(options);
  const Ranker ranker = load_ranker(options, where);
  Places places;
  const size_t errors = judge_rows<RowToRank, RankedRow>(
      options, rows,
      {.judge = [&](std::span<const RowToRank> some) { return ranked_rows(ranker, some); },
       .count = [&](const RowToRank& given, const RankedRow& found) { places.add(given, found); },
       .json = [&](const RowToRank& given,
                   const RankedRow& found) { return row_of_ranks(given, found); },
       .text = [&](const RowToRank& given,
                   const RankedRow& found) { return shown_ranks(given, found); }});
  places.report();
  if (errors == rows.size()) throw DataError(tr("[infer] no row has documents that can be ranked"));
  return 0;
}

}  // namespace danlu::cli
