#include "weights/megatron/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/log.h"
#include "weights/convert/layout_writer.h"
#include "weights/megatron/arguments.h"
#include "weights/megatron/group_check.h"
#include "weights/megatron/place.h"
#include "weights/torch/torch_writer.h"

namespace danlu::weights::megatron {
namespace {

using torch_file::PyKind;

/// What JSON can say, as Megatron's optimizers keep it: betas are a tuple.
PyValue from_json(const Json& json) {
  if (json.is_boolean()) return PyValue::boolean(json.get<bool>());
  if (json.is_number_integer()) return PyValue::integer(json.get<int64_t>());
  if (json.is_number()) return PyValue::real(json.get<double>());
  if (json.is_string()) return PyValue::string(json.get<std::string>());
  if (json.is_array()) {
    PyValue tuple = PyValue::tuple();
    for (const Json& item : json) tuple.append(from_json(item));
    return tuple;
  }
  if (json.is_object()) {
    PyValue dict = PyValue::dict();
    for (const auto& [key, value] : json.items()) dict.put(key, from_json(value));
    return dict;
  }
  return PyValue::none();
}

/// The settings of the group most like this one.
Json settings_of(const OptimizerSettings& settings, const ParameterGroup& group) {
  const double wd_mult = group.no_weight_decay ? 0.0 : 1.0;
  const Json* best = nullptr;
  for (const Json& known : settings.groups) {
    const bool same_decay = known.value("wd_mult", 1.0) == wd_mult;
    const bool same_kind = known.value("is_expert_parallel", false) == group.is_expert;
    if (same_decay && (same_kind || !best)) best = &known;
  }
  if (!best && !settings.groups.empty()) best = &settings.groups.front();
  Json chosen = best ? *best : Json::object();
  chosen["wd_mult"] = wd_mult;
  chosen["lr_mult"] = chosen.value("lr_mult", 1.0);
  chosen["is_expert_parallel"] = group.is_expert;
  chosen["is_decoupled_lr"] = chosen.value("is_decoupled_lr", false);
  return chosen;
}

/// A dynamic loss scale is a tensor, which settings do not hold; Megatron then begins a new one.
bool has_plain_scaler(const OptimizerSettings& settings) {
  const Json& scaler = settings.grad_scaler;
  return scaler.is_object() && std::none_of(scaler.begin(), scaler.end(),
                                            [](const Json& value) { return value.is_string(); });
}

/// Old Megatron's state dict: parts in dicts of their own, the encoder's parameters in one.
PyValue nested(const std::vector<std::pair<std::string, size_t>>& tensors) {
  PyValue root = PyValue::dict();
  for (const auto& [key, index] : tensors) {
    const std::string_view parts[] = {"language_model.embedding.word_embeddings.",
                                      "language_model.embedding.position_embeddings.",
                                      "language_model.encoder.", "language_model.output_layer.",
                                      "word_embeddings_for_head."};
    for (const std::string_view part : parts) {
      if (!key.starts_with(part)) continue;
      PyValue* place = &root;
      for (size_t begin = 0; begin < part.size();) {
        const size_t end = part.find('.', begin);
        const std::string_view word = part.substr(begin, end - begin);
        begin = end + 1;
        if (!place->find(word)) {
          place->put(word, begin == part.size() ? PyValue::ordered_dict() : PyValue::dict());
        }
        place = const_cast<PyValue*>(place->find(word));
      }
      place->put(key.substr(part.size()), PyValue::tensor(index));
    }
  }
  return root;
}

/// Puts them as MindSpeed-LLM's own command line has them.
void put_adapters(const FusedAdapters& adapters, bool alone, PyValue& args) {
  PyValue modules = PyValue::list();
  for (const std::string& module : adapters.modules) modules.append(PyValue::string(module));
  args.put("lora_r", PyValue::integer(adapters.rank))
      .put("lora_alpha", adapters.alpha == std::floor(adapters.alpha)
                             ? PyValue::integer(static_cast<int64_t>(adapters.alpha))
                             : PyValue::real(adapters.alpha))
      .put("lora_target_modules", std::move(modules))
      .put("lora_ckpt_filter", PyValue::boolean(alone))
      .put(kFusedFrom, adapters.record);
}

class Planner {
 public:
  Planner(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
          const TargetOptions& options)
      : options_(options),
        has_optimizer_(options.optimizer && options.optimizer->tensors),
        model_(model_layout(config, options.split, options.form, std::move(globals))) {
    const DType dtype = model_.layout.globals.front().dtype;
    if (options.form.dialect == Dialect::kMindSpeedMm) {
      if (has_optimizer_ || options.adapters) {
        throw UsageError(
            tr("[MindSpeed-MM] of this format the model's weights are written, nothing "
               "beside them"));
      }
      return;
    }
    args_ = options.args.is_none()
                ? make_arguments(config, options.split, options.form, dtype)
                : update_arguments(options.args, config, options.split, options.form, dtype);
    args_.put("use_distributed_optimizer",
              PyValue::boolean(has_optimizer_ && options.optimizer_shape.distributed));
    if (options.adapters) {
      put_adapters(*options.adapters, options.adapters_alone, args_);
      add_adapters(*options.adapters, options.adapters_alone, model_);
    }
    if (has_optimizer_) {
      check_settings(options.optimizer->settings, "optimizer settings");
      put_job(args_, options.split, options.optimizer_shape.data_parallel,
              options.optimizer_shape.context_parallel);
      args_
          .put("consumed_train_samples",
               PyValue::integer(options.optimizer->settings.consumed_train_samples))
          .put("overlap_grad_reduce", PyValue::boolean(options.optimizer_shape.overlap_grad_reduce))
          .put("accumulate_allreduce_grads_in_fp32",
               PyValue::boolean(options.optimizer_shape.grad_dtype == DType::kF32));
      state_ = optimizer_layout(model_, options.optimizer_shape);
      const OptimizerSettings& settings = options.optimizer->settings;
      if (!settings.grad_scaler.is_null() && !has_plain_scaler(settings))
        log::warning("the dynamic loss scale is not carried over: training begins with a new one");
    }
  }

