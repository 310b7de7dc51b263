#include "cli/engine/infer_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/in_english.h"
#include "base/json_text.h"
#include "base/log.h"
#include "cli/engine/dataset_rows.h"
#include "cli/engine/infer_flags.h"
#include "cli/engine/infer_output.h"
#include "cli/engine/judged_rows.h"
#include "cli/engine/load_for_inference.h"
#include "data/preprocess_run.h"
#include "data/step_text.h"
#include "device/dtype.h"
#include "device/select.h"
#include "settings/model_changes.h"
#include "settings/model_source.h"
#include "settings/options/precision.h"
#include "train/lone_judge.h"
#include "train/objectives/step_scores.h"
#include "train/rollouts/judges.h"
#include "weights/lora/peft.h"

namespace danlu::cli {
namespace {

/// What has steps, and where it stands.
struct StepRow {
  data::StepsRow steps;
  std::string place;
};

bool has_step_head(const ModelLocation& where) {
  std::error_code unknown;
  if (!where.adapter.empty() && fs::exists(where.adapter / "adapter_config.json", unknown) &&
      weights::load_peft_config(where.adapter).task_type == "TOKEN_CLS")
    return true;
  if (!fs::exists(where.model / "config.json", unknown)) return false;
  // Whoever opens the model says what is wrong with its file.
  const std::optional<Json> config = try_parse_json(read_file(where.model / "config.json"));
  return config && arch::is_scorer(*config) &&
         arch::parse_scorer(*config).score->form == arch::ScoreForm::kTokens;
}

std::vector<StepRow> read_step_rows(const Options& options, std::vector<fs::path>& files) {
  std::vector<StepRow> rows;
  if (options.has_value("prompt"))
    rows.push_back({{.text = options.get_string("prompt")}, "--prompt"});
  const std::vector<std::string> names = options.get_list("dataset");
  if (rows.empty() && names.empty()) {
    throw UsageError(tr("[infer] a model that judges steps does not chat"),
                     tr("give --prompt TEXT with a placeholder behind each step, or --dataset"));
  }
  data::FormatOptions format;
  format.kind = data::SampleKind::kSteps;
  format.answers_optional = true;
  if (options.has_value("columns")) format.map_keys = options.get_json("columns");
  each_row_of(names, format, options, rows.size(), files, [&](data::Row row, RowPlace place) {
    rows.push_back({std::get<data::StepsRow>(std::move(row)), std::move(place.text)});
  });
  if (rows.empty()) throw DataError(tr("[--dataset] {}: no usable row", names.front()));
  return rows;
}

/// A model that judges, and how its tokens are read.
struct StepJudge {
  std::shared_ptr<const train::FrozenModel> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<int64_t> reward_ids;  ///< of right steps first; none where a head has classes
};

StepJudge load_step_judge(const Options& options, const ModelLocation& where) {
  settings::ModelSource source;
  source.path = where.model;
  source.adapter = where.adapter;
  source.as_trained = true;
  const bool has_head = has_step_head(where);
  if (has_head) {
    source.score = arch::ScoreHead{.form = arch::ScoreForm::kTokens, .labels = 2};
    if (!where.adapter.empty()) source.score->seed = 0;  // the adapter has the head
  }
  weights::CheckpointSource opened = settings::open_model(source);
  change_as_asked(options, where.adapter, opened);
  train::say_trained_base(where.adapter);
  const fs::path beside = settings::tokenizer_beside(opened.companions, where.adapter);
  StepJudge judge;
  judge.tokenizer = text::Tokenizer::load(
      options.has_value("tokenizer") ? fs::path(options.get_string("tokenizer")) : beside);
  const std::vector<std::string> tokens = options.get_list("reward_tokens");
  if (has_head && !tokens.empty()) {
    log::notice("{}: without effect, the model has a head that judges steps",
                options.given_as("reward_tokens"));
  } else if (!has_head && tokens.size() < 2) {
    throw UsageError(tr("[infer] {} names at least two tokens, that of right steps first",
                        options.given_as("reward_tokens")));
  }
  for (const std::string& token : has_head ? std::vector<std::string>() : tokens) {
    const int32_t id = data::single_token(*judge.tokenizer, token);
    if (id < 0)
      throw ModelError(tr("[reward_tokens] \"{}\" is no single token of this tokenizer", token));
    judge.reward_ids.push_back(id);
  }
  std::optional<at::ScalarType> dtype;
  if (const auto precision = settings::precision_of(options))
    dtype = device::scalar_type_of(dtype_from_name(settings::precision_name(*precision)));
  judge.model = train::lone_judge(opened, where.adapter, dtype,
                                  device::select(options.get_string("device"), 0));
  return judge;
}

/// What became of a row.
struct JudgedRow {
  std::string text, error;
  std::vector<double> scores;
};

Json row_of_steps(const StepRow& row, const JudgedRow& judged) {
  Json json{{"query", judged.text}};
  if (judged.error.empty()) {
    Json scores = Json::array();
    for (const double score : judged.scores)
      scores.push_back(std::isfinite(score) ? Json(score) : Json());
    json["step_scores"] = std::move(scores);
  } else {
    json["error"] = judged.error;
  }
  if (!row.steps.values.empty()) json["labels"] = row.steps.values;
  return json;
}

std::string shown_steps(const JudgedRow& judged) {
  if (!judged.error.empty())
    return fmt::format("[QUERY] {}\n[ERROR] {}\n", judged.text, judged.error);
  std::string scores;
  for (const double score : judged.scores) scores += fmt::format(" {:.4f}", score);
  return fmt::format("[QUERY] {}\n[STEPS]{}\n", judged.text, scores);
}

class StepJudging {
 public:
  StepJudging(const Options& options, StepJudge judge)
      : judge_(std::move(judge)),
        texts_(judge_.tokenizer, options.get_string("placeholder_token")) {}

