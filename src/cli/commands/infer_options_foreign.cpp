// Flags of ms-swift's infer, HF's generate scripts and MindSpeed-LLM's inference.py that Danlu does
// not have. What cannot change an answer is taken with a notice; what would is refused.
#include <set>

#include "cli/commands/foreign_options.h"
#include "cli/commands/inference_options.h"
#include "cli/commands/train_options.h"

namespace danlu::cli {
namespace {

/// Left alone when answering: what the checkpoint is, and how training was done, it says itself.
std::vector<OptionSpec> repeated_from_training(const std::vector<OptionSpec>& own) {
  std::set<std::string> known;
  for (const OptionSpec& spec : own) {
    known.insert(spec.name);
    known.insert(spec.aliases.begin(), spec.aliases.end());
  }
  std::vector<OptionSpec> repeated;
  for (const OptionSpec& spec : joined({train_megatron_options(), train_parallel_options()})) {
    std::vector<std::string> names = {spec.name};
    names.insert(names.end(), spec.aliases.begin(), spec.aliases.end());
    std::erase_if(names, [&](const std::string& name) { return known.count(name) > 0; });
    if (names.empty()) continue;
    const bool is_switch = spec.type == OptionType::kBool;
    const bool is_list = spec.type == OptionType::kList;
    const char* why = "one process answers with the whole model, as its checkpoint describes it";
    OptionSpec taken = is_switch ? ignored_switch(names, why) : ignored(names, why);
    if (is_list) taken.type = OptionType::kList;
    repeated.push_back(std::move(taken));
  }
  return repeated;
}

}  // namespace

std::vector<OptionSpec> foreign_inference_options(const std::vector<OptionSpec>& own) {
  std::vector<OptionSpec> foreign = {
      ignored({"infer_backend", "sft_type", "train_type", "tuner_type", "attn_impl", "flash_attn",
               "vllm_gpu_memory_utilization", "gpu_memory_utilization", "vllm_max_model_len",
               "max_model_len", "vllm_tensor_parallel_size"},
              "there is one engine, and files say what they are"),
      ignored_switch({"use_kv_cache", "use_flash_attn", "use_cache"},
                     "keys and values are always cached; there is one engine"),
      ignored_switch({"trust_remote_code", "use_fast_tokenizer"}, "no code of a model is ever run"),
      ignored({"micro_batch_size", "global_batch_size", "seq_length", "max_length", "lora_r",
               "lora_rank"},
              "requests set the batch, an adapter's files its shape"),
      {.name = "lora_target_modules",
       .type = OptionType::kList,
       .help = "accepted",
       .aliases = {"lora_modules_to_save"},
       .group = "Other systems",
       .ignored_because = "an adapter's files say where it sits"},
      ignored_switch({"lora_fusion", "lora_register_forward_hook", "lora_ckpt_filter"},
                     "an adapter's files say where it sits"),
      ignored({"dataset_seed", "dataset_test_ratio", "truncation_strategy"},
              "every row of the data set is asked, whole"),
      ignored_switch({"exit_on_missing_checkpoint"}, "a missing checkpoint is always an error"),
      ignored_switch({"no_load_optim", "no_load_rng", "no_save_optim", "no_save_rng", "finetune",
                      "is_instruction_dataset", "variable_seq_lengths"},
                     "weights alone are loaded"),
      ignored_switch({"merge_lora", "safe_serialization", "show_dataset_sample", "verbose",
                      "use_hf", "check_model_is_latest"},
                     "adapters are applied as they are; danlu merge writes merged models"),
      ignored({"load_args_from_ckpt_dir", "load_args"},
              "what a run recorded is read, and flags outweigh it"),
      unavailable({"quant_method", "quantization_bit", "load_in_8bit", "load_in_4bit",
                   "bnb_4bit_comp_dtype"},
                  "quantised weights are not in this version"),
      unavailable({"num_return_sequences", "best_of"}, "a prompt gets one answer", {"1"}),
      unavailable({"stop_words", "stop"},
                  "answers end at the tokens that generation_config.json and the template name"),
      unavailable({"presence_penalty", "frequency_penalty", "no_repeat_ngram_size", "typical_p",
                   "diversity_penalty", "num_beam_groups"},
                  "--repetition_penalty is what there is"),
      unavailable({"logprobs", "top_logprobs"}, "answers are text"),
      unavailable({"external_plugins", "custom_register_path"}, "no Python is ever run"),
  };
  for (OptionSpec& spec : multimodal_options()) foreign.push_back(std::move(spec));
  std::vector<OptionSpec> all = own;
  all.insert(all.end(), foreign.begin(), foreign.end());
  return joined({std::move(foreign), repeated_from_training(all)});
}

}  // namespace danlu::cli
