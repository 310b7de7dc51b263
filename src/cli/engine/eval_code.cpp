#include "cli/engine/eval_code.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "eval/benchmarks/prompt_template.h"
#include "eval/sandbox/code_check.h"
#include "eval/scoring/metrics.h"

namespace danlu::cli {
namespace {

constexpr const char* kWholeProgram = "{{prompt}}{{answer}}";

class CodeExam : public RowsExam {
 public:
  CodeExam(eval::Task task, eval::TaskRows rows, const EvalPlan& plan,
           std::unique_ptr<eval::CodeSandbox> sandbox)
      : RowsExam(std::move(task), std::move(rows), plan),
        solution_(solution_template(task_), task_.name + ": solution"),
        sandbox_(std::move(sandbox)) {}

  bool wants_quiet() const override { return true; }

  void measure(const std::vector<eval::Item>& items,
               const std::vector<std::vector<eval::Answer>>& answers,
               std::vector<std::vector<eval::ItemScore>>& scores) override {
    (void)answers;
    for (size_t filter = 0; filter < task_.filters.size(); ++filter)
      measure_filter(items, filter, scores);
  }

 private:
  /// The template of the metric that runs answers. Errors: UsageError if there are several that
  /// differ, since a sample has one program.
  static std::string solution_template(const eval::Task& task) {
    std::optional<std::string> found;
    for (const eval::Metric& metric : task.metrics) {
      if (!eval::runs_answers(metric)) continue;
      std::string text =
          json_get<std::string>(metric.arguments, "solution").value_or(kWholeProgram);
      if (found && *found != text)
        throw UsageError(
            tr("{}: metrics that execute answers have different 'solution's: '{}', '{}'", task.name,
               *found, text),
            tr("one program is made of each answer: give them the same"));
      found = std::move(text);
    }
    return found.value_or(kWholeProgram);
  }

  /// What the metric's `solution` makes of an answer: the whole program, without its test.
  std::string solution_of(const eval::Item& item, const std::string& answer) const {
    Json known = item.doc;
    known["answer"] = answer;
    return solution_.text(known, task_.name + ": row " + std::to_string(item.doc_id));
  }

  void measure_filter(const std::vector<eval::Item>& items, size_t filter,
                      std::vector<std::vector<eval::ItemScore>>& scores) const {
    std::vector<Json> problems;
    std::vector<eval::CodeSample> samples;
    for (size_t i = 0; i < items.size(); ++i) {
      problems.push_back(items[i].doc);
      Json solutions = Json::array();
      for (const std::string& answer : texts_of(scores[i][filter].filtered)) {
        samples.push_back({i, solution_of(items[i], answer)});
        solutions.push_back(samples.back().solution);
      }
      scores[i][filter].filtered = Json::array({std::move(solutions)});
    }
    if (!sandbox_) return;
    const eval::CodeCheck check =
        eval::check_code(*sandbox_, problems, samples, default_thread_count());
    if (check.num_timed_out > 0)
      log::warning("{}: {} of {} programs timed out, executed alone too", task_.name,
                   check.num_timed_out, samples.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const eval::PassCount& count = check.counts[i];
      for (const eval::Metric& metric : task_.metrics) {
        if (eval::runs_answers(metric))
          scores[i][filter].values[metric.name] =
              Json::array({count.num_samples, count.num_passed});
      }
      scores[i][filter].notes["verdicts"] = Json::array();
    }
    for (size_t s = 0; s < samples.size(); ++s)
      scores[samples[s].problem][filter].notes["verdicts"].push_back(check.verdicts[s].detail);
  }

  /// Filtered answers: texts, or one list of texts.
  static std::vector<std::string> texts_of(const Json& filtered) {
    std::vector<std::string> texts;
    for (const Json& part : filtered) {
      if (part.is_string()) {
        texts.push_back(part);
      } else {
        texts.insert(texts.end(), part.begin(), part.end());
      }
    }
    return texts;
  }

  eval::PromptTemplate solution_;
  std::unique_ptr<eval::CodeSandbox> sandbox_;  ///< nullptr: nothing is executed
};

}  // namespace

std::unique_ptr<Exam> make_code_exam(const Options& options, eval::Task task, eval::TaskRows rows,
                                     const EvalPlan& plan) {
  std::unique_ptr<eval::CodeSandbox> sandbox;
  if (!options.get_bool("predict_only")) {
    eval::SandboxSettings settings;
    settings.python = options.get_string("python");
    sandbox = std::make_unique<eval::CodeSandbox>(settings);
  }
  return std::make_unique<CodeExam>(std::move(task), std::move(rows), plan, std::move(sandbox));
}

}  // namespace danlu::cli
