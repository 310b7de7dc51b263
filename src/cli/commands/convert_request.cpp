#include "cli/commands/convert_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/divisors.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/shell_quote.h"
#include "cli/commands/stage_lists.h"
#include "settings/options/model_names.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer.h"
#include "weights/hf/shard_plan.h"

namespace danlu::cli {
namespace {

using weights::Format;
using weights::megatron::Dialect;
using weights::megatron::ExpertForm;

void read_places(const Options& options, ConvertRequest& request) {
  const auto place = [&](const char* flag, const char* what) {
    if (options.is_set(flag)) return options.get_string(flag);
    throw UsageError(tr("[convert] {} is not named", what),
                     tr("danlu convert SRC DST --to mcore --tp 2"));
  };
  request.source = settings::located_if_named(place("load_dir", "the checkpoint to convert"));
  request.output = place("save_dir", "where to write");
}

/// MindSpeed's converters for DeepSeek-V3 have one direction each, which the sizes tell: there is
/// no other word for it on their lines.
std::optional<ConvertTo> direction_of_sizes(const Options& options) {
  std::string source, target, source_cut, target_cut;  // flags
  for (const char* size : {"source_tensor_parallel_size", "source_pipeline_parallel_size",
                           "source_expert_parallel_size"}) {
    if (!options.is_given(size)) continue;
    source = options.given_as(size);
    if (options.get_string(size) != "1") source_cut = source;
  }
  for (const char* size : {"tp", "pp", "ep"}) {
    if (!options.is_given(size) || !options.given_as(size).starts_with("--target")) continue;
    target = options.given_as(size);
    if (options.get_int(size) > 1) target_cut = target;
  }
  if (!source_cut.empty() && !target_cut.empty()) {
    throw UsageError(tr("[convert] {} divides the source and {} the target, and nothing says what "
                        "to write",
                        source_cut, target_cut),
                     tr("--to hf, mcore, legacy, mm, native, gguf or peft"));
  }
  const bool is_to_core = source.empty() || !target_cut.empty();
  if (source.empty() && target.empty()) return std::nullopt;
  if (is_to_core) {
    log::info("[convert] {}: Megatron's format is written", target);
  } else {
    log::info("[convert] {}: Hugging Face's format is written", source);
  }
  return is_to_core ? ConvertTo::kCore : ConvertTo::kHf;
}

/// The target by --to or by MindSpeed's pair of flags.
void read_target(const Options& options, ConvertRequest& request) {
  const bool has_short = options.is_set("to");
  const bool to_legacy = options.get_bool_or("save_to_legacy", false);
  // The name or llama.cpp's flag may say it.
  const bool means_gguf = !has_short && !options.is_set("save_model_type") && !to_legacy &&
                          !options.get_bool_or("use_mcore_models", false) &&
                          (request.output.extension() == ".gguf" || options.is_given("outtype"));
  const bool is_said = has_short || options.is_set("save_model_type") || means_gguf;
  const auto by_sizes = is_said ? std::nullopt : direction_of_sizes(options);
  if (!is_said && !by_sizes) {
    throw UsageError(tr("[convert] what to write is not said"),
                     tr("--to hf, mcore, legacy, mm, native, gguf or peft"));
  }
  if (means_gguf) {
    request.to = ConvertTo::kGguf;
  } else if (has_short) {
    static const std::map<std::string, ConvertTo> names = {
        {"hf", ConvertTo::kHf},    {"mcore", ConvertTo::kCore},    {"legacy", ConvertTo::kLegacy},
        {"mm", ConvertTo::kMm},    {"native", ConvertTo::kNative}, {"gguf", ConvertTo::kGguf},
        {"peft", ConvertTo::kPeft}};
    request.to = names.at(options.get_string("to"));
  } else if (!options.is_set("save_model_type")) {
    request.to = by_sizes.value();
    if (request.to == ConvertTo::kCore && to_legacy) request.to = ConvertTo::kLegacy;
  } else if (options.get_string("save_model_type") == "hf") {
    request.to = ConvertTo::kHf;
    // convert_ckpt.py is given the original directory here and writes below it.
    if (fs::exists(request.output / "config.json") && request.source_options.config_dir.empty())
      request.source_options.config_dir = request.output;
    request.output /= "mg2hf";
  } else {
    const bool core = options.get_bool_or("use_mcore_models", false) && !to_legacy;
    request.to = core ? ConvertTo::kCore : ConvertTo::kLegacy;
  }
  if (options.get_bool_or("save_lora_to_hf", false)) {
    if (request.to != ConvertTo::kHf && request.to != ConvertTo::kPeft)
      throw UsageError(
          tr("[--save-lora-to-hf] adapters alone are written for Hugging Face: --to hf"));
    request.to = ConvertTo::kPeft;
  }
  if (request.to == ConvertTo::kLegacy) request.dialect = Dialect::kLegacy;
  if (to_legacy && request.to != ConvertTo::kLegacy)
    throw UsageError(tr("[{}] writes legacy Megatron, and the line asks for another format",
                        options.given_as("save_to_legacy")),
                     tr("leave it out, or give --to legacy"));
  if (!options.is_set("transformer_impl")) return;
  if (request.to != ConvertTo::kCore)
    throw UsageError(tr("[--transformer-impl] names modules of Megatron-core: use --to mcore"));
  request.dialect = options.get_string("transformer_impl") == "local" ? Dialect::kCore
                                                                      : Dialect::kTransformerEngine;
}

void read_source(const Options& options, ConvertRequest& request) {
  auto& source = request.source_options;
  if (options.is_set("hf_config")) source.config_dir = options.get_string("hf_config");
  source.iteration = options.get_string_or("iteration", "");
  if (options.is_set("lora_r")) source.lora_rank = options.get_int("lora_r");
  if (options.is_set("lora_alpha")) source.lora_alpha = options.get_float("lora_alpha");
  request.with_optimizer = options.get_bool("with_optimizer");
  request.is_reward_model = options.get_bool("orm");
  const std::string type = options.get_string_or("load_model_type", "");
  if (type == "hf") request.expected_source = Format::kHuggingFace;
  if (type == "mg" || type == "optim") request.expected_source = Format::kMegatron;
  request.with_optimizer |= type == "optim";
  source.with_optimizer = request.with_optimizer;
  request.expect_legacy = options.get_bool_or("load_from_legacy", false);
  if (request.expect_legacy) request.expected_source = Format::kMegatron;
}

/// The lists of MindSpeed-MM say all that others flags could.
void refuse_other_cuts(const Options& options, const ConvertRequest& request) {
  const std::string given = options.given_as("llm_pp_layers");
  if (request.to != ConvertTo::kMm)
    throw UsageError(tr("[{}] belongs to MindSpeed-MM's format: --to mm", given));
  for (const char* name :
       {"pp", "vpp", "num_layers_per_virtual_pipeline_stage", "num_layer_list", "noop_layers"}) {
    const bool agrees = std::string_view(name) == "pp" && options.get_int("pp") == request.split.pp;
    if (!options.is_set(name) || agrees) continue;
    throw UsageError(
        tr("[{}] says which layers each stage has, so no other flag may say it too: {}", given,
           options.given_as(name)));
  }
}

/// Megatron counts the ranks that have experts of their own over both axes, MindSpeed's
/// --moe-tp-extend-ep without the tensor axis.
void divide_experts_of_files(const Options& options, weights::megatron::Split& split) {
  if (!options.has_value("expert_tensor_parallel_size")) return;
  const int64_t cut = options.get_int("expert_tensor_parallel_size");
  const std::string flag = options.given_as("expert_tensor_parallel_size");
  if (cut > split.tp) {
    throw UsageError(
        tr("[{}] {}: {} tensor-parallel ranks cut an expert among them, and no more", flag, cut,
           split.tp),
        tr("Megatron's files are named by tensor-parallel rank, of which each has one part of an "
           "expert: give a larger {}",
           options.given_as("tp")));
  }
  if (split.tp % cut != 0 || (split.tp_extends_ep && cut != 1)) {
    throw UsageError(
        tr("[{}] {} of {} tensor-parallel ranks: those that cut an expert divide them", flag, cut,
           split.tp),
        tr("one of {}",
           split.tp_extends_ep ? "1" : fmt::format("{}", fmt::join(divisors(split.tp), ", "))));
  }
  if (cut == split.tp || split.tp_extends_ep) return;
  const int64_t dealers = split.tp / cut;
  if (split.ep % dealers != 0) {
    throw UsageError(tr("[{}] {}: {} runs of tensor-parallel ranks have experts of their own: {} "
                        "expert-parallel ranks are no multiple of {}",
                        flag, cut, dealers, split.ep, dealers),
                     tr("give a multiple of {} as {}", dealers, options.given_as("ep")));
  }
  split.tp_extends_ep = split.counts_tensor_ranks = true;
  split.expert_tp = cut;
  split.ep /= dealers;
}

void read_split(const Options& options, ConvertRequest& request) {
  auto& split = request.split;
  split.tp = options.get_int("tp");
  split.pp = options.get_int("pp");
  split.ep = options.get_int("ep");
  split.layer_list = options.get_int_list("num_layer_list");
  split.noop_layers = options.get_int_list("noop_layers");
  std::sort(split.noop_layers.begin(), split.noop_layers.end());
  split.tp_extends_ep = options.get_bool_or("moe_tp_extend_ep", false);
  divide_experts_of_files(options, split);
  split.vocab_divisor = options.get_int_or("make_vocab_size_divisible_by", 0);
  split.layers_per_virtual_stage = options.get_int_or("num_layers_per_virtual_pipeline_stage", 0);
  request.virtual_stages = options.get_int_or("vpp", 0);
  if (request.virtual_stages > 0 && split.layers_per_virtual_stage > 0)
    throw UsageError(
        tr("[--vpp] and --num-layers-per-virtual-pipeline-stage say the same: give one"));
  put_stage_lists(options, "llm_pp_layers", "vit_pp_layers", split);
  if (!split.chunk_list.empty()) refuse_other_cuts(options, request);
  const bool is_split = split.tp > 1 || split.pp > 1 || split.ep > 1 || !split.layer_list.empty() ||
                        !split.noop_layers.empty() || split.layers_per_virtual_stage > 0 ||
                        request.virtual_stages > 0 || split.tp_extends_ep;
  const bool whole = request.to == ConvertTo::kHf || request.to == ConvertTo::kGguf ||
                     request.to == ConvertTo::kPeft;
  if (is_split && whole) {
    throw UsageError(tr("[convert] this format is not cut over ranks: tp, pp and ep must be 1"),
                     tr("a split belongs to --to mcore, legacy or native"));
  }
}

/// MindSpeed's --qlora-nf4 quantises what training then reads; here training does that itself.
void read_nf4(const Options& options, ConvertRequest& request) {
  const int64_t bits = options.get_int("quantization_bit");
  if (bits != 0 && bits != 4)
    throw UsageError(tr("[--quantization_bit] matrices are stored in 4 bits (NF4), got {}", bits));
  const bool is_asked = bits == 4 || options.get_bool("qlora_nf4");
  if (!is_asked) return;
  if (request.to == ConvertTo::kHf) {
    request.nf4_doubly = options.get_bool("double_quantization");
    return;
  }
  if (bits == 4)
    throw UsageError(tr("[--quantization_bit] NF4 is stored in bitsandbytes' form alone"),
                     tr("--to hf; danlu sft --quantization_bit 4 quantises any checkpoint"));
  log::info(
      "{}: weights are written as they are; danlu sft --qlora quantises them as it loads them, to "
      "the same codes",
      options.given_as("qlora_nf4"));
}

void read_form(const Options& options, ConvertRequest& request) {
  const bool grouped = options.get_bool_or("moe_grouped_gemm", false);
  const std::string experts = options.get_string_or("experts", grouped ? "grouped" : "");
  if (grouped && experts == "sequential")
    throw UsageError(tr("[--moe-grouped-gemm] contradicts --experts sequential"));
  if (experts == "sequential") request.experts = ExpertForm::kSequential;
  if (experts == "grouped") request.experts = ExpertForm::kGrouped;
  if (experts == "te_grouped") request.experts = ExpertForm::kTeGrouped;
  if (options.is_set("target_iteration"))
    request.target_iteration = options.get_string("target_iteration");
  request.gguf_type = options.get_string("outtype");
  request.max_shard_bytes = weights::shard_bytes_of(options.get_string("max_shard_size"));
  if (options.has_value("dtype")) request.dtype = dtype_from_name(options.get_string("dtype"));
  read_nf4(options, request);
  if (options.is_set("adapters")) request.adapters = options.get_string("adapters");
  if (!request.adapters.empty() && request.to == ConvertTo::kPeft) {
    throw UsageError(
        tr("[--to peft] writes the adapters that lie in the source: --adapters is for merging"),
        tr("give the adapters' checkpoint as the source"));
  }
  if (options.is_set("use_distributed_optimizer"))
    request.distributed_optimizer = options.get_bool("use_distributed_optimizer");
  if (options.is_set("target_data_parallel_size"))
    request.data_parallel = options.get_int("target_data_parallel_size");
  if (options.is_set("overlap_grad_reduce"))
    request.overlap_grad_reduce = options.get_bool("overlap_grad_reduce");
}

void read_tokenizer(const Options& options, ConvertRequest& request) {
  if (!options.is_set("tokenizer_model")) return;
  const fs::path named = text::existing_tokenizer(options.get_string("tokenizer_model"));
  if (!fs::exists(named)) {
    throw UsageError(tr("[{}] {}: no such file or directory", options.given_as("tokenizer_model"),
                        named.string()));
  }
  request.tokenizer =
      fs::is_directory(named) || text::is_gguf(named) ? named : fs::absolute(named).parent_path();
}

/// Keys of MindSpeed-LLM's model_cfg.json and the families they are used for.
const std::map<std::string, std::vector<std::string>>& families_by_key() {
  static const std::map<std::string, std::vector<std::string>> table = {
      {"llama2", {"llama", "qwen2", "mistral"}},
      {"llama3", {"llama"}},
      {"mistral", {"mistral"}},
      {"baichuan", {"baichuan"}},
      {"baichuan2", {"baichuan"}},
      {"bloom", {"bloom"}},
      {"bloom_3b", {"bloom"}},
      {"internlm2", {"internlm2"}},
      {"mixtral", {"mixtral"}},
      {"qwen2-moe", {"qwen2_moe"}},
      {"chatglm3", {"chatglm"}},
      {"deepseek2", {"deepseek_v2"}},
      {"deepseek2-lite", {"deepseek_v2"}},
      {"phi3.5", {"phi3"}},
      {"phi3.5-moe", {"phimoe"}},
      {"qwen25", {"qwen2"}},
      {"qwen3", {"qwen3"}},
      {"qwen3-moe", {"qwen3_moe"}}};
  return table;
}

void check_flag(const Options& options, const char* name, bool is_so, const char* what) {
  if (!options.is_set(name) || options.get_bool(name) == is_so) return;
  throw UsageError(is_so
                       ? tr("[{}] says no, but the model has {}", options.given_as(name), what)
                       : tr("[{}] says yes, but the model has no {}", options.given_as(name), what),
                   tr("leave the flag out: the files say it"));
}

/// Two ways of saying what to write that do not say the same, and flags that would do nothing.
void refuse_contradictions(const Options& options, const ConvertRequest& request) {
  const bool to_megatron = request.to == ConvertTo::kCore || request.to == ConvertTo::kLegacy;
  const std::string saved = options.get_string_or("save_model_type", "");
  if (options.is_set("to") && !saved.empty() && (saved == "hf") == to_megatron)
    throw UsageError(
        tr("[--to] {} contradicts --save-model-type {}", options.get_string("to"), saved));
  if (options.get_bool_or("use_mcore_models", false) &&
      options.get_bool_or("save_to_legacy", false))
    throw UsageError(tr("[--use-mcore-models] contradicts --save-to-legacy"));
  if (request.with_optimizer) return;
  for (const char* name :
       {"use_distributed_optimizer", "overlap_grad_reduce", "target_data_parallel_size"}) {
    if (!options.is_set(name)) continue;
    throw UsageError(
        tr("[{}] concerns the optimizer, which is not converted", options.given_as(name)),
        tr("add --with-optimizer, or leave it out"));
  }
}

}  // namespace

ConvertRequest read_convert_request(const Options& options) {
  ConvertRequest request;
  read_places(options, request);
  read_source(options, request);
  read_target(options, request);
  read_split(options, request);
  read_form(options, request);
  read_tokenizer(options, request);
  refuse_contradictions(options, request);
  if (options.is_set("check")) request.check = options.get_bool("check");
  request.overwrite = options.get_bool("overwrite");
  request.source_options.loose = options.get_bool_or("load_checkpoint_loosely", false);
  request.num_threads = static_cast<size_t>(options.get_int_or("threads", 0));
  return request;
}

void check_described(const Options& options, const ConvertRequest& request,
                     const weights::CheckpointSource& source) {
  if (request.expected_source && *request.expected_source != source.format) {
    throw UsageError(
        tr("[{}] says {}, but {} is: {}",
           options.given_as(request.expect_legacy ? "load_from_legacy" : "load_model_type"),
           weights::format_name(*request.expected_source), source.path.string(),
           source.description),
        request.to == ConvertTo::kHf && source.format == weights::Format::kHuggingFace &&
                request.adapters.empty()
            ? tr("it has the wanted format already: danlu chat --model {}",
                 shell_quoted(source.path.string()))
            : tr("leave the flag out: the files say it"));
  }
  const bool is_legacy = source.megatron && source.megatron->form.dialect == Dialect::kLegacy;
  if (request.expect_legacy && !is_legacy) {
    throw UsageError(tr("[--load-from-legacy] was given, but {} is: {}", source.path.string(),
                        source.description));
  }
  if (options.is_set("model_type_hf")) {
    const std::string key = options.get_string("model_type_hf");
    const auto known = families_by_key().find(key);
    // Beside MindSpeed's keys, of which llama2 serves several families: the family's own name.
    const bool fits =
        key == source.config.family || (known != families_by_key().end() &&
                                        std::find(known->second.begin(), known->second.end(),
                                                  source.config.family) != known->second.end());
    if (!fits) {
      throw UsageError(tr("[{}] {} was given, but config.json describes a model of family {}",
                          options.given_as("model_type_hf"), key, source.config.family),
                       tr("leave the flag out: the files say it"));
    }
  }
  check_flag(options, "add_qkv_bias", source.config.qkv_bias, "biases on q, k and v");
  check_flag(options, "add_dense_bias", source.config.o_bias, "bias on the attention's output");
  check_flag(options, "embed_layernorm", source.config.norms_embedding,
             "norm behind the embedding");
  check_flag(options, "add_output_layer_bias", source.config.head_bias, "bias on the head");
  check_flag(options, "post_norm", source.config.has_post_norms, "norms behind attention and MLP");
  check_flag(options, "w_pack", source.config.qkv_layout == arch::QkvLayout::kThirds,
             "packed q, k and v");
  // convert_ckpt.py counts empty layers too.
  const auto empty = static_cast<int64_t>(options.get_int_list("noop_layers").size());
  const int64_t layers = options.get_int_or("num_layers", source.config.num_layers);
  if (layers != source.config.num_layers && layers != source.config.num_layers + empty) {
    throw UsageError(tr("[{}] {} was given, but the model has {}", options.given_as("num_layers"),
                        options.get_int("num_layers"), source.config.num_layers));
  }
}

}  // namespace danlu::cli
