#include "weights/convert/checkpoint_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>

#include "arch/prediction.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "weights/compare/describe.h"
#include "weights/convert/training_state.h"
#include "weights/gguf/gguf_checkpoint.h"
#include "weights/hf/body_names.h"
#include "weights/hf/new_head.h"
#include "weights/hf/packed_weights.h"
#include "weights/hf/renamed_source.h"
#include "weights/hf/stored_form.h"
#include "weights/hf/text_part.h"
#include "weights/hf/tower_names.h"
#include "weights/hf/value_head.h"
#include "weights/hf/wrapped_names.h"
#include "weights/lora/adapter_places.h"
#include "weights/lora/head_modules.h"
#include "weights/megatron/names.h"
#include "weights/native/native.h"

namespace danlu::weights {
namespace {

/// A view of the tensors `config` names, with those of its prediction layers: ignored buffers and a
/// tied head's copy stay out.
class ModelView final : public TensorSource {
 public:
  ModelView(std::shared_ptr<const TensorSource> all, const arch::ModelConfig& config)
      : all_(std::move(all)) {
    for (const TensorInfo& info : megatron::global_tensors(config, DType::kF32))
      infos_.push_back(*all_->find(info.name));
    for (const TensorInfo& info : all_->tensors()) {
      if (arch::is_of_prediction_layer(config, info.name)) infos_.push_back(info);
    }
    std::sort(infos_.begin(), infos_.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, std::span<std::byte> out) const override {
    all_->read(name, out);
  }
  void read_range(const std::string& name, int64_t begin, int64_t end,
                  std::span<std::byte> out) const override {
    all_->read_range(name, begin, end, out);
  }
  void read_rect(const std::string& name, const Rect& rect, std::byte* out,
                 int64_t out_stride) const override {
    all_->read_rect(name, rect, out, out_stride);
  }
  std::span<const std::byte> mapped(const std::string& name) const override {
    return all_->mapped(name);
  }
  std::filesystem::path file_of(const std::string& name) const override {
    return all_->file_of(name);
  }
  Storage storage(const std::string& name) const override { return all_->storage(name); }
  std::optional<Nf4Form> nf4_form(const std::string& name) const override {
    return all_->nf4_form(name);
  }
  Nf4Codes read_nf4(const std::string& name) const override { return all_->read_nf4(name); }
  const Json& metadata() const override { return all_->metadata(); }
  std::vector<std::filesystem::path> files() const override { return all_->files(); }
  void forget() const override { all_->forget(); }

 private:
  std::shared_ptr<const TensorSource> all_;
  std::vector<TensorInfo> infos_;
};

void require_fit(const arch::ModelConfig& config, const TensorSource& source,
                 const fs::path& path) {
  std::vector<std::string> lines = mismatches(config, source);
  if (lines.empty()) return;
  constexpr size_t kShown = 5;
  const size_t count = lines.size();
  lines.resize(std::min(count, kShown));
  throw ModelError(tr("{}: its weights are not those config.json describes, {} {}: {}{}",
                      path.string(), count, count == 1 ? "difference" : "differences",
                      fmt::join(lines, "; "), count > kShown ? "; …" : ""),
                   tr("does config.json belong to these weights? danlu inspect shows both"));
}

/// Whether both are equal, byte for byte. REQUIRES: their shapes and types are.
bool are_equal(const TensorSource& source, const std::string& one, const std::string& other) {
  const TensorInfo* info = source.find(one);
  const int64_t cols = matrix_of(info->shape).cols, rows = matrix_of(info->shape).rows;
  const auto item = static_cast<int64_t>(dtype_size_bytes(info->dtype));
  const int64_t step = std::max<int64_t>(1, (4 << 20) / (cols * item));
  for (int64_t row = 0; row < rows; row += step) {
    const Rect rect{row, std::min(step, rows - row), 0, cols};
    std::vector<std::byte> a(static_cast<size_t>(rect.rows * cols * item)), b(a.size());
    source.read_rect(one, rect, a.data(), cols);
    source.read_rect(other, rect, b.data(), cols);
    if (a != b) return false;
  }
  return true;
}

/// lm_head.weight of a tied model is a copy; one that differs would be lost.
void check_tied_copy(const arch::ModelConfig& config, const TensorSource& source,
                     const fs::path& path) {
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.tied_to.empty() || !source.find(spec.name)) continue;
    if (are_equal(source, spec.name, spec.tied_to)) continue;
    throw ModelError(tr("{}: {} differs from {}, but config.json ties them", path.string(),
                        spec.name, spec.tied_to),
                     tr("set tie_word_embeddings to false in config.json if the head is its own"));
  }
}

/// A view of such tensors with the copies of table and head that Hugging Face's files have of each
/// layer that predicts further ahead; the source itself where there are none.
std::shared_ptr<const TensorSource> with_copies(const std::shared_ptr<const TensorSource>& model,
                                                arch::ModelConfig config) {
  const bool has_any = std::any_of(
      model->tensors().begin(), model->tensors().end(),
      [&](const TensorInfo& info) { return arch::is_of_prediction_layer(config, info.name); });
  if (!has_any) return model;
  config.predicts_ahead = true;
  RenamedSource::Names names;
  for (const TensorInfo& info : model->tensors()) names.emplace(info.name, info.name);
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.layer >= config.num_layers && !spec.tied_to.empty())
      names.emplace(spec.name, spec.tied_to);
  }
  return std::make_shared<RenamedSource>(model, names);
}

