// Which rank keeps which part of which tensor, and the index that says so.
#include <fmt/format.h>

#include <map>
#include <unordered_map>

#include "weights/convert/layout_writer.h"
#include "weights/hf/safetensors_target.h"
#include "weights/native/native.h"

namespace danlu::weights::native {
namespace {

using arch::ParamSpec;

/// No gradient moves what chooses among experts.
bool has_state(const ParamSpec& spec) { return spec.role != arch::Role::kRouterBias; }

/// A rank's tensor: the rectangles, one below the other.
Section stacked(size_t global, const std::vector<Rect>& rects) {
  Section section{.rows = 0, .cols = rects.front().cols};
  for (const Rect& rect : rects) {
    section.pieces.push_back({.global = global, .of = rect, .row = section.rows});
    section.rows += rect.rows;
  }
  return section;
}

class Planner {
 public:
  Planner(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
          const megatron::Split& split)
      : config_(config), split_(split) {
    megatron::check_split(config, split);
    target_.layout.globals = std::move(globals);
    const arch::Placement placement = arch::place_layers(split.pipeline(), config.num_layers);
    for (size_t stage = 0; stage < placement.size(); ++stage) {
      for (const auto& chunk : placement[stage]) {
        for (const int64_t layer : chunk) stage_of_[layer] = static_cast<int64_t>(stage);
      }
    }
  }

  Target plan(int64_t iteration, const OptimizerState* optimizer) {
    add_parameters("weights/", "", target_.layout.globals);
    if (optimizer && optimizer->tensors) add_states(*optimizer);
    const auto by_file = tensors_by_file(target_.layout);
    for (const auto& tensors : by_file) {
      std::vector<TensorInfo> infos;
      for (const size_t tensor : tensors) infos.push_back(target_.layout.tensors[tensor].info);
      target_.plans.push_back(plan_safetensors_file(infos, {{"format", "pt"}}));
    }
    target_.texts.emplace_back(kIndexFile, index(iteration, optimizer).dump(1) + "\n");
    target_.description = "native, " + megatron::describe(split_);
    return std::move(target_);
  }

 private:
  /// Parameters `prefix` + name, whose globals begin at `begin_`, cut and put into `folder`.
  void add_parameters(const std::string& folder, const std::string& prefix,
                      const std::vector<TensorInfo>& globals) {
    std::unordered_map<std::string, size_t> by_name;
    for (size_t i = 0; i < globals.size(); ++i) by_name.emplace(globals[i].name, i);
    for (const ParamSpec& spec : arch::parameters_of(config_)) {
      if (!spec.tied_to.empty() || (!has_state(spec) && !by_name.count(prefix + spec.name)))
        continue;
      const size_t global = begin_ + by_name.at(prefix + spec.name);
      const TensorInfo& info = target_.layout.globals[global];
      for (const auto& [coord, rects] : holders(spec)) {
        StoredTensor stored;
        stored.file = file_for(folder, spec, coord);
        stored.info = info;
        Section section = stacked(global, rects);
        if (!stored.info.shape.empty()) stored.info.shape.front() = section.rows;
        if (stored.info.shape.size() == 2) stored.info.shape.back() = section.cols;
        stored.sections.push_back(std::move(section));
        target_.layout.tensors.push_back(std::move(stored));
      }
    }
  }

  /// The ranks that write a part of the parameter: of those that hold the same, the first.
  std::vector<std::pair<arch::Coord, std::vector<Rect>>> holders(const ParamSpec& spec) const {
    std::vector<std::pair<arch::Coord, std::vector<Rect>>> found;
    for (int64_t ep = 0; ep < (spec.expert >= 0 ? split_.ep : 1); ++ep) {
      for (int64_t tp = 0; tp < split_.tp; ++tp) {
        const arch::Coord coord{split_.tp, tp, split_.ep, ep, split_.expert_dealers()};
        std::vector<Rect> rects = arch::shard(config_, spec, coord);
        if (rects.empty() || (!found.empty() && found.back().second == rects)) continue;
        found.emplace_back(coord, std::move(rects));
      }
    }
    return found;
  }

  void add_states(const OptimizerState& optimizer) {
    for (const char* prefix : kStatePrefixes) {
      if (!optimizer.has_master && std::string_view(prefix) == "master.") continue;
      std::vector<TensorInfo> states;
      for (const ParamSpec& spec : arch::parameters_of(config_)) {
        const bool is_kept =
            has_state(spec) || optimizer.tensors->find(prefix + spec.name) != nullptr;
        if (spec.tied_to.empty() && is_kept)
          states.push_back({prefix + spec.name, DType::kF32, spec.shape});
      }
      begin_ = target_.layout.globals.size();
      target_.layout.globals.insert(target_.layout.globals.end(), states.begin(), states.end());
      add_parameters("optim/", prefix, states);
    }
  }

  size_t file_for(const std::string& folder, const ParamSpec& spec, const arch::Coord& coord) {
    int64_t stage = 0;
    const bool is_ahead = spec.layer >= config_.num_layers;
    if (spec.layer >= 0 && !is_ahead) stage = stage_of_.at(spec.layer);
    if (is_ahead || spec.role == arch::Role::kFinalNorm || spec.role == arch::Role::kHead)
      stage = split_.pp - 1;
    const std::string name = folder +
                             megatron::rank_directory(split_, coord.tp_rank, stage, coord.ep_rank) +
                             ".safetensors";
    const auto [at, is_new] = files_.emplace(name, target_.layout.files.size());
    if (is_new) target_.layout.files.push_back(name);
    return at->second;
  }

  Json index(int64_t iteration, const OptimizerState* optimizer) const {
    Json index = {{"format", "danlu-native"},
                  {"version", kVersion},
                  {"split", megatron::describe(split_)},
                  {"iteration", iteration},
                  {"files", target_.layout.files}};
    if (optimizer && optimizer->tensors) {
      const OptimizerSettings& settings = optimizer->settings;
      index["optimizer"] = {{"groups", settings.groups},
                            {"scheduler", settings.scheduler},
                            {"grad_scaler", settings.grad_scaler},
                            {"iteration", settings.iteration},
                            {"consumed_train_samples", settings.consumed_train_samples}};
    }
    // In files a part has its tensor's name, so each stands once in a file.
    Json tensors = Json::object();
    for (const TensorInfo& info : target_.layout.globals)
      tensors[info.name] = {{"shape", info.shape}, {"pieces", Json::array()}};
    for (const StoredTensor& stored : target_.layout.tensors) {
      for (const Piece& piece : stored.sections.front().pieces) {
        const Rect& of = piece.of;
        tensors[target_.layout.globals[piece.global].name]["pieces"].push_back(
            {stored.file, of.row, of.rows, of.col, of.cols, piece.row});
      }
    }
    index["tensors"] = std::move(tensors);
    return index;
  }

  const arch::ModelConfig& config_;
  const megatron::Split& split_;
  std::unordered_map<int64_t, int64_t> stage_of_;
  std::map<std::string, size_t> files_;
  size_t begin_ = 0;
  Target target_;
};

}  // namespace

Target plan_checkpoint(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
                       const megatron::Split& split, int64_t iteration,
                       const OptimizerState* optimizer) {
  return Planner(config, std::move(globals), split).plan(iteration, optimizer);
}

}  // namespace danlu::weights::native