  /// The scores of some rows, by one pass.
  std::vector<JudgedRow> judged(std::span<const StepRow> rows) const {
    const InEnglish english;  // rows are stored, and read the same everywhere
    const int64_t window = judge_.model->stage().config().max_positions;
    std::vector<JudgedRow> all;
    std::vector<train::JudgedText> together;
    for (const StepRow& row : rows) {
      data::StepText read = texts_.read(row.steps);
      JudgedRow& one = all.emplace_back();
      one.text = std::move(read.text);
      if (read.places.empty() || read.places.size() != read.written) {
        one.error =
            tr("{} placeholders are tokens of their own, of {}", read.places.size(), read.written);
      } else if (window > 0 && std::ssize(read.ids) > window) {
        one.error = tr("{} tokens, the model has {} positions", read.ids.size(), window);
      } else {
        together.push_back({std::move(read.ids), std::move(read.places)});
      }
    }
    const auto scores = train::step_scores(*judge_.model, together, judge_.reward_ids);
    size_t next = 0;
    for (JudgedRow& one : all) {
      if (one.error.empty()) one.scores = scores[next++];
    }
    return all;
  }

 private:
  StepJudge judge_;
  data::StepTexts texts_;
};

}  // namespace

bool judges_steps(const Options& options, const ModelLocation& where) {
  return !options.get_list("reward_tokens").empty() || has_step_head(where);
}

int judge_steps(const Options& options, const ModelLocation& where) {
  std::vector<fs::path> files;
  const std::vector<StepRow> rows = read_step_rows(options, files);
  std::optional<FileLock> lock;
  if (options.has_value("output")) lock.emplace(require_usable_output(options, files));
  report_idle_step_flags(options);
  const StepJudging judging(options, load_step_judge(options, where));
  size_t steps = 0;
  const size_t errors = judge_rows<StepRow, JudgedRow>(
      options, rows,
      {.judge = [&](std::span<const StepRow> some) { return judging.judged(some); },
       .count = [&](const StepRow&, const JudgedRow& found) { steps += found.scores.size(); },
       .json = [](const StepRow& given,
                  const JudgedRow& found) { return row_of_steps(given, found); },
       .text = [](const StepRow&, const JudgedRow& found) { return shown_steps(found); }});
  log::info("{} rows, {} steps", format_count(rows.size()), format_count(steps));
  if (errors == rows.size()) {
    throw DataError(tr("[infer] no row has a step that can be judged"),
                    tr("--placeholder_token names the token behind each step"));
  }
  return 0;
}

}  // namespace danlu::cli