arch::Heads heads_of(const SourceOptions& options) {
  return options.scores ? arch::Heads::kAny : arch::Heads::kVocabulary;
}

/// TRL's models have their head among the weights: it judges where that is wanted. Errors:
/// ModelError where a copy would lose it.
void take_value_head(const SourceOptions& options, const fs::path& path, CheckpointSource& source,
                     std::shared_ptr<const TensorSource>& all) {
  if (options.scores) {
    source.config = arch::with_score(source.config, {.form = arch::ScoreForm::kBeside});
  } else if (options.all_tensors) {
    log::notice("{}: v_head, a head that gives numbers, lies among its weights and is not read",
                path.string());
    all = without_value_head(all);
  } else {
    throw ModelError(
        tr("{}: v_head, a head that gives numbers, lies among its weights and would be lost",
           path.string()),
        tr("--reward_model takes it as it is; --to mcore has it as rm_head"));
  }
}

/// Says, once a process, that other systems' quantised weights are read as the numbers that they
/// stand for.
void report_packed(const TensorSource& source, const fs::path& path) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::string packed = packed_text(source);
  const std::lock_guard lock(mutex);
  if (packed.empty() || !said.insert(path.string()).second) return;
  log::info("notice: {}",
            tr("{}: its files hold quantised matrices ({}), which are dequantised as they are "
               "read: they are held, trained and written unquantised",
               path.string(), packed));
}

CheckpointSource open_hf(const fs::path& path, const SourceOptions& options) {
  CheckpointSource source{.format = Format::kHuggingFace, .path = path};
  const bool is_directory = fs::is_directory(path);
  source.companions = !options.config_dir.empty() ? options.config_dir
                      : is_directory              ? path
                                                  : fs::absolute(path).parent_path();
  // What is no file of weights at all says so before a configuration is looked for beside it.
  const auto file = is_directory ? nullptr : open_weights(path);
  source.config = arch::load_model_config(source.companions, heads_of(options));
  const auto named = with_body_names(
      with_hub_names(
          with_text_part(without_wrappers(is_directory ? open_weights(path) : file, path),
                         source.config, path),
          source.config, path),
      source.config);
  // sentence-transformers saves the body alone; nothing asks such a model for words.
  if (is_directory && fs::exists(path / "modules.json") && lacks_head(*named, source.config))
    source.config.tie_embeddings = true;
  report_packed(*named, path);
  auto all = as_parameters(named, source.config);
  if (options.scores && !source.config.score && is_directory && has_value_head(path)) {
    source.config = arch::with_score(source.config, {.form = arch::ScoreForm::kBeside});
    all = with_value_head(all, path);
  } else if (!source.config.score && holds_value_head(*all)) {
    take_value_head(options, path, source, all);
  }
  source.description = fmt::format("Hugging Face, {}", source.config.family);
  if (options.all_tensors) {
    source.model = all;
    return source;
  }
  require_fit(source.config, *all, path);
  check_tied_copy(source.config, *all, path);
  source.model = std::make_shared<ModelView>(all, source.config);
  if (options.with_optimizer) source.optimizer = open_training_state(path, source.config);
  return source;
}

