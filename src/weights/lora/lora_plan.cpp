#include "weights/lora/lora_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "arch/learned_positions.h"
#include "arch/turned_matrices.h"
#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "weights/lora/adapter_places.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

using arch::ParamSpec;
using arch::Role;

/// The adapter's tensors for one module, by part; the names they have in the file.
using Parts = std::map<AdapterPart, std::string>;

bool is_low_rank(AdapterPart part) {
  return part != AdapterPart::kSavedModule && part != AdapterPart::kBias;
}

bool has_low_rank(const Parts& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const auto& part) { return is_low_rank(part.first); });
}

class Planner {
 public:
  Planner(const TensorSource& base, const TensorSource& adapter, const PeftConfig& peft,
          const arch::ModelConfig& config)
      : base_(base),
        adapter_(adapter),
        peft_(peft),
        config_(config),
        weights_(module_weights(config)) {
    for (ParamSpec& spec : arch::parameters_of(config)) {
      if (spec.role == Role::kHead && !spec.is_bias) head_ = spec;
      specs_.push_back(std::move(spec));
    }
  }

  MergePlan plan() {
    if (peft_.fan_in_fan_out && !arch::turns_matrices(config_)) {
      log::warning(
          "adapter_config.json: fan_in_fan_out is for Conv1D layers, which a {} model "
          "does not have; it has no effect",
          config_.family);
    }
    collect();
    for (const auto& [module, parts] : modules_) plan_module(module, parts);
    require_complete();
    untie();
    for (auto& [name, tensor] : changes_) plan_.tensors.push_back(std::move(tensor));
    return std::move(plan_);
  }

 private:
  std::string file_of(const std::string& tensor) const { return adapter_.file_of(tensor).string(); }
  [[noreturn]] void refuse(const std::string& tensor, const std::string& problem,
                           std::string hint = {}) const {
    throw ModelError(tr("{}: {} {}", file_of(tensor), tensor, problem), std::move(hint));
  }
  std::string other_model_hint() const {
    return tr("merge it into the base model it was trained on{}{}",
              peft_.base_model.empty() ? "" : ": ", peft_.base_model);
  }

  /// Sorts the adapter's tensors by module.
  void collect() {
    if (adapter_.tensors().empty()) throw ModelError(tr("[merge] the adapter holds no tensors"));
    for (const TensorInfo& info : adapter_.tensors()) {
      const auto name = parse_adapter_name(info.name);
      if (!name) {
        refuse(info.name,
               "is no name that PEFT gives: it must begin with base_model.model. and end in a "
               "part of an adapter, .weight or .bias");
      }
      if (!is_floating(info.dtype))
        refuse(info.name, tr("is {}; adapters are floating", dtype_name(info.dtype)));
      const std::string module = base_module(*name);
      const auto [at, is_new] = modules_[module].emplace(name->part, info.name);
      if (!is_new) refuse(info.name, tr("and {} are for the same weight", at->second));
      if (!weights_.count(module)) refuse_module(info.name, module);
    }
  }

  [[noreturn]] void refuse_module(const std::string& tensor, const std::string& module) const {
    std::vector<std::string> known;
    known.reserve(weights_.size());
    for (const auto& [name, spec] : weights_) known.push_back(name);
    const auto nearest = nearest_name(module, known);
    refuse(tensor,
           tr("is for {}, which this {} model of {} layers does not have{}", module, config_.family,
              config_.num_layers, nearest ? tr("; the nearest it has is {}", *nearest) : ""),
           hint_of_extra_part(module));
  }

  /// A module with one part too many is of a wrapper that nobody here knows, not of another model.
  std::string hint_of_extra_part(const std::string& module) const {
    for (size_t begin = 0; begin < module.size();) {
      const size_t end = std::min(module.find('.', begin), module.size());
      std::string without = module;
      without.erase(begin, end + 1 - begin);
      if (weights_.count(without)) {
        return tr(
            "'{}' in the name is none of this model's: save the adapter with PEFT's "
            "save_pretrained, of the model and not of what wraps it",
            module.substr(begin, end - begin));
      }
      begin = end + 1;
    }
    return other_model_hint();
  }

  /// The base model's tensor behind a parameter: a tied head's is the embedding.
  const TensorInfo& base_tensor(const ParamSpec& spec) const {
    const std::string& name =
        config_.tie_embeddings && !spec.tied_to.empty() ? spec.tied_to : spec.name;
    const TensorInfo* info = base_.find(name);
    if (!info) {
      const auto& all = base_.tensors();
      no_such_tensor(name, all.empty() ? "" : base_.file_of(all.front().name), all);
    }
    if (info->shape != spec.shape) {
      throw ModelError(tr("{}: {} is {}, config.json says {}", base_.file_of(name).string(), name,
                          shape_text(info->shape), shape_text(spec.shape)));
    }
    if (!is_floating(info->dtype)) {
      throw ModelError(tr("{}: {} is {}; adapters are merged into floating weights",
                          base_.file_of(name).string(), name, dtype_name(info->dtype)));
    }
    return *info;
  }

