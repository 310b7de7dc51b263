// Adapters of a CausalLM from and into PEFT directories.
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>

#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "device/dtype.h"
#include "models/add_adapters.h"
#include "models/tensor_io.h"
#include "models/value_head.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/hf/stored_form.h"
#include "weights/lora/adapter_places.h"
#include "weights/lora/head_modules.h"

namespace danlu::models {
namespace {

using weights::AdapterPart;
using weights::PeftConfig;

/// What an adapter on this model must have in place of `found`, whatever its rank; empty where
/// such a part has no place.
std::vector<int64_t> fitting_shape(const arch::ParamSpec& weight, AdapterPart part,
                                   const std::vector<int64_t>& found) {
  const bool is_b = part == AdapterPart::kLoraB || part == AdapterPart::kEmbeddingB;
  const size_t at = is_b ? 1 : 0;
  return weights::adapter_shape(weight, part, found.size() > at ? found[at] : 0);
}

/// Errors: ModelError naming the model the adapter was made for and the first tensor that has no
/// place in this one, with both shapes. Ranks are not looked at: they are adapter_config.json's.
void require_same_model(const PeftConfig& peft, const weights::TensorSource& source,
                        const arch::ModelConfig& config) {
  const std::map<std::string, arch::ParamSpec> modules = weights::module_weights(config);
  const auto refuse = [&](const std::string& tensor, const std::string& difference) {
    throw ModelError(tr("{}: this adapter was trained on {}, which is not this model: {}",
                        source.file_of(tensor).string(),
                        (peft.base_model.empty() ? "another model" : peft.base_model), difference),
                     tr("give the base model the adapter was trained on with --model"));
  };
  for (const weights::TensorInfo& info : source.tensors()) {
    const auto name = weights::parse_adapter_name(info.name);
    if (!name) continue;
    const std::string module = weights::base_module(*name);
    const auto known = modules.find(module);
    if (known == modules.end() && module == arch::ScoreHead().module()) {
      throw ModelError(tr("{}: adapters of a reward model, which gives numbers and no text",
                          source.file_of(info.name).string()),
                       tr("--reward_model of danlu rlhf --rlhf_type grpo and of danlu rollout has "
                          "it judge answers"));
    }
    if (known == modules.end())
      refuse(info.name, tr("{} is for '{}', which this model does not have", info.name, module));
    const std::vector<int64_t> fitting = fitting_shape(known->second, name->part, info.shape);
    if (!fitting.empty() && info.shape != fitting) {
      refuse(info.name, tr("{} is {}, this model needs {}", info.name, shape_text(info.shape),
                           shape_text(fitting)));
    }
  }
}

/// PEFT stores head and embedding beside adapters on the head. They add nothing unless they differ
/// from the base model's. Returns the names that are only copies.
std::set<std::string> copies_of_base(
    const weights::TensorSource& source, const arch::ModelConfig& config,
    const std::vector<Parameter*>& base,
    const std::map<std::string, std::vector<int64_t>>& expected,
    const std::function<bool(const Parameter&, const at::Tensor&)>& equals) {
  std::set<std::string> copies;
  for (const weights::TensorInfo& info : source.tensors()) {
    const auto name = weights::parse_adapter_name(info.name);
    if (!name || name->part != AdapterPart::kSavedModule || expected.count(info.name)) continue;
    const std::string weight = weights::base_module(*name) + ".weight";
    for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
      if (spec.name == weight) copies.insert(info.name);
    }
    for (const Parameter* parameter : base) {
      if (parameter->spec.name != weight) continue;
      if (!equals(*parameter, read_as(source, info.name, *parameter))) {
        throw ModelError(tr("{}: {} differs from the base model's {}, and adapter_config.json does "
                            "not list it in modules_to_save",
                            source.file_of(info.name).string(), info.name, weight),
                         tr("give the base model the adapter was trained on with --model"));
      }
    }
  }
  return copies;
}

/// Last names of the modules that adapters sit on, on any stage.
std::vector<std::string> adapted_last_names(const PeftConfig& peft,
                                            const arch::ModelConfig& config) {
  std::set<std::string> names;
  for (const std::string& module : weights::chosen_modules(peft, config)) {
    // An encoder's head has a layer of that name, too.
    const bool says_little = config.encoder && arch::last_name(module) == "dense";
    names.insert(says_little ? arch::last_name(arch::module_of(module)) + ".dense"
                             : arch::last_name(module));
  }
  return {names.begin(), names.end()};
}

/// Errors: ModelError where neither the adapter nor the model's files have the head that is to
/// judge: it would stay as it was drawn.
void require_score(const PeftConfig& peft, const arch::ModelConfig& config,
                   const std::string& where) {
  if (!config.score || !config.score->seed) return;
  for (const std::string& entry : peft.modules_to_save)
    if (weights::is_named(config.score->module(), entry)) return;
  throw ModelError(tr("{}: an adapter without a reward head, on a model without one", where),
                   tr("danlu merge joins it with its base; train a reward model on the result"));
}

/// Names and shapes of everything that `peft` puts on the model, on any stage.
std::map<std::string, std::vector<int64_t>> adapter_tensors(const PeftConfig& peft,
                                                            const arch::ModelConfig& config) {
  std::map<std::string, std::vector<int64_t>> expected;
  const std::map<std::string, arch::ParamSpec> modules = weights::module_weights(config);
  for (const std::string& module : weights::chosen_modules(peft, config)) {
    for (const AdapterPart part :
         {AdapterPart::kLoraA, AdapterPart::kLoraB, AdapterPart::kMagnitude}) {
      if (part == AdapterPart::kMagnitude && !peft.dora) continue;
      expected[weights::adapter_tensor_name(module, part)] =
          weights::adapter_shape(modules.at(module), part, peft.rank_of(module));
    }
  }
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    for (const std::string& entry : peft.modules_to_save) {
      if (weights::is_named(arch::module_of(spec.name), entry))
        expected["base_model.model." + spec.name] = spec.shape;
    }
  }
  return expected;
}