CheckpointSource open_megatron(const fs::path& path, const SourceOptions& options) {
  megatron::Checkpoint opened =
      megatron::open_checkpoint(path, {.config_dir = options.config_dir,
                                       .fallback_dir = options.fallback_dir,
                                       .iteration = options.iteration,
                                       .with_optimizer = options.with_optimizer,
                                       .scores = options.scores,
                                       .lora_rank = options.lora_rank,
                                       .lora_alpha = options.lora_alpha});
  CheckpointSource source{.format = Format::kMegatron, .path = path};
  const megatron::Header& header = opened.header;
  source.description = fmt::format(
      "{}, {}, {}", describe(header.form.dialect), describe(header.split),
      header.place.iteration ? fmt::format("iteration {}", *header.place.iteration) : "release");
  source.iteration = header.place.iteration;
  source.differing_copies = [opened] { return opened.differing_copies(); };
  source.config = std::move(opened.config);
  source.companions = opened.companions;
  source.model = opened.model;
  if (source.model) drop_zero_bias(source.model, source.config);
  if (source.model) source.model = with_copies(source.model, source.config);
  source.config.predicts_ahead = false;
  source.optimizer = std::move(opened.optimizer);
  const bool is_mm = header.form.dialect == megatron::Dialect::kMindSpeedMm;
  if (is_mm && header.has_optimizer)
    log::warning("{}: its optimizer's state is MindSpeed-MM's own and is not read", path.string());
  source.has_optimizer = header.has_optimizer && !is_mm;
  source.adapters = opened.adapters;
  source.peft = std::move(opened.peft);
  source.megatron = std::move(opened.header);
  return source;
}

CheckpointSource open_native(const fs::path& path, const SourceOptions& options) {
  native::Checkpoint opened = native::open_checkpoint(path);
  CheckpointSource source{.format = Format::kNative, .path = path};
  source.companions = options.config_dir.empty() ? path : options.config_dir;
  source.config = arch::load_model_config(source.companions, heads_of(options));
  require_fit(source.config, *opened.model, path);
  source.model = with_copies(opened.model, source.config);
  source.iteration = opened.iteration;
  source.description = "native, " + opened.split;
  source.has_optimizer = opened.optimizer.tensors != nullptr;
  if (!options.with_optimizer) return source;
  if (!opened.optimizer.tensors)
    throw ModelError(tr("{}: no optimizer state is in it", path.string()));
  source.optimizer = std::move(opened.optimizer);
  return source;
}

CheckpointSource open_gguf(const fs::path& path, const SourceOptions& options) {
  if (options.with_optimizer)
    throw ModelError(tr("{}: GGUF files hold no optimizer state", path.string()));
  gguf::Checkpoint opened = gguf::open_checkpoint(path);
  CheckpointSource source{.format = Format::kGguf, .path = path};
  source.description = "GGUF, " + opened.description;
  source.config = std::move(opened.config);
  source.model = with_copies(opened.model, source.config);
  source.blocks = opened.blocks;
  source.widened = std::move(opened.widened);
  return source;
}

void note_files(CheckpointSource& source) {
  const auto note = [&](const std::shared_ptr<const TensorSource>& tensors) {
    if (!tensors) return;
    const auto files = tensors->files();
    source.files.insert(source.files.end(), files.begin(), files.end());
  };
  note(source.model);
  note(source.optimizer.tensors);
  note(source.adapters);
  if (!source.companions.empty()) source.files.push_back(source.companions / "config.json");
  std::sort(source.files.begin(), source.files.end());
  source.files.erase(std::unique(source.files.begin(), source.files.end()), source.files.end());
}

}  // namespace

const char* format_name(Format format) {
  switch (format) {
    case Format::kHuggingFace:
      return "Hugging Face";
    case Format::kMegatron:
      return "Megatron";
    case Format::kNative:
      return "native";
    case Format::kGguf:
      return "GGUF";
    case Format::kPeft:
      return "PEFT";
  }
  return "";
}

std::optional<Format> detect_format(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  if (!fs::is_directory(path, error)) {
    if (gguf::is_gguf_file(path)) return Format::kGguf;
    return Format::kHuggingFace;
  }
  if (native::is_native_directory(path)) return Format::kNative;
  if (megatron::is_megatron_directory(path)) return Format::kMegatron;
  if (has_weights(path)) return Format::kHuggingFace;
  if (fs::exists(path / "adapter_config.json", error)) return Format::kPeft;
  return std::nullopt;
}

