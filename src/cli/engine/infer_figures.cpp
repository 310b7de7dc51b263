#include "cli/engine/infer_figures.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "eval/scoring/text_overlap.h"

namespace danlu::cli {
namespace {

std::string metric_of(const Options& options) {
  return options.has_value("metric") ? options.get_string("metric") : "";
}

double rounded_to(double value, int digits) {
  const double unit = std::pow(10.0, digits);
  return std::round(value * unit) / unit;
}

/// The figures of an earlier training in the same directory stay, as the Trainer keeps them.
Json earlier_results(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return Json::object();
  if (const auto known = try_parse_json(read_file(file)); known && known->is_object())
    return *known;
  log::warning("{}: holds no JSON object, and is written anew", file.string());
  return Json::object();
}

}  // namespace

void require_labels(const Options& options, const std::vector<Question>& questions) {
  if (metric_of(options).empty()) return;
  const bool has_labels = std::any_of(questions.begin(), questions.end(), [](const Question& one) {
    return one.reference.has_value();
  });
  if (has_labels) return;
  throw DataError(
      tr("[{}] no row has an answer of its own to compare with", options.given_as("metric")),
      tr("the last answer of a row's conversation, or its output column, is that"));
}

void report_metric(const Options& options, const std::vector<AnsweredRow>& rows) {
  const std::string metric = metric_of(options);
  if (metric.empty()) return;
  std::vector<eval::ComparedTexts> compared;
  for (const AnsweredRow& row : rows)
    if (row.label) compared.push_back({row.answer, *row.label});
  if (compared.size() < rows.size())
    log::warning("{} of {} rows have no answer of their own, and are not compared",
                 rows.size() - compared.size(), rows.size());
  if (metric == "acc") {
    const auto equal = std::count_if(compared.begin(), compared.end(),
                                     [](const auto& row) { return row.found == row.wanted; });
    log::info(
        "acc {:.6f} ({} of {})",
        static_cast<double>(equal) / static_cast<double>(std::max<size_t>(1, compared.size())),
        equal, compared.size());
    return;
  }
  const eval::Overlap overlap = eval::overlap_of(compared, eval::OverlapStyle::kSwift);
  log::info("rouge-1 {:.6f}, rouge-2 {:.6f}, rouge-l {:.6f}, bleu-4 {:.6f}", overlap.rouge1,
            overlap.rouge2, overlap.rougeL, overlap.bleu4);
}

fs::path answers_in(const fs::path& output_dir) { return output_dir / "answers.jsonl"; }

void write_predictions(const fs::path& output_dir, const std::vector<AnsweredRow>& rows,
                       double seconds, int64_t batch_size) {
  std::vector<eval::ComparedTexts> compared;
  std::string lines;
  for (const AnsweredRow& row : rows) {
    compared.push_back({row.answer, row.label.value_or("")});
    const Json line = {
        {"prompt", row.prompt}, {"predict", row.answer}, {"label", compared.back().wanted}};
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  write_file_atomic(output_dir / "generated_predictions.jsonl", lines);
  const eval::Overlap overlap = eval::overlap_of(compared, eval::OverlapStyle::kLlamaFactory);
  const auto count = static_cast<double>(rows.size());
  const double steps = std::ceil(count / static_cast<double>(std::max<int64_t>(1, batch_size)));
  const auto a_second = [&](double number) {
    return seconds > 0 ? rounded_to(number / seconds, 3) : 0.0;
  };
  const Json figures = {{"predict_bleu-4", overlap.bleu4},
                        {"predict_rouge-1", overlap.rouge1},
                        {"predict_rouge-2", overlap.rouge2},
                        {"predict_rouge-l", overlap.rougeL},
                        {"predict_runtime", rounded_to(seconds, 4)},
                        {"predict_samples_per_second", a_second(count)},
                        {"predict_steps_per_second", a_second(steps)}};
  write_file_atomic(output_dir / "predict_results.json", figures.dump(4) + "\n");
  Json all = earlier_results(output_dir / "all_results.json");
  all.update(figures);
  write_file_atomic(output_dir / "all_results.json", all.dump(4) + "\n");
  log::info("bleu-4 {:.4f}, rouge-1 {:.4f}, rouge-2 {:.4f}, rouge-l {:.4f}: {}", overlap.bleu4,
            overlap.rouge1, overlap.rouge2, overlap.rougeL,
            (output_dir / "predict_results.json").string());
}

}  // namespace danlu::cli
