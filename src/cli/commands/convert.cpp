// `danlu convert SRC DST --to …`: any checkpoint into any other, as a stream.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <set>

#include "arch/prediction.h"
#include "arch/text_part.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/shell_quote.h"
#include "base/threads.h"
#include "cli/commands/commands.h"
#include "cli/commands/convert_checksums.h"
#include "cli/commands/convert_plan.h"
#include "cli/commands/convert_request.h"
#include "cli/commands/convert_scores.h"
#include "cli/commands/gguf_export.h"
#include "settings/model_changes.h"
#include "text/gguf_tokenizer.h"
#include "text/template_record.h"
#include "text/tokenizer.h"
#include "weights/convert/conversion.h"
#include "weights/convert/joined_source.h"
#include "weights/gguf/gguf_architecture.h"
#include "weights/gguf/gguf_reader.h"
#include "weights/gguf/offset_norms.h"
#include "weights/hf/nf4_tensors.h"
#include "weights/hf/renamed_source.h"
#include "weights/hf/safetensors_target.h"
#include "weights/hf/save_model.h"
#include "weights/hf/stored_form.h"
#include "weights/layout_source.h"
#include "weights/megatron/arguments.h"
#include "weights/megatron/target.h"
#include "weights/native/native.h"
#include "weights/tensor_bands.h"
#include "weights/torch/torch_checksums.h"