  void require_shape(const std::string& tensor, const std::vector<int64_t>& expected,
                     const std::string& why, const std::string& hint = {}) const {
    const TensorInfo* info = adapter_.find(tensor);
    if (info->shape == expected) return;
    refuse(tensor,
           tr("is {}, it must be {}: {}", shape_text(info->shape), shape_text(expected), why),
           hint.empty() ? other_model_hint() : hint);
  }

  void plan_module(const std::string& module, const Parts& parts) {
    const ParamSpec& spec = weights_.at(module);
    if (has_low_rank(parts)) plan_update(module, parts, spec);
    if (const auto at = parts.find(AdapterPart::kSavedModule); at != parts.end())
      plan_saved(module, at->second, spec);
    if (const auto at = parts.find(AdapterPart::kBias); at != parts.end())
      plan_bias(module, at->second);
  }

  /// LoRA's tensors of a module.
  void plan_update(const std::string& module, const Parts& parts, const ParamSpec& spec) {
    const bool embedding = arch::is_table(spec);
    const auto a_part = embedding ? AdapterPart::kEmbeddingA : AdapterPart::kLoraA;
    const auto b_part = embedding ? AdapterPart::kEmbeddingB : AdapterPart::kLoraB;
    check_place(module, parts, spec);
    for (const AdapterPart part : {a_part, b_part}) {
      if (!parts.count(part)) refuse_missing(adapter_tensor_name(module, part), parts);
    }
    LowRankParts update{.weight = base_tensor(spec).name,
                        .a = parts.at(a_part),
                        .b = parts.at(b_part),
                        .scale = peft_.scale_of(module),
                        .transposed = embedding};
    const int64_t rank = peft_.rank_of(module);
    const std::string why = tr("rank {} by adapter_config.json, and {} is {}", rank, update.weight,
                               shape_text(spec.shape));
    const auto fitting = [&](AdapterPart part) { return adapter_shape(spec, part, rank); };
    const std::vector<int64_t>& found = adapter_.find(update.a)->shape;
    const bool only_rank = !found.empty() && found == adapter_shape(spec, a_part, found.front());
    const std::string hint =
        only_rank ? tr("the file is incomplete, or adapter_config.json is not its own") : "";
    require_shape(update.a, fitting(a_part), why, hint);
    require_shape(update.b, fitting(b_part), why);
    if (peft_.dora) {
      const auto magnitude = parts.find(AdapterPart::kMagnitude);
      if (magnitude == parts.end())
        refuse_missing(adapter_tensor_name(module, AdapterPart::kMagnitude), parts);
      update.magnitude = magnitude->second;
      require_shape(update.magnitude, fitting(AdapterPart::kMagnitude), why);
    }
    changes_[spec.name] = {.name = spec.name, .base = update.weight, .update = update};
  }

  [[noreturn]] void refuse_missing(const std::string& missing, const Parts& parts) const {
    const std::string& present = parts.begin()->second;
    throw ModelError(
        tr("{}: {} is missing, though there is {}", file_of(present), missing, present),
        tr("the file is incomplete, or adapter_config.json is not its own"));
  }

  /// Errors: ModelError where a module cannot have these parts.
  void check_place(const std::string& module, const Parts& parts, const ParamSpec& spec) const {
    const bool embedding = arch::is_table(spec);
    const std::string& first = std::find_if(parts.begin(), parts.end(), [](const auto& p) {
                                 return is_low_rank(p.first);
                               })->second;
    if (spec.shape.size() != 2) refuse(first, tr("is for {}, which is no linear layer", module));
    for (const auto& [part, tensor] : parts) {
      const bool of_embedding =
          part == AdapterPart::kEmbeddingA || part == AdapterPart::kEmbeddingB;
      const bool of_linear = part == AdapterPart::kLoraA || part == AdapterPart::kLoraB;
      if (embedding ? of_linear : of_embedding) {
        refuse(tensor,
               tr("is for {}, which is {}", module, embedding ? "an embedding" : "a linear layer"));
      }
      if (part == AdapterPart::kMagnitude && !peft_.dora)
        refuse(tensor, "is DoRA's, but adapter_config.json does not say use_dora");
    }
    const AdapterLimits limits = limits_at(peft_, config_, spec);
    if (!limits.merging.empty()) refuse(first, limits.merging);
    if (!is_chosen(peft_, spec)) {
      refuse(first, tr("is for {}, which target_modules of adapter_config.json does not "
                       "choose",
                       module));
    }
  }

  bool is_saved(const std::string& module) const {
    return std::any_of(peft_.modules_to_save.begin(), peft_.modules_to_save.end(),
                       [&](const std::string& wanted) { return is_within(module, wanted); });
  }

  /// A whole weight: trained, if modules_to_save says so, else a copy of the base model's.
  void plan_saved(const std::string& module, const std::string& tensor, const ParamSpec& spec) {
    const TensorInfo& base = base_tensor(spec);
    require_shape(tensor, spec.shape, tr("the shape of the base model's {}", base.name));
    if (!is_saved(module)) return require_copy(tensor, base);
    if (changes_.count(spec.name))
      refuse(tensor, tr("is in modules_to_save, and {} has an adapter too", module));
    changes_[spec.name] = {.name = spec.name, .base = base.name, .replaced_by = tensor};
  }

