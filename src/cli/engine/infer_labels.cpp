#include "cli/engine/infer_labels.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arch/label_numbers.h"
#include "base/error.h"
#include "base/in_english.h"
#include "base/log.h"
#include "cli/engine/dataset_rows.h"
#include "cli/engine/infer_flags.h"
#include "cli/engine/infer_output.h"
#include "cli/engine/judged_rows.h"
#include "cli/engine/sorting.h"
#include "cli/engine/text_judge.h"
#include "data/labelled_text.h"
#include "data/preprocess_run.h"
#include "settings/model_source.h"
#include "train/objectives/text_labels.h"

namespace danlu::cli {
namespace {

using arch::LabelProblem;

/// What is sorted, and where it stands.
struct TextToSort {
  data::LabelledRow row;
  std::string place;
};

std::vector<TextToSort> read_texts(const Options& options, const ModelLocation& where,
                                   std::vector<fs::path>& files) {
  std::vector<TextToSort> rows;
  if (options.has_value("prompt")) {
    text::Conversation asked;
    asked.messages.push_back({"user", options.get_string("prompt")});
    rows.push_back({{std::move(asked), nullptr}, "--prompt"});
  }
  const std::vector<std::string> names = datasets_to_judge(options, where);
  if (rows.empty() && names.empty()) {
    throw UsageError(tr("[infer] a model that sorts texts does not chat"),
                     tr("give --prompt TEXT, or --dataset"));
  }
  data::FormatOptions format = format_to_judge(options, data::SampleKind::kLabelled);
  format.answers_optional = true;
  each_row_of(names, format, options, rows.size(), files, [&](data::Row row, RowPlace place) {
    rows.push_back({std::get<data::LabelledRow>(std::move(row)), std::move(place.text)});
  });
  if (rows.empty()) throw DataError(tr("[--dataset] {}: no usable row", names.front()));
  return rows;
}

/// A model that sorts texts, and how these are read.
struct Sorter : TextJudge {
  LabelProblem problem = LabelProblem::kOneClass;
};

Sorter load_sorter(const Options& options, const ModelLocation& where) {
  settings::ModelSource source;
  source.path = where.model;
  source.adapter = where.adapter;
  source.as_trained = true;
  source.score = sorting_head(options, where);
  Sorter sorter{load_text_judge(options, where, source)};
  sorter.problem = *sorter.model->stage().config().score->problem;
  return sorter;
}

/// What became of a text.
struct SortedText {
  std::string text, error;
  std::vector<double> numbers;  ///< the head's
};

Json row_of_text(const TextToSort& given, const SortedText& sorted, LabelProblem problem) {
  Json json{{"query", sorted.text}};
  if (!sorted.error.empty()) {
    json["error"] = sorted.error;
  } else {
    json["response"] = arch::label_of(sorted.numbers, problem);
    if (problem == LabelProblem::kNumbers) {
      json["numbers"] = sorted.numbers;
    } else {
      json["probabilities"] = arch::label_probabilities(sorted.numbers, problem);
    }
  }
  if (!given.row.label.is_null()) json["labels"] = given.row.label;
  return json;
}

std::string shown_text(const SortedText& sorted, LabelProblem problem) {
  if (!sorted.error.empty())
    return fmt::format("[QUERY] {}\n[ERROR] {}\n", sorted.text, sorted.error);
  std::string line = arch::label_of(sorted.numbers, problem).dump();
  if (problem != LabelProblem::kNumbers) {
    line += " (";
    for (const double p : arch::label_probabilities(sorted.numbers, problem))
      line += fmt::format("{}{:.4f}", line.ends_with('(') ? "" : " ", p);
    line += ")";
  }
  return fmt::format("[QUERY] {}\n[LABEL] {}\n", sorted.text, line);
}

/// How often labels are those of the rows.
class LabelMatches {
 public:
  LabelMatches(LabelProblem problem, int64_t labels) : problem_(problem) {
    using Kind = data::LabelForm::Kind;
    form_ = {problem == LabelProblem::kNumbers   ? Kind::kNumbers
             : problem == LabelProblem::kClasses ? Kind::kClasses
                                                 : Kind::kClass,
             labels};
  }
  void add(const TextToSort& given, const SortedText& sorted) {
    if (given.row.label.is_null() || !sorted.error.empty()) return;
    std::string problem;
    const auto numbers = data::label_numbers(given.row.label, form_, &problem);
    if (!numbers) return;
    ++count_;
    if (problem_ == LabelProblem::kNumbers) {
      for (size_t i = 0; i < numbers->size(); ++i)
        far_ += std::abs(sorted.numbers[i] - static_cast<double>((*numbers)[i])) /
                static_cast<double>(numbers->size());
      return;
    }
    const auto made =
        data::label_numbers(arch::label_of(sorted.numbers, problem_), form_, &problem).value();
    equal_ += made == *numbers;
  }
  void report() const {
    if (count_ == 0) return;
    if (problem_ == LabelProblem::kNumbers) {
      log::info("mean distance from the label: {:.4g} ({} rows)",
                far_ / static_cast<double>(count_), count_);
    } else {
      log::info("label is the row's: {:.1f}% ({} of {})",
                100.0 * static_cast<double>(equal_) / static_cast<double>(count_), equal_, count_);
    }
  }

