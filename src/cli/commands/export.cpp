// `danlu export`: lines of ms-swift's export and LLaMA-Factory's, done by danlu merge and convert.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/shell_quote.h"
#include "cli/command.h"
#include "cli/commands/commands.h"
#include "cli/commands/foreign_options.h"
#include "cli/commands/hub_choice.h"
#include "weights/lora/peft.h"

namespace danlu::cli {
namespace {

OptionSpec size_of(std::string name, std::string help, std::vector<std::string> aliases) {
  return {.name = std::move(name),
          .type = OptionType::kInt,
          .help = std::move(help),
          .aliases = std::move(aliases),
          .range = at_least(1).up_to(4096),
          .group = "Split"};
}

OptionSpec wish(std::string name, std::string help, std::vector<std::string> aliases = {}) {
  return {.name = std::move(name),
          .type = OptionType::kBool,
          .help = std::move(help),
          .aliases = std::move(aliases),
          .group = "What is written"};
}

std::vector<OptionSpec> sources() {
  const std::string group = "What is read";
  return {
      {.name = "model",
       .help = "model directory (default: what adapter_config.json names)",
       .aliases = {"model_name_or_path", "model_id_or_path", "m"},
       .group = group},
      {.name = "adapters",
       .help = "PEFT adapter directory; it is merged into the model",
       .aliases = {"adapter_name_or_path", "ckpt_dir"},
       .group = group},
      {.name = "mcore_model",
       .help = "Megatron checkpoint, in place of a model",
       .aliases = {"mcore_model_dir"},
       .group = group},
      {.name = "mcore_adapter",
       .help = "adapters in Megatron's form",
       .aliases = {"mcore_adapters"},
       .group = group},
  };
}

std::vector<OptionSpec> results() {
  const std::string group = "What is written";
  return {
      {.name = "output_dir",
       .help = "where to write (default: beside what is read, named after what is done)",
       .aliases = {"export_dir", "output", "o"},
       .group = group},
      wish("merge_lora", "the adapters become part of the model (default where there are any)"),
      {.name = "torch_dtype",
       .help = "type to store (default: the model's)",
       .aliases = {"dtype"},
       .choices = {"fp32", "bf16", "fp16", "float32", "bfloat16", "float16"},
       .group = group},
      {.name = "quant_method",
       .help = "bnb: linear layers are stored in NF4, as bitsandbytes does",
       .group = group},
      {.name = "quant_bits",
       .type = OptionType::kInt,
       .help = "4, of bnb",
       .aliases = {"quantization_bit"},
       .group = group},
      wish("bnb_4bit_use_double_quant", "the factors are quantised too (default)"),
      wish("to_hf", "Hugging Face's form"),
      wish("to_mcore", "Megatron's form"),
      wish("to_ollama", "a GGUF file, and a Modelfile that names it"),
      wish("test_convert_precision", "read the result back and compare every bit"),
      wish("exist_ok", "replace an existing output", {"overwrite"}),
      {.name = "max_shard_size",
       .help = "Hugging Face: largest file, e.g. 5GB, or a number of them",
       .aliases = {"export_size"},
       .group = group},
  };
}

std::vector<OptionSpec> splits() {
  return {
      size_of("tp", "tensor parallel size, of Megatron's form", {"tensor_model_parallel_size"}),
      size_of("pp", "pipeline parallel size", {"pipeline_model_parallel_size"}),
      size_of("ep", "expert parallel size", {"expert_model_parallel_size"}),
      size_of("vpp", "virtual stages of each stage", {"virtual_pipeline_model_parallel_size"}),
      size_of("expert_tensor_parallel_size", "tensor ranks that cut an expert (default: all of tp)",
              {"etp"}),
  };
}

/// What of --to_cached_dataset goes to danlu sft, under the same name.
constexpr const char* kOfRows[] = {"split_dataset_ratio",
                                   "max_length",
                                   "truncation_strategy",
                                   "template",
                                   "system",
                                   "loss_scale",
                                   "dataset_num_proc",
                                   "use_chat_template",
                                   "task_type",
                                   "num_labels",
                                   "problem_type",
                                   "seed",
                                   "data_seed"};

std::vector<OptionSpec> rows() {
  const std::string group = "Rows";
  std::vector<OptionSpec> specs = {
      {.name = "to_cached_dataset",
       .type = OptionType::kBool,
       .help = "no weights: rows are tokenised as danlu sft would, into train/ and val/ of "
               "output_dir, for its --cached_dataset and --cached_val_dataset",
       .group = group},
      {.name = "dataset",
       .type = OptionType::kList,
       .help = "the rows (to weights they mean nothing: there is no calibration)",
       .group = group},
      {.name = "val_dataset", .type = OptionType::kList, .help = "held-out rows", .group = group},
      {.name = "template_mode",
       .help = "train: rows of danlu sft are written; rows of other trainings are not",
       .group = group}};
  for (const char* name : kOfRows)
    specs.push_back({.name = name, .help = "as danlu sft has it", .group = group});
  return specs;
}

std::vector<OptionSpec> foreign() {
  return {
      ignored({"model_type"}, "files say what they are, and are carried over"),
      ignored({"export_device", "device_map", "infer_backend", "quant_n_samples",
               "quant_batch_size", "mtp_num_layers", "bnb_4bit_compute_dtype"},
              "weights are written a tensor at a time, from the files alone"),
      ignored_switch({"trust_remote_code"}, "no code of a model is ever run"),
      ignored_switch({"load_data_args", "load_args"}, "files say what they are"),
      ignored_switch({"export_legacy_format", "linear_decoupled_in_proj", "save_safetensors",
                      "safe_serialization"},
                     "weights are always saved as safetensors"),
      ignored_list({"resize_vocab", "add_tokens", "add_special_tokens", "new_special_tokens"},
                   "a model that was trained with new tokens, or its adapter, brings them"),
      ignored({"rope_scaling", "init_special_tokens", "finetuning_type"},
              "files say how they were trained"),
      hub_choice_option("Other systems"),
      unavailable({"bnb_4bit_quant_type"}, "4 bits are NF4", {"nf4"}),
      unavailable({"push_to_hub", "hub_model_id", "hub_token", "export_hub_model_id"},
                  "nothing is sent anywhere"),
      unavailable({"to_peft_format"}, "adapters are in PEFT's form"),
      unavailable({"export_quantization_bit", "export_quantization_dataset"},
                  "weights are quantised by no calibration: --quant_method bnb, or danlu convert "
                  "--to gguf --outtype q4_0"),
      unavailable({"fp8_recipe", "fp8_format", "fp8_param_gather"},
                  "weights are not written in 8 bits of floating point"),
  };
}

/// A line of another verb, which does the work.
class VerbLine {
 public:
  explicit VerbLine(const char* verb) : command_(*find_command(verb)) {}
  void add(const std::vector<std::string>& words) {
    words_.insert(words_.end(), words.begin(), words.end());
  }
  /// `flag` with the value of the user's option `name`, where that was given.
  void pass(const Options& options, const char* name, const char* flag) {
    if (options.has_value(name)) add({flag, options.get_string(name)});
  }
  void pass_number(const Options& options, const char* name, const char* flag) {
    if (options.has_value(name)) add({flag, std::to_string(options.get_int(name))});
  }
  int run() const {
    std::string shown = fmt::format("danlu {}", command_.name);
    for (const std::string& word : words_) shown += " " + shell_quoted(word);
    log::info("this is {}", shown);
    return run_command(command_, command_.options().parse(words_, /*accepts_config=*/false));
  }

