// eval/task.h: a benchmark as data: where its rows lie, how they are asked, how answers are scored.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "eval/item.h"

namespace danlu::eval {

enum class OutputType {
  kMultipleChoice,    ///< one kLikelihood call for each choice
  kGenerateUntil,     ///< one kGeneration call for each repeat
  kLogLikelihood,     ///< one kLikelihood call: the target
  kRollingLikelihood  ///< one kRolling call: the target (perplexity)
};

/// One step of a filter: turns the answers to one item into others. Names and arguments are those
/// of lm-eval, and some more: see eval/scoring/filters.h.
struct FilterStep {
  std::string function;
  Json arguments = Json::object();
};

struct Filter {
  std::string name = "none";
  std::vector<FilterStep> steps;
};

/// A number that each item gets, and how those of all items become one.
struct Metric {
  std::string name;  ///< "acc", "acc_norm", "exact_match", "pass@1", …
  std::string aggregation = "mean";
  bool higher_is_better = true;
  Json arguments = Json::object();  ///< exact_match: regexes_to_ignore, ignore_case, …
  /// Name in results; empty: `name`. AGIEval's mathematics count in its group's "acc".
  std::string report_as = {};
};

enum class FewShotSampler {
  kFirst,        ///< the first rows of the split
  kRandom,       ///< Python's random.Random(seed).sample, its state advancing from item to item
  kPermutation,  ///< the first of numpy's RandomState(seed).permutation, for every item the same
};

/// Which message holds what, where a chat template is applied.
enum class ChatFrame {
  kTurns,       ///< the description in the system message, each shot a turn
  kOneMessage,  ///< what would be asked plainly is one message of the user
  kPlain,       ///< no template is applied, whatever a command line says
};

/// A leaf: one set of rows, asked in one way. What groups say is in Benchmark.
struct Task {
  std::string name;                    ///< "mmlu_abstract_algebra"
  std::string benchmark;               ///< "mmlu": the file that it comes from
  std::string alias;                   ///< "abstract_algebra": what tables show
  std::string style;                   ///< "lm-eval", "mindspeed", …
  std::string subject, subject_title;  ///< empty where the benchmark has none
  Json version = 1;
  OutputType output = OutputType::kMultipleChoice;
  std::string test_split, fewshot_split;

  // Jinja templates over a row's fields, or the name of one. doc_to_choice may also be a JSON array
  // of texts that stand as they are.
  std::string description, doc_to_text, doc_to_target, doc_to_choice;
  /// Fields whose values name the pictures of a question, a path or a list of such. They stand
  /// where doc_to_text writes <image>, or before a question that has none.
  std::vector<std::string> image_fields = {};
  std::string gen_prefix = {};  ///< what the answer begins with, given to the model
  std::string target_delimiter = " ", fewshot_delimiter = "\n\n";
  std::string system_instruction = {};
  int64_t num_fewshot = 0;
  bool is_num_fewshot_fixed = false;  ///< the task says 0: asking for others is of no effect
  FewShotSampler sampler = FewShotSampler::kFirst;
  /// The question itself is no shot: of kRandom one more is drawn, and the row that equals it
  /// dropped.
  bool leaves_question_out = false;
  // How shots are written where that differs from the question; empty: as it.
  std::string shot_to_text = {}, shot_to_target = {}, shot_gen_prefix = {};
  ChatFrame chat_frame = ChatFrame::kTurns;
  std::vector<Json> fixed_shots = {};  ///< rows that stand in the task file, or the user's file

  GenerationRules generation;
  int64_t repeats = 1;
  std::vector<Filter> filters = {{}};
  std::vector<Metric> metrics;
  /// Where this differs from the program whose style it is, a sentence each; part of results.
  std::vector<std::string> differences = {};
};

/// A named set of leaves and groups with one score.
struct Group {
  std::string name, alias;
  std::vector<std::string> members;  ///< names of leaves or groups
  std::vector<std::string> metrics;  ///< which are aggregated
  bool weight_by_size = true;        ///< micro: every item counts the same; false: macro
  /// Not empty: of the members, in their order; then the score is their weighted mean.
  std::vector<double> weights = {};
  /// Leaves below it whose files were there, and all that it has; 0: every one is asked.
  int64_t num_asked = 0, num_leaves = 0;
};

}  // namespace danlu::eval
