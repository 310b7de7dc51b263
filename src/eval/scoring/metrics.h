// eval/scoring/metrics.h: one number for one item.
#pragma once
#include <string>
#include <vector>

#include "eval/item.h"
#include "eval/scoring/filters.h"
#include "eval/task.h"

namespace danlu::eval {

/// The names that a metric's values have in results: one, or of "pass@k" {k: [1, 10]} "pass@1" and
/// "pass@10".
std::vector<std::string> reported_names(const Metric& metric);

/// What a task's metric may be, of any kind of output, those measured elsewhere too; each once.
std::vector<std::string> metric_names();

/// Whether a metric is about answers that are executed: "pass@k", "pass@1", ….
bool runs_answers(const Metric& metric);

/// What is measured by who runs the answers (pass@k) or knows the rows (needle_score): its values
/// are put into ItemScore::values by them, under the metric's name.
bool is_measured_elsewhere(const Metric& metric);

/// A metric of a multiple choice: "acc", "acc_norm", "acc_bytes", "ppl_acc", "exact_match" (the
/// right choice is what the model would have written). `is_near_tie` is set where the two best are.
/// Errors: DataError if the target is no choice.
double choice_metric(const Metric& metric, const Item& item, const std::vector<Answer>& answers,
                     bool& is_near_tie);

/// A metric of one continuation: "acc" (greedy), "perplexity"; of a rolling text:
/// "word_perplexity", "byte_perplexity", "bits_per_byte" as [log-likelihood, words or bytes].
Json likelihood_metric(const Metric& metric, const Item& item, const Answer& answer);

/// A metric of what was written: 1 if any of the targets is met; of several answers the mean.
///   exact_match {ignore_case, ignore_punctuation, ignore_numbers, regexes_to_ignore}: both sides
///     without what the patterns match, then without case, ASCII punctuation, digits;
///   math_equal {parse_target}: eval/scoring/math_equal.h; with parse_target the target too is
///   reduced by
///     final_math_answer first, as lm-eval does;
///   number_equal {thousands_separators}: the last numbers, less than 1e-6 apart.
double text_metric(const Metric& metric, const Item& item, const FilteredTexts& answers);

/// Errors: DataError saying what is wrong: a metric that `output` has not, an unknown argument or
/// aggregation, a broken pattern.
void check_metric(const Metric& metric, OutputType output);

/// The texts that are right: the target itself, or the choices that it names.
/// Errors: DataError if it names none.
std::vector<std::string> target_texts(const Item& item);
/// The right choices by place; a text is looked for among the choices.
/// Errors: DataError if there is none.
std::vector<size_t> target_choices(const Item& item);

}  // namespace danlu::eval