 private:
  const Command& command_;
  std::vector<std::string> words_;
};

/// What is read: a model, or adapters on one.
struct Exported {
  std::string model, adapters;
};

Exported exported_from(const Options& options) {
  // Beside Megatron's weights a model is their config.json and tokenizer.
  if (options.has_value("adapters") && options.has_value("mcore_adapter")) {
    throw UsageError(tr("[export] {} and {} are adapters in two forms; give one",
                        options.given_as("adapters"), options.given_as("mcore_adapter")));
  }
  Exported source;
  source.model = options.get_string_or("mcore_model", options.get_string_or("model", ""));
  source.adapters = options.get_string_or("mcore_adapter", options.get_string_or("adapters", ""));
  if (source.model.empty() && source.adapters.empty())
    throw UsageError(tr("[export] nothing to export: give --model DIR, or --adapters CHECKPOINT"));
  return source;
}

std::string path_with(const std::string& path, const char* ending) {
  return std::filesystem::absolute(std::filesystem::path(path) / "").parent_path().string() +
         ending;
}

bool wants(const Options& options, const char* name) { return options.get_bool_or(name, false); }

/// Errors: UsageError for methods that need a calibration.
bool wants_nf4(const Options& options) {
  const std::string method = options.get_string_or("quant_method", "");
  if (method.empty() && !options.has_value("quant_bits")) return false;
  const bool is_bnb = method.empty() || method == "bnb" || method == "bitsandbytes";
  if (is_bnb && options.get_int_or("quant_bits", 4) == 4) return true;
  throw UsageError(
      tr("[export] {} of {} bits: there are bnb's 4 bits (NF4)", method.empty() ? "bnb" : method,
         options.get_int_or("quant_bits", 4)),
      tr("danlu convert MODEL FILE.gguf --to gguf --outtype q8_0, or q4_0, needs no calibration "
         "either"));
}

/// The model that the adapters name. Errors: UsageError where they name none.
std::string base_of(const Options& options, const std::string& adapters) {
  if (std::filesystem::exists(std::filesystem::path(adapters) / "adapter_config.json")) {
    std::string base = weights::load_peft_config(adapters).base_model;
    if (!base.empty()) return base;
  }
  throw UsageError(
      tr("[export] --model is needed beside {}",
         options.given_as(options.has_value("adapters") ? "adapters" : "mcore_adapter")),
      tr("the directory that the adapters were trained on"));
}

/// The flags of a conversion that are the same for every format.
VerbLine conversion(const Options& options, const Exported& source, const std::string& target,
                    const char* format) {
  VerbLine line("convert");
  line.add({source.model, target, "--to", format});
  if (!source.adapters.empty()) line.add({"--adapters", source.adapters});
  if (options.has_value("mcore_model")) line.pass(options, "model", "--hf_config");
  if (std::string(format) != "gguf") line.pass(options, "torch_dtype", "--dtype");
  if (wants(options, "test_convert_precision")) line.add({"--check"});
  if (wants(options, "exist_ok")) line.add({"--overwrite"});
  return line;
}

int export_mcore(const Options& options, const Exported& source, const std::string& output) {
  VerbLine line = conversion(options, source, output, "mcore");
  for (const char* name : {"tp", "pp", "ep", "vpp"})
    line.pass_number(options, name, fmt::format("--{}", name).c_str());
  line.pass_number(options, "expert_tensor_parallel_size", "--expert_tensor_parallel_size");
  return line.run();
}

int export_ollama(const Options& options, const Exported& source, const std::string& output) {
  const std::filesystem::path directory = output;
  VerbLine line = conversion(options, source, (directory / "model.gguf").string(), "gguf");
  if (options.has_value("torch_dtype")) {
    const DType dtype = dtype_from_name(options.get_string("torch_dtype"));
    line.add({"--outtype", dtype == DType::kF32 ? "f32" : dtype == DType::kBF16 ? "bf16" : "f16"});
  }
  std::filesystem::create_directories(directory);
  const int code = line.run();
  if (code != 0) return code;
  // Its template is in the file.
  write_file_atomic(directory / "Modelfile", "FROM ./model.gguf\n");
  log::info("next: ollama create NAME -f {}", shell_quoted((directory / "Modelfile").string()));
  return 0;
}

/// Errors: UsageError for rows that are not written.
int export_rows(const Options& options) {
  const std::string mode = options.get_string_or("template_mode", "train");
  if (mode != "train") {
    throw UsageError(
        tr("[export] {} {}: rows of two answers, and those of judges, are not written tokenised",
           options.given_as("template_mode"), mode),
        tr("name the rows themselves in --dataset: danlu rlhf keeps their tokens in its cache"));
  }
  if (lower_case(options.get_string_or("task_type", "")) == "seq_cls") {
    throw UsageError(
        tr("[export] {} seq_cls: rows with labels are not written tokenised",
           options.given_as("task_type")),
        tr("name the rows themselves in --dataset: danlu sft keeps their tokens in its cache"));
  }
  if (options.get_list("dataset").empty())
    throw UsageError(
        tr("[export] {}: --dataset names no rows", options.given_as("to_cached_dataset")));
  VerbLine line("sft");
  line.pass(options, "model", "--model");
  for (const char* name : {"dataset", "val_dataset"}) {
    const std::vector<std::string> items = options.get_list(name);
    if (items.empty()) continue;
    line.add({fmt::format("--{}", name)});
    line.add(items);
  }
  for (const char* name : kOfRows) line.pass(options, name, fmt::format("--{}", name).c_str());
  line.add({"--write_samples", options.get_string_or("output_dir", "cached_dataset")});
  return line.run();
}

/// A number alone is of GB, as LLaMA-Factory has it.
void pass_shard_size(const Options& options, VerbLine& line) {
  if (!options.has_value("max_shard_size")) return;
  const std::string size = options.get_string("max_shard_size");
  const bool is_number = size.find_first_not_of("0123456789") == size.npos;
  line.add({"--max_shard_size", is_number ? size + "GB" : size});
}

int export_hf(const Options& options, const Exported& source, const std::string& output, bool nf4) {
  VerbLine line = conversion(options, source, output, "hf");
  if (nf4) {
    line.add({"--quantization_bit", "4", "--double_quantization",
              options.get_bool_or("bnb_4bit_use_double_quant", true) ? "true" : "false"});
  }
  pass_shard_size(options, line);
  return line.run();
}

/// Adapters that stay adapters, in PEFT's form.
int export_adapters(const Options& options, const Exported& source, const std::string& output) {
  if (!options.has_value("mcore_adapter") || wants(options, "to_mcore")) {
    throw UsageError(tr("[export] {} false: adapters are in PEFT's form, and stay so",
                        options.given_as("merge_lora")),
                     tr("leave it out to write a model with the adapters in it"));
  }
  VerbLine line("convert");
  line.add({source.adapters, output, "--to", "peft"});
  line.pass(options, "model", "--hf_config");
  if (wants(options, "exist_ok")) line.add({"--overwrite"});
  return line.run();
}

int export_merged(const Options& options, const Exported& source, const std::string& output) {
  VerbLine line("merge");
  if (!source.model.empty()) line.add({"--model", source.model});
  line.add({"--adapters", source.adapters, "--output", output});
  line.pass(options, "torch_dtype", "--dtype");
  pass_shard_size(options, line);
  if (wants(options, "exist_ok")) line.add({"--overwrite"});
  return line.run();
}

/// What was given and the chosen form has no use for.
void say_idle(const Options& options, const std::vector<const char*>& names) {
  std::vector<std::string> idle;
  for (const char* name : names) {
    if (options.has_value(name)) idle.push_back(options.given_as(name));
  }
  if (!idle.empty()) log::notice("{}: no effect on what is written", fmt::join(idle, ", "));
}

}  // namespace

OptionTable export_options() {
  return OptionTable("export",
                     "Write a model for others to use, by the flags of other systems' export",
                     "danlu export [export.yaml] --model DIR [--adapters DIR] [--to_mcore]",
                     joined({sources(), results(), splits(), rows(), foreign()}));
}

int run_export(const Options& options) {
  if (wants(options, "to_cached_dataset")) return export_rows(options);
  say_idle(options, {"dataset", "val_dataset", "template_mode"});
  say_idle(options, {std::begin(kOfRows), std::end(kOfRows)});
  Exported source = exported_from(options);
  const std::string& read = source.adapters.empty() ? source.model : source.adapters;
  const auto output = [&](const char* ending) {
    return options.get_string_or("output_dir", path_with(read, ending));
  };
  const bool nf4 = wants_nf4(options), mcore = wants(options, "to_mcore"),
             ollama = wants(options, "to_ollama");
  if (mcore + ollama + (wants(options, "to_hf") || nf4) > 1) {
    throw UsageError(
        tr("[export] one output has one form: give one of --to_hf, --to_mcore, "
           "--to_ollama"));
  }
  const bool is_converted = mcore || ollama || nf4 || wants(options, "to_hf");
  const bool stays = options.has_value("merge_lora") && !options.get_bool("merge_lora");
  if (!source.adapters.empty() && stays) return export_adapters(options, source, output("-lora"));
  if (!source.adapters.empty() && source.model.empty() && is_converted)
    source.model = base_of(options, source.adapters);
  if (!mcore) say_idle(options, {"tp", "pp", "ep", "vpp", "expert_tensor_parallel_size"});
  if (!nf4) say_idle(options, {"bnb_4bit_use_double_quant"});
  if (mcore || ollama) say_idle(options, {"max_shard_size"});
  if (mcore) return export_mcore(options, source, output("-mcore"));
  if (ollama) return export_ollama(options, source, output("-ollama"));
  if (is_converted) return export_hf(options, source, output(nf4 ? "-bnb-int4" : "-hf"), nf4);
  if (source.adapters.empty()) return export_hf(options, source, output("-hf"), false);
  return export_merged(options, source, output("-merged"));
}

}  // namespace danlu::cli
