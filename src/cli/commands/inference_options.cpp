#include "cli/commands/inference_options.h"

#include <utility>

#include "cli/commands/media_options.h"

namespace danlu::cli {

std::vector<OptionSpec> checkpoint_options(const std::string& group) {
  return {
      {.name = "hf_config",
       .help = "directory with config.json, for a Megatron checkpoint without one",
       .aliases = {"hf_cfg_dir"},
       .group = group},
      {.name = "iteration",
       .help = "Megatron: iteration, or release (default: the tracker file's)",
       .aliases = {"load_iteration", "ckpt_step"},
       .group = group},
  };
}

std::vector<OptionSpec> opened_model_options(const std::string& group) {
  return joined({{{.name = "tokenizer",
                   .help = "tokenizer directory or file (default: the model's)",
                   .aliases = {"tokenizer_name_or_path", "tokenizer_path", "tokenizer_model"},
                   .group = group},
                  {.name = "lora_alpha",
                   .type = OptionType::kFloat,
                   .help = "of a MindSpeed LoRA that does not record it",
                   .group = group}},
                 checkpoint_options(group),
                 position_options(group),
                 overridden_config_options(group)});
}

std::vector<OptionSpec> position_options(const std::string& group) {
  return {
      {.name = "rope_scaling",
       .help = "how positions are stretched, in place of config.json's: linear, dynamic or yarn, "
               "as far as --max_model_len says, or rope_scaling's JSON",
       .group = group},
      {.name = "max_model_len",
       .type = OptionType::kInt,
       .help = "with --rope_scaling linear, dynamic or yarn: tokens that are to be read",
       .range = at_least(1).up_to(1 << 24),
       .group = group},
  };
}

std::vector<OptionSpec> overridden_config_options(const std::string& group) {
  return {
      {.name = "rope_theta",
       .type = OptionType::kFloat,
       .help = "base of the rotary angles, in place of config.json's",
       .range = above(0),
       .group = group},
      {.name = "hf_overrides",
       .type = OptionType::kJson,
       .help = "keys of config.json that say how positions are stretched, as JSON: rope_scaling, "
               "rope_parameters, rope_theta, max_position_embeddings",
       .group = group},
  };
}

namespace {

/// How ms-swift and LLaMA-Factory say --quantize.
std::vector<OptionSpec> bits_options() {
  const std::string group = "Model";
  return {
      {.name = "quantization_bit",
       .type = OptionType::kInt,
       .default_text = "0",
       .help = "4: the same as --quantize nf4; 8: as --quantize q8_0; 0: as the files have them",
       .aliases = {"quant_bits"},
       .group = group},
      {.name = "load_in_4bit",
       .type = OptionType::kBool,
       .help = "the same as --quantize nf4",
       .group = group},
      {.name = "load_in_8bit",
       .type = OptionType::kBool,
       .help = "the same as --quantize q8_0",
       .group = group},
      {.name = "quantization",
       .help = "vLLM's name: bitsandbytes is --quantize nf4, gguf as the file has them",
       .aliases = {"vllm_quantization", "sglang_quantization"},
       .choices = {"bitsandbytes", "gguf"},
       .group = group},
      {.name = "quant_method",
       .help = "the program whose kind of 4 bits is meant",
       .aliases = {"quantization_method"},
       .choices = {"bnb", "bitsandbytes"},
       .group = group},
      {.name = "bnb_4bit_quant_type",
       .help = "the data type of 4-bit weights",
       .aliases = {"quantization_type"},
       .choices = {"nf4"},
       .group = group},
      {.name = "double_quantization",
       .type = OptionType::kBool,
       .help = "the scales of NF4's blocks are quantised too (default: true)",
       .aliases = {"bnb_4bit_use_double_quant"},
       .group = group},
  };
}

}  // namespace

std::vector<OptionSpec> model_options() {
  std::vector<OptionSpec> model = {
      {.name = "model",
       .help = "HF or Megatron directory, or a GGUF file (or the first word)",
       .aliases = {"model_name_or_path", "model_id_or_path", "load_dir", "load", "m"},
       .group = "Model",
       .word = 1},
      {.name = "model_type",
       .help = "short name of a model in the local caches, e.g. qwen1half-7b-chat",
       .group = "Model"},
      {.name = "adapters",
       .help =
           "adapter or checkpoint directory (PEFT layout, MindSpeed LoRA, or a full checkpoint)",
       .aliases = {"ckpt_dir", "adapter_name_or_path", "adapter_path", "lora_load"},
       .group = "Model"},
  };
  std::vector<OptionSpec> rest = {
      {.name = "dtype",
       .help = "type to compute in (default: the files' own)",
       .aliases = {"torch_dtype", "params_dtype", "infer_dtype"},
       .choices = {"fp32", "bf16", "fp16", "float32", "bfloat16", "float16", "AUTO", "auto",
                   "float", "half"},
       .group = "Model"},
      {.name = "bf16",
       .type = OptionType::kBool,
       .help = "the same as --dtype bf16",
       .group = "Model"},
      {.name = "fp16",
       .type = OptionType::kBool,
       .help = "the same as --dtype fp16",
       .group = "Model"},
      {.name = "quantize",
       .default_text = "auto",
       .help =
           "matrices held in blocks of 8 or 4 bits, or in NF4 (auto: those that the files hold so; "
           "none: no matrix)",
       .choices = {"auto", "none", "q8_0", "q4_0", "nf4"},
       .group = "Model"},
      {.name = "add_eos_token",
       .type = OptionType::kList,
       .help = "tokens that end an answer, beside the model's and the template's",
       .group = "Template"},
      {.name = "qlora",
       .type = OptionType::kBool,
       .help = "the same as --quantize nf4",
       .group = "Model"},
      {.name = "device",
       .default_text = "auto",
       .help = "cpu, cuda[:n], npu[:n] (auto: the first accelerator, else the CPU)",
       .group = "Model"},
      {.name = "prompt_type",
       .help = "template name or .jinja file (default: the model's own)",
       .aliases = {"template", "template_type"},
       .group = "Template"},
      {.name = "hf_chat_template",
       .type = OptionType::kBool,
       .help = "the tokenizer's own template, whatever a run recorded: --prompt_type hf",
       .group = "Template"},
      {.name = "prompt_type_path",
       .help = "file with further templates",
       .aliases = {"template_file", "templates_file"},
       .group = "Template"},
      {.name = "chat_template_kwargs",
       .type = OptionType::kJson,
       .help = "variables for the template, e.g. '{\"enable_thinking\": false}'",
       .group = "Template"},
      {.name = "enable_thinking",
       .type = OptionType::kBool,
       .help = "the same in --chat_template_kwargs: whether the model may think aloud first",
       .group = "Template"},
      {.name = "system",
       .help = "system message, or a file that holds it",
       .aliases = {"default_system", "system_prompt"},
       .group = "Template"},
  };
  return joined({std::move(model), opened_model_options("Model"), std::move(rest), bits_options()});
}

std::vector<OptionSpec> processor_options() {
  return joined({{{.name = "image_processor",
                   .help = "directory with preprocessor_config.json (default: the model's)",
                   .aliases = {"image_processer_path"},
                   .group = "Pictures and video"}},
                 media_options()});
}

std::vector<OptionSpec> prompt_media_options() {
  const std::string group = "Pictures and video";
  return joined({{{.name = "image",
                   .type = OptionType::kList,
                   .help = "pictures of the prompt: where it has <image>, else before it; in a "
                           "chat, of the first message",
                   .aliases = {"images"},
                   .group = group},
                  {.name = "video",
                   .type = OptionType::kList,
                   .help = "videos of the prompt: where it has <video>, else before it",
                   .aliases = {"videos"},
                   .group = group}},
                 processor_options()});
}

std::vector<OptionSpec> sampling_options() {
  return {
      {.name = "max_new_tokens",
       .type = OptionType::kInt,
       .help = "longest answer, in tokens (default: generation_config.json, else 512)",
       .aliases = {"max_completion_length", "response_length"},
       .range = at_least(1).up_to(1 << 24),
       .group = "Generation"},
      {.name = "do_sample",
       .type = OptionType::kBool,
       .help = "draw tokens instead of taking the likeliest",
       .group = "Generation"},
      {.name = "temperature",
       .type = OptionType::kFloat,
       .help = "softmax temperature; giving it (or top_k, top_p, min_p) turns sampling on, 0 turns "
               "it off",
       .range = at_least(0),
       .group = "Generation"},
      {.name = "top_k",
       .type = OptionType::kInt,
       .help = "keep the k likeliest tokens (0 = all)",
       .range = at_least(0).or_value(-1),
       .group = "Generation"},
      {.name = "top_p",
       .type = OptionType::kFloat,
       .help = "keep the smallest set of tokens with this probability (1 = all)",
       .range = above(0).up_to(1),
       .group = "Generation"},
      {.name = "min_p",
       .type = OptionType::kFloat,
       .help = "drop tokens below min_p times the likeliest (0 = none)",
       .range = at_least(0).below(1),
       .group = "Generation"},
      {.name = "repetition_penalty",
       .type = OptionType::kFloat,
       .help = "> 1 makes tokens seen before less likely",
       .range = above(0),
       .group = "Generation"},
      {.name = "num_beams",
       .type = OptionType::kInt,
       .help = "beams (1 = no beam search)",
       .aliases = {"eval_num_beams"},
       .range = at_least(1).up_to(64),
       .group = "Generation"},
      {.name = "length_penalty",
       .type = OptionType::kFloat,
       .help = "beam scores are divided by length^this",
       .range = NumberRange(),
       .group = "Generation"},
      {.name = "seed",
       .type = OptionType::kInt,
       .default_text = "0",
       .help = "seed of all random draws",
       .range = at_least(0),
       .group = "Generation"},
  };
}

OptionSpec stop_words_option(const std::string& group) {
  return {.name = "stop_words",
          .type = OptionType::kList,
          .help =
              "texts that end an answer, each with its spaces and commas; what stands before "
              "them is the answer",
          .aliases = {"stop"},
          .group = group,
          .keeps_words = true};
}

std::vector<OptionSpec> answer_rule_options() {
  const std::string group = "Form of answers";
  return {
      stop_words_option(group),
      {.name = "presence_penalty",
       .type = OptionType::kFloat,
       .help = "taken from the logits of tokens that the answer has already",
       .range = at_least(-2).up_to(2),
       .group = group},
      {.name = "frequency_penalty",
       .type = OptionType::kFloat,
       .help = "the same for each time that it has them",
       .range = at_least(-2).up_to(2),
       .group = group},
      {.name = "logit_bias",
       .type = OptionType::kJson,
       .help = "added to the logits of tokens, by id: {\"1234\": -100}",
       .group = group},
      {.name = "min_new_tokens",
       .type = OptionType::kInt,
       .help = "tokens before which no answer ends",
       .aliases = {"min_tokens"},
       .range = at_least(0).up_to(1 << 24),
       .group = group},
      {.name = "guided_json",
       .help = "answers are JSON that satisfies this schema: the schema itself, or its file",
       .aliases = {"structured_outputs_json"},
       .group = group},
      {.name = "guided_regex",
       .help = "answers match this regular expression as a whole",
       .aliases = {"structured_outputs_regex", "vllm_structured_outputs_regex",
                   "vllm_guided_decoding_regex"},
       .group = group},
      {.name = "guided_choice",
       .type = OptionType::kList,
       .help = "answers are one of these",
       .aliases = {"structured_outputs_choice"},
       .group = group,
       .keeps_words = true},
  };
}

OptionSpec speculation_option(const std::string& group) {
  return {.name = "speculative_config",
          .type = OptionType::kJson,
          .help =
              "tokens guessed from the text so far, which must be what is drawn to count: "
              "{\"method\": \"ngram\", \"num_speculative_tokens\": 4, \"prompt_lookup_max\": "
              "4}, or by the model's layer that predicts further ahead: {\"method\": \"mtp\"}",
          .group = group};
}

std::vector<OptionSpec> model_parts_options() {
  const std::string group = "Several processes";
  return {
      {.name = "tensor_parallel_size",
       .type = OptionType::kInt,
       .default_text = "1",
       .help = "processes that each hold a part of every layer and answer together; those that "
               "nobody has started are started here",
       .aliases = {"tp", "vllm_tensor_parallel_size", "sglang_tp_size", "lmdeploy_tp"},
       .range = at_least(1).up_to(1024),
       .group = group},
      {.name = "ddp_timeout",
       .type = OptionType::kFloat,
       .default_text = "1800",
       .help = "seconds that they wait for one another",
       .aliases = {"dist_timeout"},
       .range = above(0),
       .group = group},
  };
}

std::vector<OptionSpec> joined(std::vector<std::vector<OptionSpec>> groups) {
  std::vector<OptionSpec> all;
  for (std::vector<OptionSpec>& group : groups) {
    for (OptionSpec& spec : group) all.push_back(std::move(spec));
  }
  return all;
}

}  // namespace danlu::cli