  Target plan() {
    Target target;
    target.layout = model_.layout;
    if (has_optimizer_) append_layout(target.layout, state_.layout);
    first_state_ = model_.layout.tensors.size();
    by_file_ = tensors_by_file(target.layout);
    for (size_t file = 0; file < target.layout.files.size(); ++file) {
      index_.clear();
      std::vector<TensorInfo> infos;
      for (const size_t tensor : by_file_[file]) {
        index_.emplace(tensor, infos.size());
        infos.push_back(target.layout.tensors[tensor].info);
      }
      const bool is_model = file < model_.ranks.size();
      const PyValue root = is_model ? model_root(file)
                                    : buffers_root(state_.rank_of_file[file - model_.ranks.size()]);
      target.plans.push_back(
          torch_file::plan_torch_file(root, infos, is_model ? "model_optim_rng" : "distrib_optim"));
    }
    const std::string folder = iteration_directory(options_.iteration);
    for (std::string& file : target.layout.files) file = folder + "/" + file;
    target.texts.emplace_back(kTrackerFile, options_.iteration ? std::to_string(*options_.iteration)
                                                               : std::string("release"));
    target.description =
        fmt::format("{}, {}", describe(options_.form.dialect), describe(options_.split));
    if (options_.adapters) target.description += ", LoRA";
    return target;
  }

 private:
  PyValue tensor(size_t in_target) const { return PyValue::tensor(index_.at(in_target)); }
  PyValue state_tensor(size_t in_state) const { return tensor(first_state_ + in_state); }

  PyValue model_root(size_t rank) const {
    PyValue root = PyValue::dict();
    // MindSpeed-MM's own converter writes the state dicts alone.
    if (options_.form.dialect != Dialect::kMindSpeedMm) {
      root.put("args", args_)
          .put("checkpoint_version", PyValue::real(3.0))
          .put("iteration", PyValue::integer(options_.iteration.value_or(0)));
    }
    for (const Chunk& chunk : model_.ranks[rank].chunks) {
      std::vector<std::pair<std::string, size_t>> tensors;
      for (const size_t i : chunk.tensors) tensors.emplace_back(model_.traits[i].key, index_.at(i));
      if (options_.form.dialect == Dialect::kLegacy) {
        root.put(chunk.key, nested(tensors));
        continue;
      }
      PyValue& state = root.add(PyValue::string(chunk.key), PyValue::ordered_dict());
      for (const auto& [key, index] : tensors)
        state.add(PyValue::string(key), PyValue::tensor(index));
    }
    if (!has_optimizer_) return root;
    const auto& members = state_.ranks[rank];
    PyValue chain = PyValue::list();
    for (const RankOptimizer& member : members) chain.append(optimizer_root(member));
    root.put("optimizer", members.size() == 1 ? chain.items().front() : chain)
        .put("opt_param_scheduler", from_json(options_.optimizer->settings.scheduler))
        .put("num_floating_point_operations_so_far", PyValue::integer(0));
    return root;
  }