namespace danlu::cli {
namespace {

using weights::CheckpointSource;
using weights::Conversion;
using weights::OptimizerState;
using weights::TensorInfo;
using weights::megatron::Split;

constexpr uint64_t kCheckByDefaultBelow = 2'000'000'000;

// --- source --------------------------------------------------------------------------------------

/// Whether the format has a place for layers that predict further ahead, and for their state where
/// one is written; a model that gives scores predicts nothing.
bool keeps_predictions(const ConvertRequest& request, const ConvertPlan& plan) {
  if (request.to == ConvertTo::kGguf) return weights::gguf::keeps_predictions(plan.config);
  if (request.to != ConvertTo::kCore && request.to != ConvertTo::kNative) return false;
  return !plan.config.score && weights::has_predictions(plan.source, request.with_optimizer);
}

void add_predictions(const ConvertRequest& request, ConvertPlan& plan) {
  size_t count = 0;
  weights::RenamedSource::Names others;
  for (const TensorInfo& info : plan.model->tensors()) {
    if (!arch::is_of_prediction_layer(plan.config, info.name)) {
      others.emplace(info.name, info.name);
      continue;
    }
    ++count;
    if (request.to == ConvertTo::kHf) plan.globals.push_back(info);
  }
  if (count == 0 || request.to == ConvertTo::kHf) return;
  if (keeps_predictions(request, plan)) {
    weights::require_shared_predictions(plan.config, *plan.model, request.source);
    plan.config.predicts_ahead = true;
    plan.globals = weights::megatron::global_tensors(plan.config, DType::kF32);
    // Their copies of the table and the head are the model's own.
    for (const TensorInfo& info : plan.globals) others.emplace(info.name, info.name);
    plan.model = std::make_shared<weights::RenamedSource>(plan.model, others);
    return;
  }
  plan.model = std::make_shared<weights::RenamedSource>(plan.model, others);
  log::warning("{}: {} tensors of layers that predict further ahead (MTP) are left out",
               request.source.string(), count);
}

/// Replaces the matrices that take NF4 by what bitsandbytes stores of them.
void store_in_nf4(bool doubly, ConvertPlan& plan) {
  const std::vector<std::string> names = weights::names_in_nf4(plan.config);
  const std::set<std::string> chosen(names.begin(), names.end());
  const auto first = std::find_if(plan.globals.begin(), plan.globals.end(),
                                  [&](const TensorInfo& info) { return chosen.count(info.name); });
  plan.nf4 = weights::Nf4Form{kNf4Block, doubly, weights::nf4_dtype(first->dtype)};
  plan.model = weights::as_nf4(plan.model, names, *plan.nf4);
  std::vector<TensorInfo> globals;
  for (const TensorInfo& info : plan.globals) {
    if (!chosen.count(info.name)) {
      globals.push_back(info);
      continue;
    }
    for (const TensorInfo& part : plan.model->tensors()) {
      if (part.name == info.name || part.name.starts_with(info.name + ".")) globals.push_back(part);
    }
  }
  plan.globals = std::move(globals);
  plan.config_changed = true;
}

ConvertPlan open_plan(const Options& options, const ConvertRequest& request) {
  ConvertPlan plan;
  require_place_for_scores(request);
  weights::SourceOptions source_options = request.source_options;
  source_options.scores = keeps_scores(request);
  plan.source = weights::open_checkpoint_source(request.source, source_options);
  weights::report_idle_iteration(plan.source, request.source_options.iteration, "--iteration");
  if (request.check_source) request.check_source(plan.source);
  if (plan.source.format == weights::Format::kGguf && !request.tokenizer.empty()) {
    text::refuse_other_tokenizer(request.source, *text::Tokenizer::load(request.tokenizer),
                                 request.tokenizer.string());
  }
  if (plan.source.differing_copies)
    weights::refuse_differing_copies(plan.source.differing_copies(), request.source_options.loose);
  if (!request.adapters.empty()) {
    const auto changes = settings::recorded_changes(request.adapters, plan.source.config);
    plan.config_changed |= !changes.empty();
    settings::make_changes(changes, plan.source);
  }
  plan.config = plan.source.config;
  plan.model = plan.source.model;
  if (!plan.model) {
    if (request.to == ConvertTo::kPeft) return plan;
    throw ModelError(
        tr("{}: holds adapters alone", request.source.string()),
        tr("name the base model as the source and this with --adapters, or use --to peft"));
  }
  if (request.to == ConvertTo::kPeft) return plan;
  const bool own = plan.source.adapters && request.with_own_adapters;
  if (own) merge_own_adapters(options, request, plan);
  if (!request.adapters.empty()) merge_named_adapters(options, request, plan);
  if (request.with_optimizer && (own || !request.adapters.empty()))
    throw UsageError(tr("[--with-optimizer] adapters are merged, so the state fits no longer"));
  convert_scores(request, plan);
  plan.globals = weights::megatron::global_tensors(plan.config, DType::kF32);
  add_predictions(request, plan);
  const std::set<std::string> wide = arch::wide_parameters(plan.config);
  for (TensorInfo& info : plan.globals) {
    const DType own = plan.model->find(info.name)->dtype;
    info.dtype = request.dtype && is_floating(own) && !wide.count(info.name) ? *request.dtype : own;
    plan.config_changed |= info.dtype != own;
    if (const auto of_head = type_of_head(request, plan, info.name)) info.dtype = *of_head;
  }
  if (request.nf4_doubly) store_in_nf4(*request.nf4_doubly, plan);
  // config.json of the model it was trained from may name another type than the checkpoint has.
  plan.config_changed |= plan.globals.front().dtype != plan.config.dtype;
  // What was dequantised, or the text part of more, or described by args, gets a config.json so.
  plan.config_changed |= plan.config.raw.contains("quantization_config") ||
                         arch::text_part_of(plan.config) || plan.source.companions.empty();
  return plan;
}

// --- targets -------------------------------------------------------------------------------------

Split split_for(const ConvertRequest& request, const ConvertPlan& plan) {
  Split split = request.split;
  const auto& megatron = plan.source.megatron;
  if (split.vocab_divisor == 0) {
    split.vocab_divisor = 1;
    const auto* recorded = megatron ? megatron->args.find("make_vocab_size_divisible_by") : nullptr;
    if (recorded && !recorded->is_none())
      split.vocab_divisor = std::max<int64_t>(
          1, weights::megatron::whole_number(*recorded, "args.make_vocab_size_divisible_by"));
  }
  if (request.virtual_stages > 0) {
    const auto slots = plan.config.num_layers + static_cast<int64_t>(split.noop_layers.size());
    const int64_t chunks = split.pp * request.virtual_stages;
    if (slots % chunks != 0) {
      throw UsageError(tr("[--vpp] {} stages of {} chunks do not divide {} layers", split.pp,
                          request.virtual_stages, slots),
                       tr("pp times vpp must divide the layers (no-op slots included)"));
    }
    split.layers_per_virtual_stage = slots / chunks;
  }
  return split;
}

/// The shape that the source has, but for what the flags say.
weights::megatron::OptimizerShape optimizer_shape(const ConvertRequest& request,
                                                  const ConvertPlan& plan) {
  const auto args =
      plan.source.megatron ? plan.source.megatron->args : weights::torch_file::PyValue::none();
  const DType dtype = plan.globals.front().dtype;
  weights::megatron::OptimizerShape shape = weights::megatron::recorded_shape(args, dtype);
  shape.distributed = request.distributed_optimizer.value_or(shape.distributed);
  shape.fp32 = dtype == DType::kF32 && !shape.distributed;
  shape.data_parallel = request.data_parallel.value_or(shape.data_parallel);
  shape.overlap_grad_reduce = request.overlap_grad_reduce.value_or(shape.overlap_grad_reduce);
  return shape;
}

std::optional<int64_t> target_iteration(const ConvertRequest& request, const ConvertPlan& plan) {
  if (!request.target_iteration) {
    if (request.to == ConvertTo::kMm && !plan.source.megatron) return std::nullopt;
    if (plan.source.megatron) return plan.source.iteration;
    const int64_t trained = plan.source.optimizer.settings.iteration;
    return trained > 0 ? trained : plan.source.iteration.value_or(1);
  }
  if (*request.target_iteration == "release") return std::nullopt;
  const std::string& text = *request.target_iteration;
  const bool number = !text.empty() && text.size() < 18 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stoll(text) == 0) {
    throw UsageError(tr(
        "[--target-iteration] must be an iteration of at least 1, or release, got \"{}\"", text));
  }
  return std::stoll(text);
}

const OptimizerState* optimizer_of(const ConvertPlan& plan) {
  return plan.source.optimizer.tensors ? &plan.source.optimizer : nullptr;
}

/// A fused matrix has one type: parts of several would be rounded without a word.
void refuse_mixed_types(const weights::Layout& layout, const std::string& why) {
  for (const weights::StoredTensor& stored : layout.tensors) {
    const TensorInfo& first = layout.globals[stored.sections[0].pieces[0].global];
    for (const weights::Section& section : stored.sections) {
      for (const weights::Piece& piece : section.pieces) {
        const TensorInfo& info = layout.globals[piece.global];
        if (info.dtype == first.dtype) continue;
        throw ModelError(tr("{} is {} and {} is {}: {}", first.name, dtype_name(first.dtype),
                            info.name, dtype_name(info.dtype), why),
                         tr("choose the type to store: --dtype bf16, fp16 or fp32"));
      }
    }
  }
}

void plan_megatron(const ConvertRequest& request, const ConvertPlan& plan, Conversion& conversion) {
  using weights::megatron::Dialect;
  const auto& megatron = plan.source.megatron;
  weights::megatron::TargetOptions target;
  target.split = split_for(request, plan);
  const bool is_core = megatron && megatron->form.dialect != Dialect::kLegacy &&
                       megatron->form.dialect != Dialect::kMindSpeedMm;
  target.form.dialect = request.dialect.value_or(is_core ? megatron->form.dialect : Dialect::kCore);
  if (request.to == ConvertTo::kMm) target.form.dialect = Dialect::kMindSpeedMm;
  if (is_core) {
    target.form.latent = megatron->form.latent;
    target.form.prediction_tables = megatron->form.prediction_tables;
    target.form.prediction_heads = megatron->form.prediction_heads;
  }
  if (request.experts) {
    target.form.experts = *request.experts;
  } else if (megatron && plan.config.has_experts()) {
    target.form.experts = megatron->form.experts;
  }
  if (plan.config.rope.scaling != arch::RopeScaling::kNone) {
    log::info(
        "config.json scales its rotary embedding, which Megatron's args have no common name "
        "for: training needs its own flags for it");
  }
  target.iteration = target_iteration(request, plan);
  if (megatron && !megatron->only_adapters) target.args = megatron->args;
  target.optimizer = optimizer_of(plan);
  target.optimizer_shape = optimizer_shape(request, plan);
  conversion.target = weights::megatron::plan_checkpoint(plan.config, plan.globals, target);
  refuse_mixed_types(conversion.target.layout, tr("Megatron keeps both in one matrix"));
  const bool with_optimizer = target.optimizer != nullptr;
  conversion.reopen = [with_optimizer](const fs::path& directory) {
    const auto opened = weights::megatron::open_checkpoint(
        directory, {.with_optimizer = with_optimizer, .scores = true});
    return weights::join_optimizer(opened.model, opened.optimizer.tensors);
  };
}

void plan_native(const ConvertRequest& request, const ConvertPlan& plan, Conversion& conversion) {
  conversion.target = weights::native::plan_checkpoint(
      plan.config, plan.globals, split_for(request, plan),
      target_iteration(request, plan).value_or(0), optimizer_of(plan));
  conversion.reopen = [](const fs::path& directory) {
    const auto opened = weights::native::open_checkpoint(directory);
    return weights::join_optimizer(opened.model, opened.optimizer.tensors);
  };
}

void plan_hf(const ConvertRequest& request, const ConvertPlan& plan, Conversion& conversion) {
  if (request.with_optimizer) {
    throw UsageError(tr("[--with-optimizer] a Hugging Face directory holds no optimizer state"),
                     tr("use --to mcore or --to native"));
  }
  const fs::path index = request.shards_like / "model.safetensors.index.json";
  const bool has_list = !request.shards_like.empty() && fs::exists(index);
  conversion.target =
      has_list   ? weights::plan_hf_model_like(plan.config, plan.globals, index)
      : plan.nf4 ? weights::plan_hf_directory(plan.globals, request.max_shard_bytes)
                 : weights::plan_hf_model(plan.config, plan.globals, request.max_shard_bytes);
  if (plan.nf4) {
    conversion.target.description += ", NF4";
    conversion.reopen = [](const fs::path& directory) {
      return weights::open_stored_weights(directory);
    };
    return;
  }
  refuse_mixed_types(conversion.target.layout, tr("files of this family keep both in one tensor"));
  conversion.reopen = [config = plan.config](const fs::path& directory) {
    return weights::as_parameters(weights::open_weights(directory), config);
  };
}

void plan_gguf_file(const ConvertRequest& request, ConvertPlan& plan, Conversion& conversion) {
  using namespace weights::gguf;
  if (request.with_optimizer)
    throw UsageError(tr("[--with-optimizer] GGUF holds no optimizer state"));
  if (request.dtype) {
    throw UsageError(tr("[--dtype] a GGUF file's type is chosen with --outtype"),
                     tr("--outtype f32, f16, bf16, q8_0 or q4_0"));
  }
  const bool from_gguf = plan.source.format == weights::Format::kGguf;
  const fs::path tokenizer = !request.tokenizer.empty() ? request.tokenizer
                             : from_gguf                ? plan.source.path
                                                        : plan.source.companions;
  if (tokenizer.empty()) {
    throw UsageError(tr("[convert] no tokenizer lies beside the source, and GGUF holds one"),
                     tr("name it: --tokenizer-model DIR"));
  }
  const fs::path file = request.output.filename();
  ModelPlan model =
      plan_gguf(plan.config, plan.globals, tokenizer,
                {.type = gguf_type_named(request.gguf_type),
                 .model_name = plan.source.companions.empty()
                                   ? std::string()
                                   : fs::absolute(plan.source.companions).filename().string(),
                 .file_name = file});
  plan.model = with_one_added(plan.model, plan.config, model.metadata);
  for (const std::string& note : model.notes) log::info("{}", note);
  for (const std::string& warning : model.warnings) log::warning("{}", warning);
  conversion.output_is_file = true;
  conversion.target.plans.push_back(plan_file(model.metadata, model.tensors, model.constants));
  conversion.target.description = fmt::format("GGUF, {}", type_traits(model.type).name);
  conversion.target.layout = model.layout;
  if (!type_traits(model.type).plain) return;  // lossy: there is nothing to be equal to
  conversion.reopen = [layout = std::move(model.layout), file](const fs::path& directory) {
    return weights::open_layout(layout, {weights::gguf::open(directory / file)});
  };
}

void plan_peft(const ConvertRequest& request, ConvertPlan& plan, Conversion& conversion) {
  if (!plan.source.adapters) {
    throw UsageError(tr("[--to peft] {} has no adapters", request.source.string()),
                     tr("a MindSpeed LoRA checkpoint has them"));
  }
  plan.model = plan.source.adapters;
  std::vector<TensorInfo> tensors = plan.model->tensors();
  for (TensorInfo& info : tensors) {
    if (request.dtype) info.dtype = *request.dtype;
  }
  conversion.target = weights::plan_hf_directory(std::move(tensors), UINT64_MAX, "adapter_model");
  conversion.target.description = "PEFT adapter";
  conversion.target.texts.emplace_back("adapter_config.json",
                                       weights::peft_config_json(*plan.source.peft).dump(2) + "\n");
  conversion.reopen = [](const fs::path& directory) { return weights::open_weights(directory); };
}

void plan_target(const ConvertRequest& request, ConvertPlan& plan, Conversion& conversion) {
  switch (request.to) {
    case ConvertTo::kCore:
    case ConvertTo::kLegacy:
    case ConvertTo::kMm:
      plan_megatron(request, plan, conversion);
      break;
    case ConvertTo::kNative:
      plan_native(request, plan, conversion);
      break;
    case ConvertTo::kHf:
      plan_hf(request, plan, conversion);
      break;
    case ConvertTo::kGguf:
      plan_gguf_file(request, plan, conversion);
      break;
    case ConvertTo::kPeft:
      plan_peft(request, plan, conversion);
      break;
  }
}

/// Before anything is made of it: bytes that changed since they were written, where files know.
void check_source(const CheckpointSource& source, size_t num_threads) {
  std::vector<fs::path> files;
  for (const fs::path& file : source.files) {
    if (file.extension() == ".pt" || file.extension() == ".bin") files.push_back(file);
  }
  parallel_for(files.size(), weights::streaming_threads(num_threads),
               [&](size_t i) { weights::torch_file::check_torch_checksums(files[i]); });
}

// --- companions ----------------------------------------------------------------------------------

bool is_model_configuration(const std::string& name) {
  return name == "config.json" || name == "generation_config.json" ||
         name == "preprocessor_config.json" || name == "video_preprocessor_config.json" ||
         name == "processor_config.json" || name.ends_with(".py");
}

/// Copies the files whose names are wanted; those that are there already stay.
void copy_some(const fs::path& from, const fs::path& to,
               const std::function<bool(const std::string&)>& wanted) {
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename();
    if (entry.is_regular_file() && wanted(name) && !fs::exists(to / name))
      write_file_atomic(to / name, read_file(entry.path()));
  }
}

