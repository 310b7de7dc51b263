// Adapters on a CausalLM: making, naming, loading, saving, merging.
#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "device/dtype.h"
#include "models/adapter_config.h"
#include "models/causal_lm_impl.h"
#include "models/lora_targets.h"
#include "models/tensor_io.h"

namespace danlu::models {
namespace lora_detail {

const std::string kPrefix = "base_model.model.";

void check(const LoraConfig& lora) {
  if (lora.rank <= 0) throw UsageError("[lora] rank must be positive, got " + std::to_string(lora.rank));
  if (lora.dropout < 0 || lora.dropout >= 1) {
    throw UsageError("[lora] dropout must be in [0, 1), got " + std::to_string(lora.dropout));
  }
  for (const auto& [pattern, rank] : lora.rank_pattern) {
    if (rank <= 0) throw UsageError("[lora] rank_pattern '" + pattern + "' must be positive, got " + std::to_string(rank));
  }
}

/// A uniform in +-1/sqrt(in): kaiming_uniform with a = sqrt(5), as torch's Linear and PEFT start.
at::Tensor uniform_a(int64_t rank, int64_t in, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(seed);
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  return at::empty({rank, in}, at::TensorOptions(at::kFloat)).uniform_(-bound, bound, generator);
}

layers::LoraAdapter make_adapter(const layers::Linear& linear, const LoraConfig& lora, uint64_t seed) {
  const at::Tensor& weight = linear.weight.tensor;
  const at::TensorOptions options = weight.options().requires_grad(false);
  const int64_t rank = rank_of(lora, linear.path);
  layers::LoraAdapter adapter;
  adapter.a_RI = uniform_a(rank, weight.size(1), mix64(seed, hash_bytes(linear.path))).to(options).requires_grad_(true);
  adapter.b_OR = at::zeros({weight.size(0), rank}, options).requires_grad_(true);
  adapter.scale = scale_of(lora, linear.path);
  adapter.dropout = lora.dropout;
  if (lora.dora) {
    const at::NoGradGuard no_grad;
    adapter.magnitude_O = layers::row_lengths(weight, adapter).to(options);
    adapter.magnitude_O.requires_grad_(true);
  }
  return adapter;
}

std::vector<std::string> paths_of(const std::vector<layers::Linear*>& linears, bool adapted_only) {
  std::vector<std::string> paths;
  for (const layers::Linear* linear : linears) {
    if (!adapted_only || linear->adapter) paths.push_back(linear->path);
  }
  return paths;
}

/// LoRA on these would need another fused head; saying so beats "matches nothing".
void refuse_head_targets(const LoraConfig& lora, const std::vector<BaseParameter>& base) {
  for (const BaseParameter& parameter : base) {
    if (parameter.spec.role != arch::Role::kHead && parameter.spec.role != arch::Role::kEmbedding) continue;
    const std::string path = parameter.spec.name.substr(0, parameter.spec.name.rfind('.'));
    for (const std::string& target : lora.targets) {
      if (target == path || target == path.substr(path.rfind('.') + 1)) {
        throw UsageError("[lora] adapters on '" + path + "' are not supported; it can be trained whole",
                         {"list it in --modules_to_save", "请将其写入 --modules_to_save"});
      }
    }
  }
}

}  // namespace lora_detail

void CausalLM::add_lora(const LoraConfig& lora, uint64_t seed) {
  if (impl_->lora) throw UsageError("[lora] the model has adapters already; merge or save them first");
  lora_detail::check(lora);
  lora_detail::refuse_head_targets(lora, impl_->base);
  const std::vector<layers::Linear*> linears = impl_->network.linears();
  const std::vector<size_t> chosen = match_targets(lora, lora_detail::paths_of(linears, false));
  // Whole modules first: a name that matches nothing must leave the model as it was.
  std::vector<SavedModule> saved;
  for (const std::string& module : lora.modules_to_save) {
    bool matched = false;
    for (const BaseParameter& parameter : impl_->base) {
      const std::string path = parameter.spec.name.substr(0, parameter.spec.name.rfind('.'));
      if (!matches_end(module, path)) continue;
      matched = true;
      saved.push_back({parameter.spec.name, parameter.tensor.detach().clone().requires_grad_(true)});
    }
    if (!matched) throw UsageError("[lora] modules_to_save '" + module + "' matches no module of the model");
  }
  for (const SavedModule& module : saved) {
    for (layers::Parameter* slot : impl_->network.slots()) {
      if (slot->name == module.name) slot->tensor = module.trained;
    }
  }
  for (const size_t index : chosen) linears[index]->adapter = lora_detail::make_adapter(*linears[index], lora, seed);
  for (BaseParameter& parameter : impl_->base) parameter.trainable = false;
  impl_->apply_trainable();
  impl_->saved_modules = std::move(saved);
  impl_->lora = lora;
}

std::vector<NamedTensor> CausalLM::adapter_parameters() const {
  std::vector<NamedTensor> result;
  for (const layers::Linear* linear : impl_->network.linears()) {
    if (!linear->adapter) continue;
    const std::string module = lora_detail::kPrefix + linear->path;
    result.push_back({module + ".lora_A.weight", linear->adapter->a_RI, true});
    result.push_back({module + ".lora_B.weight", linear->adapter->b_OR, true});
    if (linear->adapter->magnitude_O.defined()) {
      result.push_back({module + ".lora_magnitude_vector", linear->adapter->magnitude_O, true});
    }
  }
  for (const SavedModule& module : impl_->saved_modules) {
    result.push_back({lora_detail::kPrefix + module.name, module.trained, true});
  }
  return result;
}

void CausalLM::load_adapter(const std::filesystem::path& directory) {
  const LoraConfig lora = read_adapter_config(directory / "adapter_config.json");
  const auto source = weights::open_weights(directory);
  add_lora(lora, 0);
  std::set<std::string> expected;
  std::vector<std::string> missing, unknown, reshaped;
  const std::vector<NamedTensor> adapters = adapter_parameters();
  for (const NamedTensor& adapter : adapters) {
    expected.insert(adapter.name);
    const weights::TensorInfo* info = source->find(adapter.name);
    if (!info) {
      missing.push_back(adapter.name);
    } else if (at::IntArrayRef(info->shape) != adapter.tensor.sizes()) {
      reshaped.push_back(adapter.name + " is " + shape_text(info->shape) + " in " + source->file_of(adapter.name).string() +
                         ", model and adapter_config.json ask for " + shape_text(adapter.tensor.sizes().vec()));
    }
  }
  for (const weights::TensorInfo& info : source->tensors()) {
    if (!expected.count(info.name)) unknown.push_back(info.name);
  }
  refuse_tensor_lists("adapter", missing, unknown, reshaped);
  for (const NamedTensor& adapter : adapters) read_into(*source, adapter.name, adapter.tensor);
}

void CausalLM::save_adapter(const std::filesystem::path& directory, const std::string& base_model_path) const {
  if (!impl_->lora) throw InternalError("[lora] the model has no adapters to save");
  std::filesystem::create_directories(directory);
  write_tensors(directory, adapter_parameters(), device::dtype_of(impl_->dtype), "adapter_model");
  const std::vector<std::string> modules = lora_detail::paths_of(impl_->network.linears(), true);
  write_json_file(directory / "adapter_config.json", adapter_config_json(*impl_->lora, modules, base_model_path));
}

void CausalLM::merge_adapter() {
  if (!impl_->lora) throw InternalError("[lora] the model has no adapters to merge");
  const at::NoGradGuard no_grad;
  for (layers::Linear* linear : impl_->network.linears()) {
    if (!linear->adapter) continue;
    linear->weight.tensor.copy_(layers::merged_weight(linear->weight.tensor, *linear->adapter));
    linear->adapter.reset();
  }
  for (const SavedModule& module : impl_->saved_modules) {
    for (BaseParameter& parameter : impl_->base) {
      if (parameter.spec.name != module.name) continue;
      // A trained end of a tied pair becomes a weight of its own: the other end keeps the old values.
      const bool was_tied = impl_->config.tie_embeddings &&
                            (parameter.spec.role == arch::Role::kHead || parameter.spec.role == arch::Role::kEmbedding);
      if (was_tied) {
        impl_->base.back().spec.tied_to.clear();
        impl_->config.tie_embeddings = false;
        impl_->base.back().tensor = impl_->base.back().tensor.detach().clone();
        impl_->network.head.weight.tensor = impl_->base.back().tensor;
      }
      parameter.tensor.copy_(module.trained);
      for (layers::Parameter* slot : impl_->network.slots()) {
        if (slot->name == module.name) slot->tensor = parameter.tensor;
      }
    }
  }
  impl_->saved_modules.clear();
  impl_->lora.reset();
}

}  // namespace danlu::models