  /// Errors: ModelError unless the adapter's tensor holds the base model's values, in its dtype.
  void require_copy(const std::string& tensor, const TensorInfo& base) const {
    constexpr int64_t kChunk = 1 << 20;
    const TensorInfo& copy = *adapter_.find(tensor);
    const size_t base_item = dtype_size_bytes(base.dtype), item = dtype_size_bytes(copy.dtype);
    std::vector<std::byte> ours, theirs, cast;
    for (int64_t at = 0; at < base.num_elements(); at += kChunk) {
      const int64_t end = std::min(at + kChunk, base.num_elements());
      const auto count = static_cast<size_t>(end - at);
      ours.resize(count * base_item);
      theirs.resize(count * item);
      cast.resize(count * base_item);
      base_.read_range(base.name, at, end, ours);
      adapter_.read_range(tensor, at, end, theirs);
      cast_elements(theirs.data(), copy.dtype, cast.data(), base.dtype, count);
      if (ours == cast) continue;
      refuse(tensor,
             tr("differs from the base model's {}, and adapter_config.json does not list "
                "it in modules_to_save",
                base.name),
             other_model_hint());
    }
  }

  void plan_bias(const std::string& module, const std::string& tensor) {
    const auto at = std::find_if(specs_.begin(), specs_.end(), [&](const ParamSpec& spec) {
      return spec.is_bias && spec.name == module + ".bias";
    });
    if (at == specs_.end())
      refuse(tensor, tr("is for {}, which has no bias", module), other_model_hint());
    const TensorInfo& base = base_tensor(*at);
    require_shape(tensor, at->shape, tr("the shape of the base model's {}", base.name));
    const bool of_adapted = peft_.bias == "lora_only" && has_low_rank(modules_.at(module));
    if (!is_saved(module) && peft_.bias != "all" && !of_adapted) return require_copy(tensor, base);
    changes_[at->name] = {.name = at->name, .base = base.name, .replaced_by = tensor};
  }

  /// Errors: ModelError for what adapter_config.json asks for and the adapter does not have.
  void require_complete() const {
    const std::string& any = adapter_.tensors().front().name;
    const std::string file = file_of(any);
    const std::string hint = tr("the file is incomplete, or adapter_config.json is not its own");
    bool chooses = false;
    for (const auto& [module, spec] : weights_) {
      if (is_saved(module) || !must_be_adapted(peft_, spec)) continue;
      chooses = true;
      const auto at = modules_.find(module);
      if (at == modules_.end() || !has_low_rank(at->second)) {
        throw ModelError(tr("{}: no adapter for {}, which target_modules of "
                            "adapter_config.json chooses",
                            file, module),
                         hint);
      }
    }
    if (!chooses && !peft_.target_modules.empty() && peft_.modules_to_save.empty()) {
      throw ModelError(tr("{}: target_modules of adapter_config.json ({}) names no layer "
                          "of this {} model",
                          file, peft_.target_modules.front(), config_.family),
                       other_model_hint());
    }
    for (const std::string& wanted : peft_.modules_to_save) require_saved(wanted, file, hint);
  }

  void require_saved(const std::string& wanted, const std::string& file,
                     const std::string& hint) const {
    bool found = false;
    for (const ParamSpec& spec : specs_) {
      if (!is_within(arch::module_of(spec.name), wanted)) continue;
      found = true;
      if (changes_.count(spec.name)) continue;
      throw ModelError(tr("{}: {} is missing, which modules_to_save ({}) asks for", file,
                          "base_model.model." + spec.name, wanted),
                       hint);
    }
    if (found) return;
    throw ModelError(tr("{}: modules_to_save of adapter_config.json names {}, which this "
                        "{} model does not have",
                        file, wanted, config_.family),
                     other_model_hint());
  }

  /// A tied pair of which an end changes becomes two tensors; an end that does not keeps its
  /// values.
  void untie() {
    if (!config_.tie_embeddings || head_.tied_to.empty()) return;
    if (!changes_.count(head_.name) && !changes_.count(head_.tied_to)) return;
    plan_.unties_head = true;
    changes_.try_emplace(head_.name, MergedTensor{.name = head_.name, .base = head_.tied_to});
  }

  const TensorSource& base_;
  const TensorSource& adapter_;
  const PeftConfig& peft_;
  const arch::ModelConfig& config_;
  std::map<std::string, ParamSpec> weights_;  ///< by module
  std::vector<ParamSpec> specs_;
  ParamSpec head_{};
  std::map<std::string, Parts> modules_;
  std::map<std::string, MergedTensor> changes_;
  MergePlan plan_;
};

}  // namespace

MergePlan plan_merge(const TensorSource& base, const TensorSource& adapter, const PeftConfig& peft,
                     const arch::ModelConfig& config) {
  return Planner(base, adapter, peft, config).plan();
}

}  // namespace danlu::weights