 private:
  LabelProblem problem_;
  data::LabelForm form_;
  size_t count_ = 0, equal_ = 0;
  double far_ = 0;
};

std::string text_of_row(const data::LabelledRow& row, const text::Tokenizer& tokenizer) {
  if (const auto* plain = std::get_if<data::TextRow>(&row.text)) return plain->texts[0];
  if (const auto* tokens = std::get_if<data::TokenRow>(&row.text))
    return tokenizer.decode(tokens->ids);
  std::string last;
  for (const text::Message& message : std::get<text::Conversation>(row.text).messages)
    if (message.role == "user") last = message.content;
  return last;
}

/// The labels of some rows, by one pass.
std::vector<SortedText> sorted_texts(const Sorter& sorter, std::span<const TextToSort> rows) {
  const InEnglish english;  // rows are stored, and read the same everywhere
  const int64_t window = sorter.model->stage().config().max_positions;
  std::vector<SortedText> all;
  std::vector<std::vector<int32_t>> together;
  for (const TextToSort& given : rows) {
    SortedText& one = all.emplace_back();
    one.text = text_of_row(given.row, *sorter.tokenizer);
    try {
      std::vector<int32_t> ids =
          data::ids_of_text(given.row, sorter.tokenizer.get(), sorter.encoder.get());
      if (ids.empty()) {
        one.error = tr("a text without a token");
      } else if (window > 0 && std::ssize(ids) > window) {
        one.error = tr("{} tokens, the model has {} positions", ids.size(), window);
      } else {
        together.push_back(std::move(ids));
      }
    } catch (const DataError& error) {
      one.error = error.what();
    }
  }
  const auto numbers = train::numbers_of_texts(*sorter.model, together);
  size_t next = 0;
  for (SortedText& one : all) {
    if (one.error.empty()) one.numbers = numbers[next++];
  }
  return all;
}

}  // namespace

int label_texts(const Options& options, const ModelLocation& where) {
  std::vector<fs::path> files;
  const std::vector<TextToSort> rows = read_texts(options, where, files);
  std::optional<FileLock> lock;
  if (options.has_value("output")) lock.emplace(require_usable_output(options, files));
  report_idle_label_flags(options);
  const Sorter sorter = load_sorter(options, where);
  LabelMatches matches(sorter.problem, sorter.model->stage().config().score->labels);
  const size_t errors = judge_rows<TextToSort, SortedText>(
      options, rows,
      {.judge = [&](std::span<const TextToSort> some) { return sorted_texts(sorter, some); },
       .count = [&](const TextToSort& given,
                    const SortedText& found) { matches.add(given, found); },
       .json = [&](const TextToSort& given,
                   const SortedText& found) { return row_of_text(given, found, sorter.problem); },
       .text = [&](const TextToSort&,
                   const SortedText& found) { return shown_text(found, sorter.problem); }});
  matches.report();
  if (errors == rows.size()) throw DataError(tr("[infer] no row has a text that can be sorted"));
  return 0;
}

}  // namespace danlu::cli
