#include "weights/megatron/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "weights/layout_source.h"
#include "weights/megatron/arguments.h"
#include "weights/megatron/described_model.h"
#include "weights/megatron/group_check.h"
#include "weights/megatron/lora_layout.h"
#include "weights/megatron/lora_target.h"
#include "weights/megatron/optimizer_layout.h"
#include "weights/source_base.h"
#include "weights/torch/torch_document.h"

namespace danlu::weights::megatron {
namespace {

using Files = std::vector<std::shared_ptr<const TensorSource>>;

/// The directory of config.json; empty if none is known.
std::filesystem::path find_companions(const Place& place, const OpenOptions& options) {
  if (!options.config_dir.empty()) return options.config_dir;
  for (const std::filesystem::path& directory : {place.root, options.fallback_dir}) {
    if (!directory.empty() && std::filesystem::exists(directory / "config.json")) return directory;
  }
  return {};
}

void check_arguments(const Header& header, const arch::ModelConfig& config,
                     const std::filesystem::path& companions) {
  // A reader keeps the embedding's rows per rank as the divisor (Header::split).
  const int64_t rows = header.split.vocab_divisor * header.split.tp;
  for (const std::string& line : doubts(header.args, config, header.only_adapters ? 0 : rows))
    log::warning("{}: {}", header.place.directory.string(), line);
  const std::vector<std::string> lines = disagreements(header.args, config);
  if (lines.empty()) return;
  throw ModelError(tr("{} is not of the model in {}: {}", header.place.directory.string(),
                      companions.string(), fmt::join(lines, "; ")),
                   tr("name the right model directory with --hf-config"));
}

arch::ModelConfig config_of_arguments(const Header& header) {
  const std::string where = header.place.directory.string();
  if (header.form.dialect == Dialect::kMindSpeedMm) {
    throw ModelError(
        tr("{}: there is no config.json beside it, and a MindSpeed-MM checkpoint does not say what "
           "its model is",
           where),
        tr("name the Hugging Face directory of the model it was made from: --hf-config DIR"));
  }
  if (!header.args.has_entries()) {
    throw ModelError(
        tr("{}: neither a config.json nor args say what its architecture is", where),
        tr("name the Hugging Face directory of the model it was made from: --hf-config DIR"));
  }
  const int64_t rows = header.split.vocab_divisor * header.split.tp;
  return arch::parse_model_config(
      described_model(header.args, header.only_adapters ? 0 : rows, where), where);
}

/// The stages of adapters alone are those of their names if they sit on every layer.
Split complete_split(const Header& header, int64_t num_layers) {
  const std::string where = header.place.directory.string();
  Split split = header.split;
  if (header.form.dialect == Dialect::kMindSpeedMm) return split;
  if (count_layers(header.stages) == num_layers) split = with_stages(split, header.stages, where);
  const auto slots = num_layers + static_cast<int64_t>(split.noop_layers.size());
  if (!split.layer_list.empty() || slots % split.pp == 0) return split;
  throw ModelError(
      tr("{}: {} layers do not divide over {} stages, and neither args.num_layer_list nor "
         "the tensors say how they are cut",
         where, slots, split.pp),
      tr("is config.json that of this checkpoint's model? adapters on some layers only need args"));
}

Files open_files(const Header& header, const Layout& layout) {
  Files files;
  for (const std::string& file : layout.files)
    files.push_back(open_torch_file(header.place.directory / file));
  return files;
}

bool is_weight_name(const std::string& name) {
  if (!name.starts_with("model")) return false;
  const size_t dot = name.find('.');
  const std::string chunk = name.substr(5, dot == std::string::npos ? std::string::npos : dot - 5);
  return chunk.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

struct Parts {
  ModelLayout model;
  Files files;
  Layout lora;
};

namespace {

/// Tensors of the state dict that no part of the model is made of would be lost silently.
/// `only_adapters`: what stands beside adapters is not asked for.
void refuse_unknown(const Header& header, const Parts& parts, bool only_adapters,
                    bool has_score = false) {
  const Files& files = parts.files;
  const Layout& model = parts.model.layout;
  const Layout& lora = parts.lora;
  std::vector<std::unordered_set<std::string>> known(files.size());
  for (const Layout* layout : {&model, &lora}) {
    for (const StoredTensor& stored : layout->tensors) known[stored.file].insert(stored.info.name);
  }
  std::vector<std::string> unknown;
  for (size_t file = 0; file < files.size(); ++file) {
    for (const TensorInfo& info : files[file]->tensors()) {
      const bool is_state_of_engine = info.name.find("_extra_state") != std::string::npos;
      const bool is_wanted = !only_adapters || info.name.find(".lora_") != std::string::npos;
      // A reward model has the vocabulary's head, and never uses it.
      const bool is_idle = has_score && info.name.find(".output_layer.") != std::string::npos;
      if (is_wanted && is_weight_name(info.name) && !is_state_of_engine && !is_idle &&
          !known[file].count(info.name)) {
        unknown.push_back(
            fmt::format("{}: {} {}", model.files[file], info.name, shape_text(info.shape)));
      }
    }
  }
  if (unknown.empty()) return;
  const auto is_of_reward = [](const std::string& line) {
    return line.find("rm_head.") != std::string::npos;
  };
  if (std::any_of(unknown.begin(), unknown.end(), is_of_reward)) {
    throw ModelError(
        tr("{}: a reward model of MindSpeed-LLM (rm_head), which does not talk",
           header.place.directory.string()),
        tr("--reward_model takes it; danlu convert --to hf makes transformers' of it"));
  }
  constexpr size_t kShown = 5;
  const size_t count = unknown.size();
  unknown.resize(std::min(count, kShown));
  throw ModelError(tr("{}: {} tensors are no part of the model config.json describes: {}{}",
                      header.place.directory.string(), count, fmt::join(unknown, "; "),
                      count > kShown ? "; …" : ""),
                   tr("is config.json that of this checkpoint's model?"));
}

/// Completes the header's split.
std::shared_ptr<const Parts> open_parts(Header& header, const arch::ModelConfig& config) {
  Parts opened;
  header.split = complete_split(header, config.num_layers);
  try {
    opened.model =
        model_layout(config, header.split, header.form, global_tensors(config, config.dtype));
  } catch (const UsageError& e) {
    // The split is the file's, not one the user asked for.
    throw ModelError(tr("{}: {}", header.place.directory.string(), e.what()), e.hint());
  }
  opened.files = open_files(header, opened.model.layout);
  if (header.has_adapters) {
    rename_base_layers(opened.model, opened.files);
    opened.lora = lora_layout(opened.model, opened.files);
  }
  return std::make_shared<const Parts>(std::move(opened));
}

/// Settings of every group any rank has, by what distinguishes groups.
void gather_groups(const PyValue& optimizer, const std::string& where,
                   OptimizerSettings& settings) {
  const PyValue* member = &optimizer;
  if (const PyValue* inner = optimizer.find("optimizer")) member = inner;
  const PyValue* groups = member->find("param_groups");
  if (!groups) return;
  size_t index = 0;
  for (const PyValue& group : groups->as_items(where + ": param_groups")) {
    Json json = to_json(group);
    if (json.is_object()) json.erase("params");
    check_group_kinds(json, where, fmt::format("param_groups[{}]", index++));
    const auto same = [&](const Json& known) {
      for (const char* key : {"wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr"}) {
        if (known.value(key, Json()) != json.value(key, Json())) return false;
      }
      return true;
    };
    if (std::none_of(settings.groups.begin(), settings.groups.end(), same))
      settings.groups.push_back(std::move(json));
  }
}

OptimizerSettings read_settings(const Header& header, const Layout& layout,
                                const std::vector<std::vector<RankOptimizer>>& ranks) {
  OptimizerSettings settings;
  for (size_t i = 0; i < layout.files.size(); ++i) {
    const std::filesystem::path file = header.place.directory / layout.files[i];
    const auto document = torch_file::read_torch_document(file);
    const std::string where = file.string() + ": optimizer";
    if (const PyValue* optimizer = document.root.find("optimizer")) {
      check_groups(*optimizer, ranks[i], where);
      if (optimizer->is(torch_file::PyKind::kList)) {
        for (const PyValue& member : optimizer->items()) gather_groups(member, where, settings);
      } else {
        gather_groups(*optimizer, where, settings);
      }
      const PyValue* scaler = optimizer->find("grad_scaler");
      if (i == 0 && scaler) settings.grad_scaler = to_json(*scaler);
    }
    if (i > 0) continue;
    if (const PyValue* scheduler = document.root.find("opt_param_scheduler"))
      settings.scheduler = to_json(*scheduler);
    if (const PyValue* iteration = document.root.find("iteration"))
      settings.iteration = iteration->as_int(file.string() + ": iteration");
    const PyValue* consumed = header.args.find("consumed_train_samples");
    if (consumed && !consumed->is_none())
      settings.consumed_train_samples = whole_number(*consumed, where + ": consumed_train_samples");
  }
  return settings;
}

/// Which of the layouts of an optimizer the files hold.
OptimizerShape shape_of(const Header& header, const TensorSource& first_model_file) {
  DType param_dtype = DType::kF32;
  for (const TensorInfo& info : first_model_file.tensors()) {
    if (is_weight_name(info.name) && is_floating(info.dtype)) {
      param_dtype = info.dtype;
      break;
    }
  }
  OptimizerShape shape = recorded_shape(header.args, param_dtype);
  const auto& place = header.place;
  shape.distributed =
      std::filesystem::exists(place.directory / place.ranks.front() / kOptimizerFile);
  shape.fp32 = param_dtype == DType::kF32 && !shape.distributed;
  return shape;
}

OptimizerState open_optimizer(const Header& header, const Parts& opened) {
  const std::string where = header.place.directory.string();
  if (header.form.dialect == Dialect::kMindSpeedMm)
    throw ModelError(tr("{}: optimizer states of MindSpeed-MM are not read", where));
  if (!header.has_optimizer) throw ModelError(tr("{}: no optimizer state is in it", where));
  if (header.has_adapters)
    throw ModelError(tr("{}: optimizer states of adapters are not converted", where));
  if (header.has_score)
    throw ModelError(tr("{}: optimizer states of reward models are not converted", where));
  const OptimizerShape shape = shape_of(header, *opened.files.front());
  const OptimizerLayout layout = optimizer_layout(opened.model, shape);
  Files files = opened.files;
  if (shape.distributed) {
    files.clear();
    for (const std::string& file : layout.layout.files) {
      if (!std::filesystem::exists(header.place.directory / file))
        throw ModelError(tr("{}/{} is missing", where, file));
      files.push_back(open_torch_file(header.place.directory / file));
    }
  }
  OptimizerState state;
  state.has_master = !shape.fp32;
  state.settings = read_settings(header, opened.model.layout, layout.ranks);
  state.tensors = open_layout(layout.layout, files);
  return state;
}

double alpha_of(const Header& header, const OpenOptions& options) {
  const PyValue* recorded = header.args.find("lora_alpha");
  if (!recorded || recorded->is_none()) {
    if (options.lora_alpha) return *options.lora_alpha;
    throw ModelError(tr("{}: args hold no lora_alpha, so the adapters' scale is not known",
                        header.place.directory.string()),
                     tr("give the value training was run with: --lora-alpha N"));
  }
  return recorded->as_float("args.lora_alpha");
}

/// --lora-r and --lora-alpha against an adapter that tells both.
void check_flags(const OpenOptions& options, const PeftConfig& peft) {
  if (options.lora_alpha && *options.lora_alpha != peft.alpha) {
    throw UsageError(tr("[--lora-alpha] {} was given, the checkpoint was trained with {}",
                        *options.lora_alpha, peft.alpha));
  }
  if (options.lora_rank && *options.lora_rank != peft.rank) {
    throw UsageError(tr("[--lora-r] {} was given, the checkpoint's adapters have rank {}",
                        *options.lora_rank, peft.rank));
  }
}

void add_adapters(const OpenOptions& options, Checkpoint& checkpoint) {
  const Parts& opened = *checkpoint.parts;
  const Header& header = checkpoint.header;
  checkpoint.adapters = open_layout(opened.lora, opened.files);
  const PyValue* record = header.args.find(kFusedFrom);
  if (record && !record->is_none()) {
    const std::string where =
        fmt::format("{}: args.{}", header.place.directory.string(), kFusedFrom);
    UnfusedAdapters unfused =
        unfuse_adapters(opened.model, std::move(checkpoint.adapters), *record, where);
    checkpoint.adapters = std::move(unfused.tensors);
    checkpoint.peft = std::move(unfused.peft);
  } else {
    checkpoint.peft = peft_of(opened.lora, alpha_of(header, options));
  }
  check_flags(options, *checkpoint.peft);
}

/// The stored tensors that may hold copies, with the dtypes of the files. A copy of another dtype
/// than its original's is added to `lines` at once.
Layout copies_in(const Layout& layout, const Files& files, const TensorSource& globals,
                 uint64_t max_bytes, size_t limit, std::vector<std::string>& lines) {
  Layout copies{layout.globals, layout.files, {}};
  for (const StoredTensor& stored : layout.tensors) {
    const TensorInfo& info = *files[stored.file]->find(stored.info.name);
    const std::vector<Piece>& pieces = stored.sections.front().pieces;
    const auto copy = std::find_if(pieces.begin(), pieces.end(),
                                   [](const Piece& piece) { return piece.replica; });
    if (copy == pieces.end() || info.size_bytes() > max_bytes) continue;
    const TensorInfo& original = *globals.find(layout.globals[copy->global].name);
    if (original.dtype == info.dtype) {
      copies.tensors.push_back(stored);
      copies.tensors.back().info.dtype = info.dtype;
    } else if (lines.size() < limit) {
      lines.push_back(tr("{}: {} is {}, its copy in {} is {}",
                         files[stored.file]->file_of(info.name).string(), info.name,
                         dtype_name(info.dtype), globals.file_of(original.name).string(),
                         dtype_name(original.dtype)));
    }
  }
  return copies;
}

/// With MindSpeed-LLM's head. Errors: ModelError where that reads what no final norm has seen.
arch::ModelConfig with_score(const arch::ModelConfig& config, const Header& header) {
  const PyValue* norm = header.args.find("post_layer_norm");
  if (norm && *norm == PyValue::boolean(false)) {
    throw ModelError(tr("{}: a reward model that was trained with --no-post-layer-norm: its head "
                        "reads hidden states before the final norm",
                        header.place.directory.string()),
                     tr("models of transformers read them behind it; train without that flag"));
  }
  if (config.score && config.score->labels != 1) {
    throw ModelError(tr("{}: config.json describes a head of {} numbers, rm_head gives one",
                        header.place.directory.string(), config.score->labels));
  }
  return arch::with_score(config, {.form = arch::ScoreForm::kTokens, .labels = 1});
}

}  // namespace

Checkpoint open_checkpoint(const std::filesystem::path& path, const OpenOptions& options) {
  Checkpoint checkpoint;
  checkpoint.header = read_header(path, options);
  Header& header = checkpoint.header;
  checkpoint.companions = find_companions(header.place, options);
  const bool has_score = header.has_score && options.scores;
  if (checkpoint.companions.empty()) {
    checkpoint.config = config_of_arguments(header);
  } else {
    checkpoint.config = arch::load_model_config(
        checkpoint.companions, has_score ? arch::Heads::kAny : arch::Heads::kVocabulary);
  }
  if (has_score) checkpoint.config = with_score(checkpoint.config, header);
  if (!checkpoint.companions.empty() && header.form.dialect != Dialect::kMindSpeedMm)
    check_arguments(header, checkpoint.config, checkpoint.companions);
  checkpoint.config.predicts_ahead =
      header.has_predictions && checkpoint.config.experts.prediction_layers > 0;
  checkpoint.parts = open_parts(header, checkpoint.config);
  const Parts& parts = *checkpoint.parts;
  refuse_unknown(header, parts, false, has_score);
  if (!header.only_adapters) checkpoint.model = open_layout(parts.model.layout, parts.files);
  if (options.with_optimizer) checkpoint.optimizer = open_optimizer(header, parts);
  if (header.has_adapters) add_adapters(options, checkpoint);
  return checkpoint;
}

Checkpoint open_adapters(const std::filesystem::path& path, const arch::ModelConfig& config,
                         const OpenOptions& options) {
  Checkpoint checkpoint;
  checkpoint.header = read_header(path, options);
  checkpoint.config = config;
  if (!checkpoint.header.has_adapters) {
    throw ModelError(tr("{}: no LoRA tensors are in it", path.string()),
                     tr("--lora-load names a checkpoint of a LoRA run"));
  }
  checkpoint.parts = open_parts(checkpoint.header, config);
  refuse_unknown(checkpoint.header, *checkpoint.parts, true);
  add_adapters(options, checkpoint);
  return checkpoint;
}

std::vector<std::string> Checkpoint::differing_copies(size_t limit, uint64_t max_bytes) const {
  std::vector<std::string> lines;
  const auto compare = [&](const Layout& layout, const TensorSource& globals) {
    const Layout copies = copies_in(layout, parts->files, globals, max_bytes, limit, lines);
    if (lines.size() >= limit) return;
    const auto found = differing_replicas(copies, parts->files, globals, limit - lines.size());
    lines.insert(lines.end(), found.begin(), found.end());
  };
  if (model) compare(parts->model.layout, *model);
  if (adapters) compare(parts->lora, *open_layout(parts->lora, parts->files));
  return lines;
}

}  // namespace danlu::weights::megatron