/// What was nobody's flag is the adapter's fault.
template <typename Make>
auto as_its_fault(const std::string& where, const Make& make) {
  try {
    return make();
  } catch (const UsageError& error) {
    throw ModelError(tr("{}: {}", where, error.what()), error.hint());
  }
}

/// A pass says which of its rows have which adapter, so all ranks must have all of them. Errors:
/// UsageError.
void require_rows_stay(const parallel::MeshShape& shape, const arch::ModelConfig& config,
                       const std::string& where) {
  const bool sends_rows =
      config.experts.count > 0 && shape.several_of(shape.expert_axes()) != arch::Axes();
  if (!sends_rows && !shape.sequence_parallel) return;
  throw UsageError(
      sends_rows
          ? tr("{}: an adapter beside a model does not go with experts that processes share", where)
          : tr("{}: an adapter beside a model does not go with --sequence_parallel", where),
      tr("make it a part of the model: --adapters DIR, or danlu merge"));
}

/// Errors: ModelError naming tensors that are missing, unknown or of another shape.
void require_all_tensors(CausalLM::Impl& impl, const PeftConfig& config,
                         const weights::TensorSource& source, const std::string& where) {
  std::vector<std::string> missing, unknown, reshaped;
  const std::map<std::string, std::vector<int64_t>> expected = adapter_tensors(config, impl.config);
  for (const auto& [name, shape] : expected) {
    const weights::TensorInfo* info = source.find(name);
    if (!info) {
      missing.push_back(name);
    } else if (info->shape != shape) {
      reshaped.push_back(tr("{} is {} in {}, model and adapter_config.json ask for {}", name,
                            shape_text(info->shape), source.file_of(name).string(),
                            shape_text(shape)));
    }
  }
  const auto equals = [&](const Parameter& parameter, const at::Tensor& read) {
    if (parameter.quantized) {
      const auto* const blocks = dynamic_cast<const ops::BlockWeight*>(parameter.quantized.get());
      if (!blocks) return false;
      const bool is_made = blocks->type() == BlockType::kQ8_0 || blocks->type() == BlockType::kQ4_0;
      return is_made && at::equal(ops::quantized(blocks->type(), read, parameter.name())->dense(),
                                  blocks->dense());
    }
    bool same = false;
    impl.memory.with_place(parameter.place, [&] { same = at::equal(read, parameter.tensor); });
    return same;
  };
  const std::set<std::string> copies =
      copies_of_base(source, impl.config, impl.base(), expected, equals);
  for (const weights::TensorInfo& info : source.tensors()) {
    if (!expected.count(info.name) && !copies.count(info.name)) unknown.push_back(info.name);
  }
  refuse_tensor_lists(tr("adapter {}", where), missing, unknown, reshaped,
                      tr("check that adapter_config.json, the adapter's weights and the base model "
                         "{}belong together",
                         (config.base_model.empty() ? "" : config.base_model + " ")));
}

}  // namespace

