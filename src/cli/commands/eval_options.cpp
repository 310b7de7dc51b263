// The flags of `danlu eval`: lm-eval's, and those of MindSpeed-LLM's evaluation.py.
#include "cli/commands/commands.h"
#include "cli/commands/foreign_options.h"
#include "cli/commands/inference_options.h"
#include "cli/commands/train_options.h"
#include "cli/commands/train_profiles.h"

namespace danlu::cli {
namespace {

std::vector<OptionSpec> benchmark_options() {
  const std::string group = "Benchmarks";
  return {
      {.name = "tasks",
       .type = OptionType::kList,
       .help = "benchmarks, groups or subjects, a pattern (mmlu_*) too; `list` shows all",
       .aliases = {"task", "eval_dataset", "t"},
       .group = group},
      {.name = "data_dir",
       .help =
           "the benchmark's files as they were downloaded: a folder, a .zip or .tar; of several "
           "benchmarks a folder with one of each",
       .aliases = {"task_data_path"},
       .group = group},
      {.name = "style",
       .default_text = "lm-eval",
       .help = "whose prompts, shots and metrics: lm-eval, mindspeed or opencompass",
       .choices = {"lm-eval", "mindspeed", "mindspeed-alternative", "mindspeed-chat",
                   "mindspeed-cot", "opencompass"},
       .group = group},
      {.name = "eval_backend",
       .help = "ms-swift's: OpenCompass means --style opencompass, Native the default; either asks "
               "by the model's template, examples as turns",
       .choices = {"Native", "OpenCompass"},
       .group = group},
      {.name = "alternative_prompt",
       .type = OptionType::kBool,
       .help = "of mindspeed: --style mindspeed-alternative",
       .group = group},
      {.name = "chain_of_thought",
       .type = OptionType::kBool,
       .help = "of mindspeed: --style mindspeed-cot, for GSM8K and BBH",
       .group = group},
      {.name = "eval_language",
       .help = "of mindspeed: the language of the words around questions, where it has both "
               "(default: en)",
       .choices = {"en", "zh"},
       .group = group},
      {.name = "instruction_template",
       .help = "of mindspeed: how HumanEval asks, with {prompt} in it",
       .group = group},
      {.name = "num_fewshot",
       .type = OptionType::kInt,
       .help = "examples in front of each question (default: the benchmark's in its style)",
       .aliases = {"f"},
       .range = at_least(0).up_to(1000),
       .group = group},
      {.name = "all_subjects",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "an error if files of a subject of a benchmark are not there; else those that are "
               "there are asked, and counted",
       .group = group},
      {.name = "limit",
       .type = OptionType::kFloat,
       .help = "only the first n rows of each task; below 1: that part of them",
       .aliases = {"max_eval_samples", "eval_limit", "L"},
       .range = above(0),
       .group = group},
      {.name = "include_path",
       .type = OptionType::kList,
       .help = "your own task files (.yaml), or folders of them",
       .group = group},
      {.name = "fewshot_file",
       .help = "file with the examples that stand before questions, for benchmarks whose examples "
               "are another program's own",
       .group = group},
      {.name = "haystack_tokenizer",
       .help = "NeedleBench: what counts the length of texts, a cl100k_base.tiktoken or a "
               "tokenizer (default: the model's)",
       .group = group},
      {.name = "max_position_embeddings",
       .type = OptionType::kInt,
       .help = "of mindspeed: which of NeedleBench's windows is asked, 131072 for 128k",
       .range = at_least(1),
       .group = group},
      {.name = "rope_scaling_type",
       .help = "of mindspeed: refused if it is not what the model's files say",
       .group = group},
  };
}

std::vector<OptionSpec> prompt_options() {
  const std::string group = "Template";
  return {
      {.name = "apply_chat_template",
       .help =
           "ask by a chat template: the model's own, or the one that is named, as --prompt_type "
           "names it",
       .group = group,
       .may_be_alone = true},
      {.name = "no_chat_template",
       .type = OptionType::kBool,
       .help = "ask plainly, whatever else is named",
       .group = group},
      {.name = "fewshot_as_multiturn",
       .type = OptionType::kBool,
       .help = "with a template: examples are turns of the conversation",
       .group = group},
  };
}

std::vector<OptionSpec> answer_options() {
  const std::string group = "Answers";
  return {
      {.name = "gen_kwargs",
       .type = OptionType::kList,
       .help = "how answers are generated, over the benchmark's own: max_gen_toks=512,"
               "temperature=0.7,do_sample=true, JSON, or a map in a file",
       .group = group,
       .takes_map = true},
      {.name = "max_new_tokens",
       .type = OptionType::kInt,
       .help = "the same as --gen_kwargs max_gen_toks=N",
       .aliases = {"max_gen_toks", "max_completion_length", "response_length"},
       .range = at_least(1).up_to(1 << 24),
       .group = group},
      {.name = "temperature",
       .type = OptionType::kFloat,
       .help = "the same as --gen_kwargs temperature=T, above 0 answers are drawn",
       .range = at_least(0),
       .group = group},
      {.name = "top_p",
       .type = OptionType::kFloat,
       .help = "the same as --gen_kwargs top_p=P",
       .group = group},
      {.name = "top_k",
       .type = OptionType::kInt,
       .help = "the same as --gen_kwargs top_k=N, -1 for all",
       .group = group},
      {.name = "eval_generation_config",
       .type = OptionType::kList,
       .help = "ms-swift's name of --gen_kwargs",
       .group = group,
       .takes_map = true},
      {.name = "seed",
       .type = OptionType::kList,
       .default_text = "0,1234,1234,1234",
       .help =
           "one for all, or as lm-eval's four; the third draws answers, the fourth examples; None "
           "leaves one as it is",
       .group = group},
      {.name = "allow_code_execution",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "run the code that the model writes for HumanEval, in a sandbox",
       .aliases = {"confirm_run_unsafe_code"},
       .group = group},
      {.name = "python",
       .default_text = "python3",
       .help = "the interpreter that runs it",
       .group = group,
       .scope = OptionScope::kMachine},
  };
}

std::vector<OptionSpec> examination_options() {
  const std::string group = "Run";
  return {
      {.name = "model_args",
       .type = OptionType::kList,
       .help =
           "as lm-eval takes it: pretrained=DIR, peft=DIR, tokenizer=DIR, dtype=bfloat16, "
           "max_length=N, add_bos_token=true, think_end_token=</think>, JSON, or a map in a file",
       .aliases = {"a"},
       .group = "Model",
       .takes_map = true},
      {.name = "batch_size",
       .default_text = "auto",
       .help = "texts in a pass of the model, or auto",
       .aliases = {"evaluation_batch_size", "b", "per_device_eval_batch_size"},
       .group = group},
      {.name = "max_batch_size",
       .type = OptionType::kInt,
       .help = "the most that --batch_size auto may take",
       .range = at_least(1).up_to(65536),
       .group = group},
      {.name = "deterministic",
       .type = OptionType::kBool,
       .default_text = "false",
       .help =
           "each text alone: the same bits whatever the batch size and the number of processes; "
           "slower",
       .group = group},
      {.name = "output_path",
       .help = "folder for results and samples (default: eval_result/MODEL)",
       .aliases = {"o", "output_dir", "eval_output_dir"},
       .group = "Output",
       .scope = OptionScope::kStart},
      {.name = "log_samples",
       .type = OptionType::kBool,
       .default_text = "true",
       .help = "write each question with its answer and scores to samples_TASK_TIME.jsonl",
       .aliases = {"s"},
       .group = "Output"},
      {.name = "write_out",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "print the first question of each task as the model gets it",
       .aliases = {"w"},
       .group = "Output"},
      {.name = "predict_only",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "write the answers, score nothing",
       .aliases = {"x"},
       .group = "Output"},
      {.name = "resume",
       .type = OptionType::kBool,
       .default_text = "true",
       .help = "go on with what the same command answered before it was broken off",
       .group = "Output",
       .scope = OptionScope::kStart},
  };
}

std::vector<OptionSpec> foreign_eval_options() {
  constexpr const char* kNotInKwargs =
      "what shapes answers is in --gen_kwargs: do_sample, temperature, top_p, top_k, num_beams";
  return {
      ignored({"verbosity", "cache_requests", "hf_hub_log_args", "wandb_args", "wandb_config_args",
               "trackio_args", "metadata"},
              "there is one log, and answers of a run that was broken off are kept by themselves"),
      ignored_switch({"show_config", "check_integrity", "broadcast"},
                     "the results say how they were made"),
      ignored_switch({"origin_postprocess"},
                     "answers are read without looking at the right one; the results list it"),
      ignored_switch({"greedy"}, "answers are the likeliest unless --gen_kwargs says otherwise"),
      unavailable({"do_sample"}, "answers are the likeliest unless --gen_kwargs says otherwise", {},
                  "--gen_kwargs do_sample=true"),
      unavailable({"num_beams", "eval_num_beams"},
                  "answers are the likeliest unless --gen_kwargs says otherwise", {"1"},
                  "--gen_kwargs num_beams=4"),
      unavailable({"repetition_penalty", "length_penalty"}, kNotInKwargs, {"1", "1.0"}),
      unavailable({"min_p", "presence_penalty", "frequency_penalty", "no_repeat_ngram_size",
                   "typical_p", "diversity_penalty", "num_beam_groups"},
                  kNotInKwargs),
      unavailable({"structured_outputs_regex", "vllm_structured_outputs_regex",
                   "vllm_guided_decoding_regex"},
                  "a benchmark is asked as --style has it"),
      unavailable({"add_bos_token"},
                  "special tokens follow from the tokenizer's files and the template", {"none"},
                  "--model_args add_bos_token=true"),
      unavailable({"samples", "E"}, "--limit takes the first rows of each task"),
      unavailable({"eval_url"}, "models are examined here, not asked over a network", {},
                  tr("--model DIR names the model that answers there")),
      ignored_switch({"local_dataset"}, "--data_dir names the benchmark's files"),
      unavailable({"extra_eval_args"}, "a benchmark is asked as --style has it", {"{}"}),
      ignored({"eval_num_proc"}, "texts go through the model together"),
      unavailable({"eval_dataset_args"}, "a benchmark is asked as --style has it", {},
                  tr("--num_fewshot says how many examples, --tasks may name single subjects")),
  };
}

/// The flags that model_options() has, and what lm-eval calls them.
std::vector<OptionSpec> examined_model_options() {
  std::vector<OptionSpec> model = model_options();
  for (OptionSpec& spec : model) {
    if (spec.name == "system") spec.aliases.push_back("system_instruction");
    if (spec.name == "model") spec.aliases.push_back("M");
  }
  return model;
}

}  // namespace

OptionTable eval_options() {
  const std::vector<OptionSpec> own = joined(
      {examined_model_options(), processor_options(), benchmark_options(), prompt_options(),
       answer_options(), examination_options(), train_launch_options(), foreign_eval_options()});
  std::vector<OptionSpec> foreign = foreign_inference_options(own);
  // lm-eval's is a path, not a switch.
  for (OptionSpec& spec : foreign) std::erase(spec.aliases, "use_cache");
  foreign.push_back(ignored({"use_cache", "c"},
                            "answers of a run that was broken off are kept by "
                            "themselves"));
  OptionTable table(
      "eval", "Examine a model with benchmarks",
      "danlu eval --model DIR --tasks NAME,NAME --data_dir DIR   --tasks list shows all",
      joined({own, std::move(foreign)}));
  table.add_profile({.name = "danlu", .system = "Danlu"});
  OptionProfile mindspeed{.name = "mindspeed",
                          .system = mindspeed_profile().system,
                          .values = {{"style", "mindspeed"}},
                          .marks = mindspeed_profile().marks};
  for (const char* mark : {"task_data_path", "evaluation_batch_size", "max_eval_samples"})
    mindspeed.marks.push_back({mark});
  table.add_profile(std::move(mindspeed));
  return table;
}

}  // namespace danlu::cli
