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
#include "base/temporary.h"
#include "cli/command.h"
#include "cli/commands/commands.h"
#include "cli/commands/foreign_options.h"
#include "cli/commands/hub_choice.h"
#include "cli/commands/inference_options.h"
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
       .help =
           "bnb: linear layers are stored in NF4, as bitsandbytes does; gptq, gptq_v2: in codes "
           "that --dataset calibrates",
       .group = group},
      {.name = "quant_bits",
       .type = OptionType::kInt,
       .help = "4 of bnb; 2, 3, 4 or 8 of gptq",
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

/// What of a calibration goes to danlu quantize, under the same name.
constexpr const char* kOfCalibration[] = {"quant_n_samples", "quant_batch_size", "group_size",
                                          "desc_act",        "damp_percent",     "device"};

std::vector<OptionSpec> calibration() {
  const std::string group = "Calibration";
  return {{.name = "quant_n_samples",
           .type = OptionType::kInt,
           .help = "rows of --dataset that are drawn (default: 256)",
           .aliases = {"export_quantization_nsamples"},
           .range = at_least(1),
           .group = group},
          {.name = "quant_batch_size",
           .type = OptionType::kInt,
           .help = "sequences of one pass (default: 1)",
           .range = at_least(1).up_to(1 << 16),
           .group = group},
          {.name = "group_size",
           .type = OptionType::kInt,
           .help = "columns that share a scale; -1: all (default: 128)",
           .range = at_least(-1).up_to(1 << 20),
           .group = group},
          {.name = "desc_act",
           .type = OptionType::kBool,
           .help = "columns of larger inputs are rounded first",
           .group = group},
          {.name = "damp_percent",
           .type = OptionType::kFloat,
           .help = "of the mean of a Hessian's diagonal, added to it (default: 0.1)",
           .range = at_least(0).up_to(1),
           .group = group},
          {.name = "device", .help = "cpu, cuda[:n] (default: cpu)", .group = group},
          {.name = "export_quantization_bit",
           .type = OptionType::kInt,
           .help = "LLaMA-Factory's: GPTQ of so many bits",
           .group = group},
          {.name = "export_quantization_dataset",
           .help = "LLaMA-Factory's: the rows, plain text under \"text\"",
           .group = group}};
}

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
       .help = "the rows, also those of a calibration",
       .group = group},
      {.name = "val_dataset", .type = OptionType::kList, .help = "held-out rows", .group = group},
      {.name = "template_mode",
       .help = "train: rows of danlu sft are written; rows of other trainings are not",
       .group = group}};
  for (const char* name : kOfRows)
    specs.push_back({.name = name, .help = "as danlu sft has it", .group = group});
  for (OptionSpec& spec : specs)
    if (spec.name == "max_length") spec.aliases = {"export_quantization_maxlen"};
  return specs;
}