void load_adapter(CausalLM& model, const std::filesystem::path& path,
                  std::optional<double> lora_alpha) {
  const weights::AdapterSource opened =
      weights::open_adapter_source(path, model.config(), {.lora_alpha = lora_alpha});
  load_adapter(model, opened.peft, *opened.tensors, path.string());
}

layers::AdapterSetPtr load_beside(const CausalLM& model, const std::filesystem::path& path,
                                  std::optional<double> lora_alpha) {
  CausalLM::Impl& impl = model.impl();
  require_rows_stay(impl.mesh.shape(), impl.config, path.string());
  const weights::AdapterSource opened =
      weights::open_adapter_source(path, impl.config, {.lora_alpha = lora_alpha});
  const weights::TensorSource& source = *opened.tensors;
  require_same_model(opened.peft, source, impl.config);
  if (impl.lora) throw UsageError(tr("[lora] the model has adapters already; merge them first"));
  auto set = std::make_shared<layers::AdapterSet>(
      as_its_fault(path.string(), [&] { return make_beside(impl, opened.peft); }));
  require_all_tensors(impl, opened.peft, source, path.string());
  // In the model's order: ranks exchange the lengths of DoRA's rows.
  for (const layers::Linear* linear : impl.network.adaptable()) {
    const auto found = set->of.find(linear);
    if (found == set->of.end()) continue;
    layers::LoraAdapter& adapter = found->second;
    for (Parameter* parameter : {&adapter.a_RI, &adapter.b_OR, &adapter.magnitude_O}) {
      if (parameter->defined()) read_into(source, parameter->name(), *parameter);
    }
    if (adapter.magnitude_O.defined())
      layers::fix_row_lengths(linear->weight.tensor, adapter, linear->weight.quantized);
  }
  return set;
}

void load_adapter(CausalLM& model, const weights::PeftConfig& config,
                  const weights::TensorSource& source, const std::string& where) {
  CausalLM::Impl& impl = model.impl();
  require_same_model(config, source, impl.config);
  require_score(config, impl.config, where);
  as_its_fault(where, [&] { add_adapters(impl, config, 0, /*from_file=*/true); });
  require_all_tensors(impl, config, source, where);
  for (const Parameter& adapter : model.adapter_parameters())
    read_into(source, adapter.name(), adapter);
}

void save_adapter(const CausalLM& model, const std::filesystem::path& directory,
                  const std::string& base_model_path) {
  const CausalLM::Impl& impl = model.impl();
  if (!impl.lora) throw InternalError("[lora] the model has no adapters to save");
  if (!impl.takes_part_in_saving()) return;
  const bool writes = impl.mesh.rank() == 0;
  std::vector<Parameter> parameters = model.adapter_parameters();
  write_beside(impl, directory, parameters);
  write_tensors(directory, parameters, device::dtype_of(impl.dtype), "adapter_model", impl.mesh,
                impl.memory.sharing_store(), {}, [&](const std::vector<weights::TensorInfo>& all) {
                  return weights::stored_in_adapter(impl.config, all);
                });
  if (!writes) return;
  weights::PeftConfig config = *impl.lora;
  config.base_model = base_model_path;
  // What lies beside is no module of PEFT's.
  if (impl.config.score && impl.config.score->form == arch::ScoreForm::kBeside)
    std::erase(config.modules_to_save, impl.config.score->module());
  if (config.target_modules == std::vector<std::string>{"all-linear"}) {
    // PEFT spells it out too: the file then means the same on any version.
    config.target_modules = adapted_last_names(config, impl.config);
    config.targets_are_pattern = false;
  }
  weights::join_head_modules(config, impl.config);
  write_json_file(directory / "adapter_config.json", weights::peft_config_json(config));
}

}  // namespace danlu::models