/// config.json as the source has it, or with what the conversion changed.
void write_companions(const ConvertRequest& request, const ConvertPlan& plan,
                      const fs::path& directory) {
  if (plan.config_changed) {
    arch::ModelConfig described = plan.config;
    if (described.score && request.to == ConvertTo::kCore)
      described.score->form = arch::ScoreForm::kSequence;  // rm_head's bias is Megatron's affair
    Json config = weights::saved_config(described, plan.globals.front().dtype);
    if (plan.nf4) config["quantization_config"] = weights::nf4_config(*plan.nf4, plan.config);
    write_json_file(directory / "config.json", config);
  }
  const fs::path& companions = plan.source.companions;
  const bool has_own = !companions.empty();
  const bool from_gguf = plan.source.format == weights::Format::kGguf;
  if (text::is_gguf(request.tokenizer) || (request.tokenizer.empty() && from_gguf)) {
    const fs::path& file = request.tokenizer.empty() ? plan.source.path : request.tokenizer;
    if (!text::write_gguf_tokenizer(file, directory))
      log::warning("{}: it holds no tokenizer, and none is written", file.string());
    if (has_own) copy_some(companions, directory, is_model_configuration);
  } else if (request.tokenizer.empty() ||
             (has_own && fs::equivalent(request.tokenizer, companions))) {
    if (has_own) weights::carry_over_files(companions, directory);
  } else {
    // One tokenizer, not parts of two: none of the source's own files, and no configuration of the
    // other directory's model.
    copy_some(request.tokenizer, directory, [](const std::string& name) {
      return weights::is_carried_over(name) && !is_model_configuration(name);
    });
    if (has_own) copy_some(companions, directory, is_model_configuration);
  }
  // What adapters were trained with is what the model that has them answers to.
  for (const fs::path& of : {request.adapters, companions}) {
    if (of.empty() || !fs::exists(of / text::kRecordFile)) continue;
    if (!text::recorded_template(text::read_record(of), of).is_named()) continue;
    return write_file_atomic(directory / text::kRecordFile, read_file(of / text::kRecordFile));
  }
}

