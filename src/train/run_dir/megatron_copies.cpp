#include "train/run_dir/megatron_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/shell_quote.h"
#include "checkpoint/checkpoint.h"
#include "settings/model_changes.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/convert/conversion.h"
#include "weights/convert/joined_source.h"
#include "weights/lora/peft.h"
#include "weights/megatron/checkpoint.h"
#include "weights/megatron/lora_target.h"
#include "weights/megatron/place.h"
#include "weights/megatron/target.h"
#include "weights/tensor_source.h"

namespace danlu::train {
namespace {

namespace fs = std::filesystem;
using settings::TrainConfig;

weights::megatron::TargetOptions options_of(const TrainConfig& config, int64_t step) {
  weights::megatron::TargetOptions target;
  target.split.tp = config.mesh.tensor;
  target.split.pp = config.pipeline.stages;
  target.split.layers_per_virtual_stage = config.pipeline.layers_per_virtual_stage;
  target.split.layer_list = config.pipeline.layer_list;
  target.split.noop_layers = config.pipeline.noop_layers;
  target.split.vocab_divisor = config.output.vocab_divisor;
  target.form.dialect = config.output.transformer_engine
                            ? weights::megatron::Dialect::kTransformerEngine
                            : weights::megatron::Dialect::kCore;
  target.iteration = step;
  return target;
}

weights::megatron::OptimizerShape shape_of(const TrainConfig& config, DType dtype) {
  weights::megatron::OptimizerShape shape;
  shape.distributed = config.output.distributed_optimizer;
  shape.fp32 = dtype == DType::kF32 && !shape.distributed;
  shape.param_dtype = dtype;
  shape.data_parallel = config.mesh.data;
  shape.context_parallel = config.mesh.context.size();
  shape.overlap_grad_reduce = config.output.overlap_grad_reduce;
  return shape;
}

/// What one copy is made of.
struct Content {
  arch::ModelConfig config;
  std::vector<weights::TensorInfo> globals;
  weights::megatron::TargetOptions target;
  weights::OptimizerState optimizer;
  weights::megatron::FusedAdapters adapters;
  std::shared_ptr<const weights::TensorSource> tensors;
  std::vector<fs::path> files;
};

std::vector<weights::TensorInfo> globals_of(const weights::CheckpointSource& source) {
  std::vector<weights::TensorInfo> globals =
      weights::megatron::global_tensors(source.config, DType::kF32);
  for (weights::TensorInfo& info : globals) info.dtype = source.model->find(info.name)->dtype;
  return globals;
}

void put_model(const TrainConfig& config, const fs::path& checkpoint, Content& content) {
  const bool with_state = !config.output.save_only_model;
  weights::CheckpointSource source =
      weights::open_checkpoint_source(checkpoint, {.with_optimizer = with_state});
  if (weights::has_predictions(source, with_state)) {
    weights::require_shared_predictions(source.config, *source.model, checkpoint);
    source.config.predicts_ahead = true;
  }
  content.globals = globals_of(source);
  content.tensors = weights::join_optimizer(source.model, source.optimizer.tensors);
  content.files = source.files;
  content.config = std::move(source.config);
  content.optimizer = std::move(source.optimizer);
  if (with_state) content.target.optimizer = &content.optimizer;
  content.target.optimizer_shape = shape_of(config, content.globals.front().dtype);
}

/// The base model as the run found it, and the checkpoint's adapters.
void put_adapters(const TrainConfig& config, const fs::path& checkpoint, Content& content) {
  weights::CheckpointSource base =
      weights::open_checkpoint_source(config.model.path, {.config_dir = config.model.config_dir,
                                                          .fallback_dir = config.model.fallback_dir,
                                                          .iteration = config.model.iteration});
  settings::make_changes(config.model.changes, base);
  content.config = base.config;
  content.globals = globals_of(base);
  const weights::PeftConfig peft = weights::load_peft_config(checkpoint);
  content.adapters = weights::megatron::fuse_adapters(
      weights::megatron::model_layout(content.config, content.target.split, content.target.form,
                                      content.globals),
      weights::open_weights(checkpoint), peft);
  content.target.adapters = &content.adapters;
  content.target.adapters_alone = config.output.adapters_alone;
  content.tensors = weights::join_tensors(base.model, content.adapters.tensors);
  content.files = base.files;
  for (const fs::path& file : content.adapters.tensors->files()) content.files.push_back(file);
}

/// Iterations there but for the newest so many, `written` among them; 0: none too many. A run that
/// went back to an older checkpoint has left later ones.
void remove_older(const fs::path& directory, int64_t limit, const fs::path& written) {
  if (limit == 0) return;
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const bool is_iteration = entry.path().filename().string().starts_with("iter_");
    if (is_iteration && entry.path() != written) others.push_back(entry.path());
  }
  std::sort(others.begin(), others.end());
  const auto most = static_cast<size_t>(limit - 1);
  for (size_t i = 0; i + most < others.size(); ++i) fs::remove_all(others[i]);
}

/// What a kill left of others.
void remove_unfinished(const fs::path& directory, const fs::path& own) {
  const std::string stays = own.filename();
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(".iteration-") && name != stays && !name.starts_with(stays + "."))
      fs::remove_all(entry.path());
  }
}

