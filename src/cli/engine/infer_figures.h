// cli/engine/infer_figures.h: what answers of data sets are worth beside the rows' own, and the
// files that LLaMA-Factory's do_predict writes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/options.h"
#include "cli/engine/infer_rows.h"

namespace danlu::cli {

struct AnsweredRow {
  std::string answer;
  std::optional<std::string> label;  ///< nothing: the row has no answer of its own
  std::string prompt = {};           ///< as the model reads it, special tokens and all
};

/// With --metric alone. Errors: DataError where no row has an answer to compare with.
void require_labels(const Options& options, const std::vector<Question>& questions);

/// Says what --metric asks for, over the rows that have labels.
void report_metric(const Options& options, const std::vector<AnsweredRow>& rows);

/// The file that answers go to, in --output_dir, until they are all there.
fs::path answers_in(const fs::path& output_dir);

/// Writes generated_predictions.jsonl, predict_results.json and all_results.json, of which others'
/// figures stay. Rows without labels count 0, as there. Errors: IoError.
void write_predictions(const fs::path& output_dir, const std::vector<AnsweredRow>& rows,
                       double seconds, int64_t batch_size);

}  // namespace danlu::cli