/// Tokenizer and configuration go along, so the result depends on them too.
void note_companions(const ConvertRequest& request, const ConvertPlan& plan,
                     std::vector<fs::path>& files) {
  for (const fs::path& directory : {request.tokenizer, plan.source.companions}) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directory, none)) {
      const bool goes = weights::is_carried_over(entry.path().filename());
      if (goes && entry.is_regular_file(none)) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
}

/// What the result depends on besides the source's files.
std::string settings_of(const Options& options) {
  Json settings = options.to_json();
  // Where the source lies is in its files' names; where the result does changes nothing in it.
  settings["danlu"] = DANLU_VERSION;
  for (const char* name :
       {"check", "checksums", "threads", "overwrite", "load_dir", "save_dir", "adapters"})
    settings.erase(name);
  return settings.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// --- report --------------------------------------------------------------------------------------

void report_conversion(const weights::ConversionReport& done, const Conversion& conversion,
                       const char* why_unchecked, bool checksums) {
  if (done.was_up_to_date) {
    log::info("up to date: another process made {} meanwhile", conversion.output.string());
    return;
  }
  if (done.was_complete) {
    log::info("{} ({}) was complete: only the last steps of an interrupted command were missing",
              conversion.output.string(), conversion.target.description);
    return;
  }
  if (!done.digests.empty()) {
    if (checksums) write_checksums(done, conversion.output);
    std::fputs(tr("{}  total of {} tensors: a checksum, the same in every format and split\n",
                  weights::digest_text(weights::digest_total(done.digests)), done.digests.size())
                   .c_str(),
               stdout);
    std::fflush(stdout);  // before what is said of it
    log::info("checked: every bit read back from the result is what was converted");
  } else {
    log::info("not read back: {}", why_unchecked);
    if (checksums) log::warning("--checksums: there are none of what is not read back");
  }
  log::info("wrote {} ({}, {} in {}, {:.2f} GB/s)", conversion.output.string(),
            conversion.target.description, format_bytes(conversion.target.size_bytes()),
            format_duration(done.write_seconds),
            static_cast<double>(done.written_bytes) / 1e9 / std::max(1e-3, done.write_seconds));
}

/// The line given twice: nothing is done, and what it printed then is printed.
void report_up_to_date(const Options& options, const Conversion& conversion) {
  const fs::path checksums = checksums_file(conversion.output);
  if (options.get_bool("checksums") && fs::exists(checksums))
    std::fputs(read_file(checksums).c_str(), stdout);
  log::info(
      "up to date, nothing to do: {} is there from the same files and flags "
      "(--overwrite converts again)",
      conversion.output.string());
}

void log_next_step(const ConvertRequest& request, const ConvertPlan& plan) {
  const std::string output = shell_quoted(request.output.string());
  if (request.to == ConvertTo::kHf && plan.config.score) {
    log::info("next: danlu inspect {}", output);
  } else if (request.to == ConvertTo::kHf) {
    log::info("next: danlu chat --model {}", output);
  }
  if (request.to == ConvertTo::kCore || request.to == ConvertTo::kLegacy ||
      request.to == ConvertTo::kMm || request.to == ConvertTo::kNative)
    log::info("next: danlu inspect {}", output);
}

}  // namespace

