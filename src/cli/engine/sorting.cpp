#include "cli/engine/sorting.h"

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/lower_case.h"
#include "cli/engine/adapter_head.h"
#include "weights/hf/value_head.h"

namespace danlu::cli {
namespace {

namespace fs = std::filesystem;
using arch::LabelProblem;

std::optional<LabelProblem> asked_problem(const Options& options) {
  if (options.has_value("problem_type"))
    return arch::label_problem_from_name(lower_case(options.get_string("problem_type")));
  if (lower_case(options.get_string_or("task_type", "")) == "seq_cls")
    return LabelProblem::kByNumber;
  return std::nullopt;
}

std::optional<LabelProblem> described_problem(const fs::path& model) {
  std::error_code unknown;
  if (!fs::exists(model / "config.json", unknown)) return std::nullopt;
  // Whoever opens the model says what is wrong with its file.
  const std::optional<Json> config = try_parse_json(read_file(model / "config.json"));
  if (!config || !arch::is_scorer(*config)) return std::nullopt;
  return arch::parse_scorer(*config).score->problem;
}

void require_head(const Options& options, const ModelLocation& where) {
  std::error_code unknown;
  if (!fs::exists(where.model / "config.json", unknown)) return;
  const std::optional<Json> config = try_parse_json(read_file(where.model / "config.json"));
  if (!config || arch::is_scorer(*config) || weights::has_value_head(where.model)) return;
  for (const char* option : {"task_type", "problem_type"}) {
    if (!options.is_given(option)) continue;
    throw UsageError(
        tr("[{}] {} has no head that sorts texts", options.given_as(option), where.model.string()),
        tr("danlu sft --task_type seq_cls makes one of it"));
  }
}

}  // namespace

bool sorts_texts(const Options& options, const ModelLocation& where) {
  return asked_problem(options) || recorded_problem(where.run_args) ||
         described_problem(where.model);
}

arch::ScoreHead sorting_head(const Options& options, const ModelLocation& where) {
  arch::ScoreHead head{.labels = 0, .problem = LabelProblem::kByNumber};
  if (!where.adapter.empty()) {
    if (const auto trained = head_in(where.adapter)) {
      head = *trained;
      head.seed = 0;  // the adapter has the head
      head.problem = trained->problem.value_or(LabelProblem::kByNumber);
    }
  }
  if (!head.seed) require_head(options, where);
  if (const auto recorded = recorded_problem(where.run_args)) head.problem = recorded;
  if (const auto asked = asked_problem(options); asked && *asked != LabelProblem::kByNumber)
    head.problem = asked;
  return head;
}

}  // namespace danlu::cli