std::string hint_of_unfinished_run(const std::filesystem::path& directory) {
  const std::filesystem::path newest = directory / "last";
  const std::optional<Format> format = detect_format(newest);
  if (!format) return "";
  return tr(
      "{} is of a training run that has not ended: the command that began it goes on with it; "
      "its newest checkpoint is {}",
      directory.string(), (*format == Format::kPeft ? "--adapters " : "") + newest.string());
}

std::string hint_of_models_below(const std::filesystem::path& directory) {
  return danlu::hint_of_models_below(directory, [](const fs::path& below) {
    const std::optional<Format> format = detect_format(below);
    return format && *format != Format::kPeft;
  });
}

std::string weights_like_in(const fs::path& directory) {
  const auto looks_like_weights = [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    std::error_code unknown;
    if (entry.is_directory(unknown)) {
      return name == "release" || name.starts_with("iter_") || name.starts_with("mp_rank_") ||
             name.starts_with("global_step");
    }
    const auto ends_so = [&](const char* ending) { return name.ends_with(ending); };
    constexpr std::array kEndings = {".safetensors", ".bin",  ".pt",      ".pth",
                                     ".gguf",        ".ckpt", ".npz",     ".distcp",
                                     ".index.json",  ".onnx", ".msgpack", ".h5"};
    return name == megatron::kTrackerFile || name == ".metadata" ||
           (!name.starts_with("tokenizer") &&
            std::any_of(kEndings.begin(), kEndings.end(), ends_so));
  };
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (looks_like_weights(*at)) names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) return "";
  return names.size() == 1 ? names.front()
                           : fmt::format("{} and {} more", names.front(), names.size() - 1);
}

CheckpointSource open_checkpoint_source(const fs::path& path, const SourceOptions& options) {
  const auto format = detect_format(path);
  CheckpointSource source;
  if (!fs::exists(path)) {
    throw ModelError(tr("{}: no such file or directory", path.string()));
  } else if (!format) {
    const std::string like = weights_like_in(path);
    if (like.ends_with(".gguf")) {
      throw ModelError(tr("{}: a directory with {} in it", path.string(), like),
                       tr("a GGUF model is one file: name it"));
    }
    (void)open_weights(path);  // says what it looked for
    throw ModelError(tr("{}: no checkpoint in it", path.string()));
  } else if (*format == Format::kMegatron) {
    if (has_weights(path)) {
      throw ModelError(
          tr("{}: a Megatron checkpoint and Hugging Face weights lie in it", path.string()),
          tr("name the iteration's directory (iter_…), or move one of them"));
    }
    source = open_megatron(path, options);
  } else if (*format == Format::kNative) {
    source = open_native(path, options);
  } else if (*format == Format::kHuggingFace) {
    source = open_hf(path, options);
  } else if (*format == Format::kPeft) {
    throw ModelError(tr("{}: a PEFT adapter, not a model", path.string()),
                     tr("name the base model, and the adapter with --adapters"));
  } else {
    source = open_gguf(path, options);
  }
  note_files(source);
  return source;
}

bool has_predictions(const CheckpointSource& source, bool with_state) {
  const auto has = [&](const TensorSource* tensors, std::string_view prefix) {
    return tensors && std::any_of(tensors->tensors().begin(), tensors->tensors().end(),
                                  [&](const TensorInfo& info) {
                                    return info.name.starts_with(prefix) &&
                                           arch::is_of_prediction_layer(
                                               source.config, info.name.substr(prefix.size()));
                                  });
  };
  return has(source.model.get(), "") &&
         (!with_state || has(source.optimizer.tensors.get(), "exp_avg."));
}