int convert_as_asked(const Options& options, const ConvertRequest& asked) {
  ConvertRequest request = asked;
  ConvertPlan plan = open_plan(options, request);
  const fs::path& companions = plan.source.companions;
  if (request.tokenizer.empty() && !request.adapters.empty() && !companions.empty() &&
      settings::tokenizer_beside(companions, request.adapters) == request.adapters)
    request.tokenizer = request.adapters;
  Conversion conversion;
  conversion.output = request.output;
  plan_target(request, plan, conversion);
  log::info("{} ({}) -> {} ({})", request.source.string(), plan.source.description,
            request.output.string(), conversion.target.description);
  // Weights trained in fewer bits have their exact values in the optimizer.
  const bool from_masters = request.dtype == DType::kF32 && plan.source.optimizer.has_master;
  conversion.source =
      weights::join_optimizer(plan.model, plan.source.optimizer.tensors, from_masters);
  conversion.source_files = plan.source.files;
  note_companions(request, plan, conversion.source_files);
  conversion.settings = settings_of(options);
  conversion.overwrite = request.overwrite;
  conversion.num_threads = request.num_threads;
  const bool writes_model = request.to != ConvertTo::kGguf && request.to != ConvertTo::kPeft;
  if (writes_model) {
    conversion.write_companions = [&](const fs::path& directory) {
      write_companions(request, plan, directory);
    };
  }
  if (!request.overwrite && weights::is_up_to_date(conversion)) {
    report_up_to_date(options, conversion);
    log_next_step(request, plan);
    return 0;
  }
  const bool can_check = static_cast<bool>(conversion.reopen);
  const bool checksums = options.get_bool("checksums");
  const bool checks =
      request.check.value_or(checksums || conversion.target.size_bytes() < kCheckByDefaultBelow);
  if (!checks) conversion.reopen = {};
  check_checksums(options, request);
  watch_interrupts();
  if (checks) check_source(plan.source, request.num_threads);
  report_conversion(
      weights::convert(conversion), conversion,
      can_check ? "--check does that" : "blocks round, so there is nothing to be equal to",
      checksums);
  log_next_step(request, plan);
  return 0;
}

int run_convert(const Options& options) {
  ConvertRequest request = read_convert_request(options);
  take_trained(options, request);
  request.check_source = [&](const CheckpointSource& source) {
    check_described(options, request, source);
  };
  return convert_as_asked(options, request);
}

}  // namespace danlu::cli