  PyValue optimizer_root(const RankOptimizer& member) const {
    const bool distributed = options_.optimizer_shape.distributed;
    PyValue groups = PyValue::list(), states = PyValue::dict(), masters = PyValue::list();
    size_t next = 0;
    for (const ParameterGroup& group : member.groups) {
      PyValue entry = from_json(settings_of(options_.optimizer->settings, group));
      PyValue ids = PyValue::list(), weights = PyValue::list();
      for (size_t i = 0; i < group.ids.size() && !distributed; ++i, ++next) {
        const RankOptimizer::State& place = member.states[next];
        ids.append(PyValue::integer(group.ids[i]));
        PyValue moments = PyValue::dict();
        moments.put("exp_avg", state_tensor(place.exp_avg))
            .put("exp_avg_sq", state_tensor(place.exp_avg_sq));
        states.add(PyValue::integer(group.ids[i]), std::move(moments));
        if (place.master != SIZE_MAX) weights.append(state_tensor(place.master));
      }
      if (!distributed) entry.put("params", std::move(ids));
      groups.append(std::move(entry));
      masters.append(std::move(weights));
    }
    PyValue inner = PyValue::dict();
    if (!distributed) inner.put("state", std::move(states));
    inner.put("param_groups", std::move(groups));
    if (options_.optimizer_shape.fp32 && !distributed) return inner;
    PyValue root = PyValue::dict();
    root.put("optimizer", std::move(inner));
    if (has_plain_scaler(options_.optimizer->settings))
      root.put("grad_scaler", from_json(options_.optimizer->settings.grad_scaler));
    if (!distributed) root.put("fp32_from_fp16_params", std::move(masters));
    return root;
  }

  /// distrib_optim.pt of one rank.
  PyValue buffers_root(size_t rank) const {
    const auto& members = state_.ranks[rank];
    const auto& shape = options_.optimizer_shape;
    PyValue chain = PyValue::list();
    for (const RankOptimizer& member : members) {
      if (member.buffers.empty() && members.size() > 1) {
        chain.append(PyValue::none());
        continue;
      }
      PyValue root = PyValue::dict();
      root.put("buckets_coalesced", PyValue::boolean(true));
      for (size_t i = 0; i < member.buffers.size(); ++i) {
        const RankOptimizer::Buffer& buffer = member.buffers[i];
        PyValue tensors = PyValue::dict();
        tensors.put("param", state_tensor(buffer.param))
            .put("exp_avg", state_tensor(buffer.exp_avg))
            .put("exp_avg_sq", state_tensor(buffer.exp_avg_sq))
            .put("numel_unpadded", PyValue::integer(buffer.numel_unpadded));
        PyValue by_dtype = PyValue::dict();
        by_dtype.put(
            PyValue::tuple({PyValue::dtype(shape.param_dtype), PyValue::dtype(shape.grad_dtype)}),
            std::move(tensors));
        root.add(PyValue::integer(static_cast<int64_t>(i)), std::move(by_dtype));
      }
      chain.append(std::move(root));
    }
    return members.size() == 1 ? chain.items().front() : chain;
  }

  const TargetOptions& options_;
  bool has_optimizer_;
  ModelLayout model_;
  OptimizerLayout state_;
  PyValue args_;
  size_t first_state_ = 0;
  std::vector<std::vector<size_t>> by_file_;
  std::unordered_map<size_t, size_t> index_;  ///< target tensor -> index in the file at hand
};

}  // namespace

Target plan_checkpoint(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
                       const TargetOptions& options) {
  return Planner(config, std::move(globals), options).plan();
}

}  // namespace danlu::weights::megatron