/// on_progress: as a conversion's.
void copy(const TrainConfig& config, const fs::path& checkpoint, int64_t step,
          const std::function<void()>& on_progress) {
  const bool lora = config.tuner == settings::Tuner::kLora;
  Content content;
  content.target = options_of(config, step);
  lora ? put_adapters(config, checkpoint, content) : put_model(config, checkpoint, content);
  const fs::path directory = config.output.directory / settings::kMegatronFolder;
  fs::create_directories(directory);
  weights::Conversion conversion;
  conversion.target =
      weights::megatron::plan_checkpoint(content.config, content.globals, content.target);
  conversion.source = content.tensors;
  conversion.source_files = content.files;
  conversion.output = directory / fmt::format(".iteration-{}", step);
  remove_unfinished(directory, conversion.output);
  conversion.overwrite = true;
  conversion.num_threads = 1;  // beside the training
  conversion.ends_on_signal = false;
  conversion.on_progress = on_progress;
  conversion.write_companions = [&](const fs::path& to) {
    weights::carry_over_files(checkpoint, to);
    if (lora) weights::carry_over_files(config.model.companions, to);
  };
  weights::convert(conversion);
  // The tracker last: it never names what is not whole.
  std::string tracker;
  for (const auto& entry : fs::directory_iterator(conversion.output)) {
    const fs::path name = entry.path().filename();
    if (name == weights::megatron::kTrackerFile) {
      tracker = read_file(entry.path());
      continue;
    }
    if (name == weights::kConversionFile) continue;  // of one iteration, and here are more
    if (entry.is_directory()) {
      publish_directory(entry.path(), directory / name);
    } else {
      fs::rename(entry.path(), directory / name);
    }
  }
  write_file_atomic(directory / weights::megatron::kTrackerFile, tracker);
  fs::remove_all(conversion.output);
  remove_older(directory, config.output.save_total_limit,
               directory / weights::megatron::iteration_directory(step));
}

/// How Megatron-LM and MindSpeed-LLM go on from the copies: the flags that its files demand.
std::string flags_of(const TrainConfig& config, const fs::path& directory) {
  if (config.tuner == settings::Tuner::kLora) {
    const auto header = weights::megatron::read_header(directory);
    const auto said = [&](const char* key) { return header.args.get(key).repr(); };
    std::string flags = fmt::format("--no-load-optim --no-load-rng --lora-r {} --lora-alpha {}",
                                    said("lora_r"), said("lora_alpha"));
    flags += " --lora-target-modules";
    for (const auto& module : header.args.get("lora_target_modules").as_items("args"))
      flags += " " + module.as_string("args");
    return flags;
  }
  const bool distributed = config.output.distributed_optimizer;
  std::string flags = "--no-load-rng";
  if (distributed) flags += " --use-distributed-optimizer";
  if (distributed && config.output.overlap_grad_reduce) flags += " --overlap-grad-reduce";
  return flags;
}

}  // namespace

MegatronCopies::MegatronCopies(const TrainConfig& config)
    : config_(config), thread_([this] { is_given_up_ = true; }) {}

void MegatronCopies::make(const fs::path& checkpoint, int64_t step) {
  try {
    copy(config_, checkpoint, step, [this] {
      if (is_given_up_) throw IoError(tr("given up: the training has failed"));
    });
    const std::string where = (config_.output.directory / settings::kMegatronFolder).string();
    log::info("saved {}", where);
    if (std::exchange(is_told_, true)) return;
    const std::string flags = flags_of(config_, where);
    if (config_.output.adapters_alone && config_.tuner == settings::Tuner::kLora) {
      log::info("MindSpeed-LLM goes on from it: --lora-load {} {}", shell_quoted(where), flags);
    } else {
      log::info("Megatron-LM and MindSpeed-LLM go on from it: --load {} {}", shell_quoted(where),
                flags);
    }
  } catch (const std::exception& failure) {
    log::warning(
        "{}: not written in Megatron's format: {}; it is whole, and danlu convert {} DIR --to "
        "mcore --with-optimizer does it",
        checkpoint.string(), failure.what(), shell_quoted(checkpoint.string()));
  }
}

void MegatronCopies::begin(const fs::path& checkpoint, int64_t step) {
  if (config_.output.save_format != settings::SaveFormat::kMegatron) return;
  {
    const std::lock_guard lock(mutex_);
    sources_.push_back(checkpoint);
  }
  last_ = thread_.run(
      [this, checkpoint, step] {
        make(checkpoint, step);
        const std::lock_guard lock(mutex_);
        sources_.pop_front();
      },
      at::kCPU);
}

std::vector<fs::path> MegatronCopies::sources() const {
  const std::lock_guard lock(mutex_);
  return {sources_.begin(), sources_.end()};
}

void MegatronCopies::catch_up() {
  const fs::path directory = config_.output.directory / settings::kMegatronFolder;
  const fs::path tracker = directory / weights::megatron::kTrackerFile;
  const std::vector<checkpoint::Found> found = checkpoint::list(config_.output.directory);
  std::error_code unknown;
  bool is_missing = false;
  for (size_t i = 0; i < found.size(); ++i) {
    const int64_t step = found[i].step;
    is_missing |= !fs::exists(directory / weights::megatron::iteration_directory(step), unknown);
    const bool is_newest = i + 1 == found.size();
    is_missing |=
        is_newest && !(fs::exists(tracker, unknown) && read_file(tracker) == std::to_string(step));
    // What is made later than another one is the newest by the tracker.
    if (is_missing) begin(found[i].directory, step);
  }
}

void MegatronCopies::wait() {
  if (last_.valid()) last_.get();
}

}  // namespace danlu::train
