// cli/engine/eval_mindspeed.h: what MindSpeed-LLM's evaluation.py understands by flags that say it
// in another way than `danlu eval` does.
#pragma once
#include <vector>

#include "arch/model_config.h"
#include "base/options.h"
#include "eval/task.h"

namespace danlu::cli {

/// In the style mindspeed: --alternative_prompt and --chain_of_thought name a style, else
/// --prompt_type and --hf_chat_template that of tuned models; the task needlebench is the single
/// retrieval of the window that --max_position_embeddings gives. Other command lines stay as they
/// are. Errors: UsageError: two styles at once, a style of another system beside such a flag, the
/// style of tuned models without a template, a window that there is not.
Options as_mindspeed_means(const Options& options);

/// Whether it puts questions into a chat template.
bool mindspeed_asks_by_template(const Options& options);

/// --instruction_template is how HumanEval asks. Errors: UsageError: it has not {prompt} once, or
/// other braces.
void take_instruction_template(const Options& options, std::vector<eval::Task>& tasks);

/// A notice where --eval_language changes nothing, or, not given, leaves English around questions
/// in Chinese.
void say_language(const Options& options, const std::vector<eval::Task>& tasks);

/// REQUIRES: a template is applied. What differs from MindSpeed-LLM by the template alone goes into
/// the differences of `tasks`.
void say_template_differences(const Options& options, std::vector<eval::Task>& tasks);

/// What tasks that ms-swift's backend Native asks have otherwise here: says it, and adds it to
/// their differences.
void say_backend_differences(const Options& options, std::vector<eval::Task>& tasks);

/// Errors: UsageError if --rope_scaling_type is another than the model's: answers to long texts
/// would differ.
void check_rope_scaling(const Options& options, const arch::ModelConfig& config);

}  // namespace danlu::cli