void require_shared_predictions(const arch::ModelConfig& config, const TensorSource& source,
                                const std::filesystem::path& path) {
  arch::ModelConfig all = config;
  all.predicts_ahead = true;
  for (const arch::ParamSpec& spec : arch::parameters_of(all)) {
    if (spec.layer < config.num_layers) continue;
    const TensorInfo* info = source.find(spec.name);
    if (!info && !spec.tied_to.empty()) continue;
    if (!info || info->shape != spec.shape) {
      throw ModelError(info ? tr("{}: {} is {}, but must be {}", path.string(), spec.name,
                                 shape_text(info->shape), shape_text(spec.shape))
                            : tr("{}: {} is missing, of a layer that predicts further ahead (MTP)",
                                 path.string(), spec.name),
                       tr("with num_nextn_predict_layers 0 in config.json there is no such layer"));
    }
    if (spec.tied_to.empty() || are_equal(source, spec.name, spec.tied_to)) continue;
    throw ModelError(tr("{}: {} differs from {}, with which it is one where such layers are "
                        "trained (MTP)",
                        path.string(), spec.name, spec.tied_to),
                     tr("convert --to hf keeps them apart"));
  }
}

void report_idle_iteration(const CheckpointSource& source, const std::string& iteration,
                           const std::string& flag) {
  if (iteration.empty()) return;
  const std::string place = source.path.string();
  std::error_code unknown;
  if (source.format != Format::kMegatron) {
    log::info("notice: {}",
              tr("{} {}: {} has no iterations to choose from", flag, iteration, place));
  } else if (source.megatron &&
             fs::equivalent(source.path, source.megatron->place.directory, unknown)) {
    log::info("notice: {}",
              tr("{} {}: {} is one iteration itself, and is taken", flag, iteration, place));
  }
}

void refuse_differing_copies(const std::vector<std::string>& lines, bool loose) {
  if (lines.empty()) return;
  const std::string text = fmt::format("{}", fmt::join(lines, "; "));
  if (loose) return log::warning("{}: the first rank's copy is taken", text);
  throw ModelError(text, tr("files of two saves may be mixed; danlu convert with "
                            "--load-checkpoint-loosely takes the first rank's copy"));
}

AdapterSource open_adapter_source(const fs::path& path, const arch::ModelConfig& config,
                                  const SourceOptions& options) {
  if (detect_format(path) == Format::kMegatron && !fs::exists(path / "adapter_config.json")) {
    megatron::Checkpoint opened = megatron::open_adapters(
        path, config, {.lora_rank = options.lora_rank, .lora_alpha = options.lora_alpha});
    refuse_differing_copies(opened.differing_copies(), options.loose);
    return {Format::kMegatron, std::move(opened.adapters), std::move(*opened.peft)};
  }
  PeftConfig peft = load_peft_config(path);
  split_head_modules(peft, config);
  auto tensors = as_adapter_parameters(
      with_hub_names(as_adapter_file(open_weights(path), path), config, path), config);
  if (config.score && config.score->form == arch::ScoreForm::kBeside && has_value_head(path)) {
    tensors = with_value_head(tensors, path, kWholeModulePrefix);
    peft.modules_to_save.push_back(config.score->module());
  }
  if (!has_tower_adapters(*tensors)) {
    const std::vector<std::string> excluded = peft.exclude_modules;
    keep_out_of_tower(peft, config);
    if (peft.exclude_modules != excluded) {
      log::info("notice: {}", tr("{}: its targets name layers of the vision tower too, and it has "
                                 "no tensors for them: the tower has no adapters",
                                 path.string()));
    }
  }
  return {Format::kPeft, std::move(tensors), std::move(peft)};
}

std::shared_ptr<const TensorSource> open_any_tensors(const fs::path& path,
                                                     const SourceOptions& options) {
  const auto format = detect_format(path);
  if (!format || *format == Format::kGguf || *format == Format::kPeft) return open_weights(path);
  if (*format == Format::kHuggingFace) {
    auto all = without_wrappers(open_weights(path), path);
    const fs::path directory = fs::is_directory(path) ? path : fs::absolute(path).parent_path();
    if (!fs::exists(directory / "config.json")) return all;
    try {
      const arch::ModelConfig config = arch::load_model_config(directory);
      all = with_text_part(std::move(all), config, path);
      all = as_parameters(with_body_names(with_hub_names(all, config, path), config), config);
      if (mismatches(config, *all).empty()) return std::make_shared<ModelView>(all, config);
    } catch (const ModelError&) {
      // Another architecture's tensors can be looked at all the same.
    }
    return all;
  }
  const CheckpointSource source = open_checkpoint_source(path, options);
  return source.model ? source.model : source.adapters;
}

}  // namespace danlu::weights