std::vector<OptionSpec> foreign() {
  return {
      ignored({"model_type"}, "files say what they are, and are carried over"),
      ignored({"export_device", "device_map", "infer_backend", "mtp_num_layers",
               "bnb_4bit_compute_dtype"},
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

/// "gptq" or "gptq_v2", where weights are to be calibrated; else "".
std::string calibrated_form(const Options& options) {
  const std::string method = options.get_string_or("quant_method", "");
  if (method == "gptq" || method == "gptq_v2") return method;
  return method.empty() && options.has_value("export_quantization_bit") ? "gptq" : "";
}

int64_t gptq_bits(const Options& options) {
  return options.get_int_or("quant_bits", options.get_int_or("export_quantization_bit", 4));
}

/// Errors: UsageError for other methods.
bool wants_nf4(const Options& options) {
  const std::string method = options.get_string_or("quant_method", "");
  if (method.empty() && !options.has_value("quant_bits")) return false;
  const bool is_bnb = method.empty() || method == "bnb" || method == "bitsandbytes";
  if (is_bnb && options.get_int_or("quant_bits", 4) == 4) return true;
  throw UsageError(
      tr("[export] {} of {} bits: there are bnb's 4 bits (NF4), and gptq's",
         method.empty() ? "bnb" : method, options.get_int_or("quant_bits", 4)),
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

/// Tokenises the rows of a calibration into `directory`, as they are trained on.
int write_calibration(const Options& options, const std::string& model,
                      const std::filesystem::path& directory) {
  VerbLine line("sft");
  line.add({"--model", model, "--split_dataset_ratio", "0", "--write_samples", directory.string()});
  std::vector<std::string> items = options.get_list("dataset");
  const bool is_plain = options.has_value("export_quantization_dataset");
  if (is_plain) items.push_back(options.get_string("export_quantization_dataset"));
  if (items.empty()) {
    throw UsageError(tr("[export] a calibration reads rows: --dataset names none"),
                     tr("--quant_method bnb needs none"));
  }
  line.add({"--dataset"});
  line.add(items);
  if (is_plain && !options.has_value("truncation_strategy"))
    line.add({"--truncation_strategy", "right"});
  for (const char* name : kOfRows) {
    if (std::string_view(name) != "split_dataset_ratio")
      line.pass(options, name, fmt::format("--{}", name).c_str());
  }
  return line.run();
}

/// A number alone is of GB, as LLaMA-Factory has it.
void pass_shard_size(const Options& options, VerbLine& line) {
  if (!options.has_value("max_shard_size")) return;
  const std::string size = options.get_string("max_shard_size");
  const bool is_number = size.find_first_not_of("0123456789") == size.npos;
  line.add({"--max_shard_size", is_number ? size + "GB" : size});
}

int export_gptq(const Options& options, const Exported& source, const std::string& output) {
  if (source.model.empty() || !source.adapters.empty() || options.has_value("mcore_model")) {
    throw UsageError(tr("[export] a calibration is of a model in Hugging Face's form, without "
                        "adapters"),
                     tr("danlu merge, or danlu export --to_hf true, writes one first"));
  }
  const Temporary samples(output, Temporary::Kind::kDirectory);
  const std::filesystem::path directory = samples.path() / "samples";
  if (const int code = write_calibration(options, source.model, directory); code != 0) return code;
  VerbLine line("quantize");
  line.add({"--model", source.model, "--samples", (directory / "train").string(), "--output",
            output, "--checkpoint_format", calibrated_form(options)});
  const bool is_llamafactory = options.has_value("export_quantization_bit");
  line.add({"--bits", std::to_string(gptq_bits(options))});
  for (const char* name : kOfCalibration) {
    if (!options.has_value(name)) continue;
    const Json value = options.to_json().at(name);
    line.add(
        {fmt::format("--{}", name), value.is_string() ? value.get<std::string>() : value.dump()});
  }
  if (options.has_value("max_length")) {
    line.pass(options, "max_length", "--max_length");
  } else if (is_llamafactory) {
    line.add({"--max_length", "1024"});
  }
  if (is_llamafactory && !options.has_value("quant_n_samples"))
    line.add({"--quant_n_samples", "128"});
  pass_shard_size(options, line);
  if (wants(options, "exist_ok")) line.add({"--overwrite"});
  return line.run();
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
                     joined({sources(), results(), splits(), calibration(), rows(), foreign()}));
}

int run_export(const Options& options) {
  if (wants(options, "to_cached_dataset")) return export_rows(options);
  const std::string calibrated = calibrated_form(options);
  say_idle(options, {"val_dataset", "template_mode"});
  if (calibrated.empty()) {
    say_idle(options, {"dataset"});
    say_idle(options, {std::begin(kOfRows), std::end(kOfRows)});
    say_idle(options, {std::begin(kOfCalibration), std::end(kOfCalibration)});
  }
  Exported source = exported_from(options);
  const std::string& read = source.adapters.empty() ? source.model : source.adapters;
  const auto output = [&](const char* ending) {
    return options.get_string_or("output_dir", path_with(read, ending));
  };
  const bool nf4 = calibrated.empty() && wants_nf4(options), mcore = wants(options, "to_mcore"),
             ollama = wants(options, "to_ollama");
  if (mcore + ollama + !calibrated.empty() + (wants(options, "to_hf") || nf4) > 1) {
    throw UsageError(
        tr("[export] one output has one form: give one of --to_hf, --to_mcore, "
           "--to_ollama"));
  }
  if (!calibrated.empty()) {
    say_idle(options, {"torch_dtype", "bnb_4bit_use_double_quant"});
    return export_gptq(options, source,
                       output(fmt::format("-gptq-int{}", gptq_bits(options)).c_str()));
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
