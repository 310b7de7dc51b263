// eval/benchmarks/prompts.h: rows become the questions that a model is asked.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/benchmarks/rows.h"
#include "eval/item.h"
#include "eval/model.h"
#include "eval/task.h"

namespace danlu::eval {

/// What a command line says about all tasks.
struct PromptSettings {
  std::optional<int64_t> num_fewshot;  ///< none: the task's
  std::optional<double> limit;         ///< below 1: that part of the rows, rounded up; else so many
  int64_t seed = 1234;                 ///< of the shots' drawing
  bool apply_chat_template = false;
  /// Each shot is a turn; false: one message holds all. None: as the task's frame says.
  std::optional<bool> fewshot_as_multiturn = std::nullopt;
  std::optional<std::string> system_instruction;
  std::string language = "en";  ///< "en" or "zh": what prompts know as eval_language
};

/// How many shots a task gets; a task's own zero outweighs what is asked.
int64_t num_shots_of(const Task& task, const PromptSettings& settings);

/// Whether shots become turns of a conversation.
bool asks_in_turns(const Task& task, const PromptSettings& settings);

/// Whether its prompts are others in another PromptSettings::language.
bool reads_eval_language(const Task& task);

/// How many of `all` rows the limit leaves. Errors: UsageError of a limit that is not above zero.
int64_t num_items(int64_t all, const std::optional<double>& limit);

/// An item for each row of `test` within the limit, the text as lm-eval's rules build it. `model`
/// is needed for chat templates only. Errors: DataError: no rows; fewer shots than asked for,
/// naming split and counts; a row that a template cannot be filled with, a choice or target that is
/// not there, naming row and field. UsageError: a limit or a number of shots below zero, shots for
/// a perplexity.
std::vector<Item> make_items(const Task& task, const Rows& test, const Rows& shots,
                             const PromptSettings& settings, const Model* model = nullptr);

}  // namespace danlu::eval
