// The flags of `danlu convert`: its own short ones and MindSpeed-LLM's convert_ckpt.py.
#include "cli/commands/commands.h"
#include "cli/commands/convert_plan.h"
#include "cli/commands/foreign_options.h"

namespace danlu::cli {

std::vector<OptionSpec> conversion_run_options() {
  return {
      {.name = "check",
       .type = OptionType::kBool,
       .help = "read the result back and compare every bit (default: below 2 GB)",
       .group = "Running"},
      {.name = "checksums",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "print the checksum of every tensor, and write them to OUTPUT.checksums",
       .group = "Running"},
      {.name = "overwrite",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "replace an existing output",
       .group = "Running"},
      {.name = "threads",
       .type = OptionType::kInt,
       .help = "writing threads (default: the CPUs, at most 8)",
       .aliases = {"workers", "num_workers"},
       .range = at_least(1).up_to(64),
       .group = "Running"},
  };
}

namespace {

std::vector<OptionSpec> place_options() {
  return {
      {.name = "load_dir",
       .help = "checkpoint to convert (or the first word)",
       .aliases = {"load", "input"},
       .group = "What",
       .word = 1},
      {.name = "save_dir",
       .help = "where to write (or the second word)",
       .aliases = {"save", "output", "o", "outfile"},
       .group = "What",
       .word = 2},
      {.name = "to",
       .help = "format to write",
       .choices = {"hf", "mcore", "legacy", "mm", "native", "gguf", "peft"},
       .group = "What"},
      {.name = "dtype",
       .help = "type to store (default: the source's, tensor by tensor)",
       .aliases = {"params_dtype", "torch_dtype"},
       .choices = {"fp32", "bf16", "fp16", "float32", "bfloat16", "float16"},
       .group = "What"},
      {.name = "quantization_bit",
       .type = OptionType::kInt,
       .default_text = "0",
       .help = "4: linear layers are stored in NF4, as bitsandbytes does (--to hf)",
       .group = "What"},
      {.name = "double_quantization",
       .type = OptionType::kBool,
       .default_text = "true",
       .help = "the factors of NF4 are quantised too: 4.13 bits a weight instead of 4.5",
       .aliases = {"bnb_4bit_use_double_quant"},
       .group = "What"},
      {.name = "qlora_nf4",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "the same as --quantization_bit 4; Megatron's formats are written as they are, and "
               "quantised when they are trained on",
       .group = "What"},
      {.name = "adapters",
       .help = "PEFT adapter or MindSpeed LoRA checkpoint to merge into the model",
       .aliases = {"lora_load", "adapter"},
       .group = "What"},
      {.name = "hf_config",
       .help = "directory with config.json and tokenizer, for a Megatron checkpoint without them",
       .aliases = {"hf_cfg_dir", "hf_dir"},
       .group = "What"},
      {.name = "tokenizer_model",
       .help = "tokenizer file or directory to put beside the weights (default: the source's)",
       .aliases = {"tokenizer_name_or_path", "tokenizer"},
       .group = "What"},
      {.name = "iteration",
       .help = "Megatron source: iteration, or release (default: the tracker file's)",
       .aliases = {"load_iteration"},
       .group = "What"},
  };
}

std::vector<OptionSpec> split_options() {
  return {
      {.name = "tp",
       .type = OptionType::kInt,
       .default_text = "1",
       .help = "tensor parallel size",
       .aliases = {"target_tensor_parallel_size", "tensor_model_parallel_size"},
       .range = at_least(1).up_to(4096),
       .group = "Split"},
      {.name = "pp",
       .type = OptionType::kInt,
       .default_text = "1",
       .help = "pipeline parallel size",
       .aliases = {"target_pipeline_parallel_size", "pipeline_model_parallel_size"},
       .range = at_least(1).up_to(4096),
       .group = "Split"},
      {.name = "ep",
       .type = OptionType::kInt,
       .default_text = "1",
       .help = "expert parallel size",
       .aliases = {"target_expert_parallel_size", "target_expert_model_parallel_size",
                   "expert_model_parallel_size"},
       .range = at_least(1).up_to(4096),
       .group = "Split"},
      {.name = "vpp",
       .type = OptionType::kInt,
       .help = "virtual pipeline stages (chunks) of each stage",
       .aliases = {"virtual_pipeline_model_parallel_size"},
       .range = at_least(1).up_to(4096),
       .group = "Split"},
      {.name = "num_layers_per_virtual_pipeline_stage",
       .type = OptionType::kInt,
       .help = "the same, as layers of a chunk",
       .range = at_least(1).up_to(4096),
       .group = "Split"},
      {.name = "num_layer_list",
       .type = OptionType::kList,
       .help = "layers of each pipeline stage, e.g. 11,13,19,21",
       .group = "Split"},
      {.name = "llm_pp_layers",
       .type = OptionType::kList,
       .help = "MindSpeed-MM: decoder layers of each stage, e.g. [1,10,10,7], or of each chunk",
       .group = "Split"},
      {.name = "vit_pp_layers",
       .type = OptionType::kList,
       .help = "MindSpeed-MM: blocks of the vision tower, likewise (default: all in the first)",
       .group = "Split"},
      {.name = "noop_layers",
       .type = OptionType::kList,
       .help = "global layer slots that stay empty, e.g. 0,63",
       .group = "Split"},
      {.name = "make_vocab_size_divisible_by",
       .type = OptionType::kInt,
       .help = "pad the vocabulary to a multiple of this times tp (default: the source's, else 1)",
       .range = at_least(1).up_to(1 << 20),
       .group = "Split"},
      {.name = "moe_tp_extend_ep",
       .type = OptionType::kBool,
       .help = "deal experts over tp·ep ranks instead of cutting them",
       .group = "Split"},
  };
}

std::vector<OptionSpec> form_options() {
  return {
      {.name = "transformer_impl",
       .help = "names of Megatron-core modules (default: the source's, else local)",
       .choices = {"local", "transformer_engine"},
       .group = "Form"},
      {.name = "experts",
       .help = "how experts are stored (default: the source's, else sequential)",
       .choices = {"sequential", "grouped", "te_grouped"},
       .group = "Form"},
      {.name = "moe_grouped_gemm",
       .type = OptionType::kBool,
       .help = "the same as --experts grouped",
       .group = "Form"},
      {.name = "target_iteration",
       .help = "iteration to write, or release (default: the source's, else 1)",
       .group = "Form"},
      {.name = "outtype",
       .default_text = "f16",
       .help = "GGUF: type of the matrices",
       .choices = {"f32", "f16", "bf16", "q8_0", "q4_0"},
       .group = "Form"},
      {.name = "max_shard_size",
       .default_text = "5GB",
       .help = "Hugging Face: largest file, e.g. 5GB, 500MB",
       .group = "Form"},
  };
}

std::vector<OptionSpec> optimizer_options() {
  return {
      {.name = "with_optimizer",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "convert Adam's state with the weights",
       .group = "Optimizer"},
      {.name = "use_distributed_optimizer",
       .type = OptionType::kBool,
       .help = "write flat buffers in distrib_optim.pt (default: as the source)",
       .group = "Optimizer"},
      {.name = "target_data_parallel_size",
       .type = OptionType::kInt,
       .help = "data parallel size of the next run: pads flat buffers (default: the source's)",
       .aliases = {"dp"},
       .range = at_least(1).up_to(1 << 20),
       .group = "Optimizer"},
      {.name = "overlap_grad_reduce",
       .type = OptionType::kBool,
       .help = "the next run overlaps gradient reduction: cuts flat buffers into buckets",
       .group = "Optimizer"},
  };
}

/// Flags of convert_ckpt.py that say what the files say: agreement is silent.
std::vector<OptionSpec> described_options() {
  const std::string group = "MindSpeed-LLM (checked against the files)";
  return {
      {.name = "model_type", .help = "GPT", .choices = {"GPT"}, .group = group},
      {.name = "load_model_type",
       .help = "what the source is: hf, mg, or optim (mg with its optimizer)",
       .choices = {"hf", "mg", "optim"},
       .group = group},
      {.name = "save_model_type",
       .help = "what to write: mg (legacy without --use-mcore-models), hf",
       .aliases = {"saver"},
       .choices = {"mg", "megatron", "hf"},
       .group = group},
      {.name = "use_mcore_models",
       .type = OptionType::kBool,
       .help = "mg means Megatron-core",
       .group = group},
      {.name = "load_from_legacy",
       .type = OptionType::kBool,
       .help = "the source is legacy Megatron",
       .group = group},
      {.name = "save_to_legacy",
       .type = OptionType::kBool,
       .help = "write legacy Megatron",
       .group = group},
      {.name = "model_type_hf",
       .help = "key of MindSpeed-LLM's model table, e.g. llama2, or the family, e.g. qwen2",
       .group = group},
      {.name = "add_qkv_bias",
       .type = OptionType::kBool,
       .help = "q, k, v have biases",
       .group = group},
      {.name = "add_dense_bias",
       .type = OptionType::kBool,
       .help = "the attention's output has a bias",
       .group = group},
      {.name = "w_pack",
       .type = OptionType::kBool,
       .help = "q, k, v are one matrix (Baichuan)",
       .group = group},
      {.name = "num_layers",
       .type = OptionType::kInt,
       .help = "layers of the model",
       .group = group},
      {.name = "load_checkpoint_loosely",
       .type = OptionType::kBool,
       .help = "go on where ranks have different copies of one tensor: the first rank's counts",
       .group = group},
      {.name = "lora_r", .type = OptionType::kInt, .help = "rank of the adapters", .group = group},
      {.name = "lora_alpha",
       .type = OptionType::kFloat,
       .help = "alpha of the adapters; needed where the checkpoint's args lack it",
       .group = group},
      {.name = "lora_target_modules",
       .type = OptionType::kList,
       .help = "modules the adapters sit on",
       .group = group},
  };
}

std::vector<OptionSpec> foreign_convert_options() {
  const std::string no_such_model = "no model family of this version has it";
  return {
      ignored({"ckpt_cfg_path"}, "the model is read from its own files"),
      ignored({"max_queue_size"}, "there is no queue between processes"),
      ignored({"loader", "plugin_name"}, "formats are told from the files"),
      ignored_switch({"no_checking", "load_hf_from_config"}, "every tensor is accounted for"),
      unavailable({"add_output_layer_bias"}, no_such_model),
      unavailable({"embed_layernorm"}, no_such_model),
      unavailable({"post_norm"}, no_such_model),
      ignored({"spec"}, "the layout follows from config.json"),
      unavailable({"orm"}, "reward heads are not converted by this version"),
      unavailable({"schedules_method"}, "the dual-pipe layout is not written by this version"),
      unavailable({"expert_tensor_parallel_size"}, "experts are cut as the dense layers are",
                  {"1"}),
      unavailable({"mtp_num_layers"}, no_such_model),
      unavailable({"tp_2d"}, "two-dimensional tensor parallelism is not written by this version"),
  };
}

}  // namespace

OptionTable convert_options() {
  std::vector<OptionSpec> all;
  for (auto& part : {place_options(), split_options(), form_options(), optimizer_options(),
                     conversion_run_options(), described_options(), foreign_convert_options()})
    all.insert(all.end(), part.begin(), part.end());
  return OptionTable(
      "convert",
      "Convert a checkpoint between Hugging Face, Megatron, Danlu and GGUF,\n"
      "streamed and checked; nothing about the model has to be typed",
      "danlu convert SRC DST --to hf|mcore|legacy|mm|native|gguf|peft [--tp N] [--pp N] …",
      std::move(all));
}

}  // namespace danlu::cli
