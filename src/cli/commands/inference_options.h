// cli/commands/inference_options.h: options that every verb which talks to a model shares.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"

namespace danlu::cli {

/// How a checkpoint that does not describe itself is opened: config.json, iteration, LoRA's scale.
/// Shared by every verb that opens one.
std::vector<OptionSpec> checkpoint_options(const std::string& group);
/// How positions are stretched; shared with the training verbs.
std::vector<OptionSpec> position_options(const std::string& group);
/// Keys of config.json that are others, as vLLM has them.
std::vector<OptionSpec> overridden_config_options(const std::string& group);
/// checkpoint_options, position_options, overridden_config_options, and whose tokenizer and which
/// scale of LoRA go with it.
std::vector<OptionSpec> opened_model_options(const std::string& group);
/// Model, adapters, template, dtype.
std::vector<OptionSpec> model_options();
/// What is done to pictures and videos, and whose processor does it.
std::vector<OptionSpec> processor_options();
/// processor_options, and the pictures and videos of a prompt.
std::vector<OptionSpec> prompt_media_options();
/// Texts that end answers, by the names of ms-swift and vLLM.
OptionSpec stop_words_option(const std::string& group);
/// Sampling and lengths.
std::vector<OptionSpec> sampling_options();
/// What answers must be beside what is likely: penalties, biases, least lengths, forms.
std::vector<OptionSpec> answer_rule_options();
/// What other systems have and Danlu does not: taken with a notice, or refused. Flags that
/// MindSpeed-LLM's scripts repeat from training are those of the training verbs' table, but for
/// those that `own` has.
std::vector<OptionSpec> foreign_inference_options(const std::vector<OptionSpec>& own);
/// Flags about engines, of vLLM, ms-swift and LLaMA-Factory.
std::vector<OptionSpec> foreign_engine_options();
/// How tokens are guessed before they are drawn, as vLLM says it.
OptionSpec speculation_option(const std::string& group);
/// How many processes hold parts of the model, and how long they wait for one another.
std::vector<OptionSpec> model_parts_options();
/// Concatenation, in order.
std::vector<OptionSpec> joined(std::vector<std::vector<OptionSpec>> groups);

}  // namespace danlu::cli
