// Weights from files, from a seed, and into files.
#include <ATen/ATen.h>

#include <cmath>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "device/dtype.h"
#include "models/causal_lm_impl.h"
#include "models/tensor_io.h"

namespace danlu::models {
namespace load_detail {

bool is_ignored(const std::string& name, const std::vector<std::regex>& ignored) {
  for (const std::regex& expression : ignored) {
    if (std::regex_match(name, expression)) return true;
  }
  return false;
}

/// Errors: ModelError if `source` lacks, adds or reshapes a tensor.
void check_names(const weights::TensorSource& source, const std::vector<BaseParameter>& base,
                 const std::string& family) {
  std::vector<std::regex> ignored;
  for (const std::string& pattern : arch::family_named(family).ignored_names)
    ignored.emplace_back(pattern);
  std::set<std::string> expected;
  std::vector<std::string> missing, unknown, reshaped;
  for (const BaseParameter& parameter : base) {
    expected.insert(parameter.spec.name);
    const weights::TensorInfo* info = source.find(parameter.spec.name);
    if (!info) {
      if (parameter.spec.tied_to.empty()) missing.push_back(parameter.spec.name);
      continue;
    }
    if (info->shape != parameter.spec.shape) {
      reshaped.push_back(info->name + " is " + shape_text(info->shape) + " in " +
                         source.file_of(info->name).string() + ", the config asks for " +
                         shape_text(parameter.spec.shape));
    }
    if (!is_floating(info->dtype)) {
      reshaped.push_back(info->name + " has the dtype " + std::string(dtype_name(info->dtype)) +
                         ", which is no floating one");
    }
  }
  for (const weights::TensorInfo& info : source.tensors()) {
    if (!expected.count(info.name) && !is_ignored(info.name, ignored)) unknown.push_back(info.name);
  }
  refuse_tensor_lists("weights", missing, unknown, reshaped);
}

}  // namespace load_detail

void CausalLM::load(const weights::TensorSource& source) {
  load_detail::check_names(source, impl_->base, impl_->config.family);
  for (BaseParameter& parameter : impl_->base) {
    if (!parameter.spec.tied_to.empty()) {
      if (source.find(parameter.spec.name) &&
          !at::equal(read_tensor(source, parameter.spec.name).to(dtype()),
                     parameter.tensor.detach().cpu())) {
        log::warning(
            "[weights] {} in the file differs from {}, but the config ties them: the latter is "
            "used",
            parameter.spec.name, parameter.spec.tied_to);
      }
      continue;
    }
    read_into(source, parameter.spec.name, parameter.tensor);
  }
}

void CausalLM::initialize(uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (BaseParameter& parameter : impl_->base) {
    if (!parameter.spec.tied_to.empty()) continue;
    if (parameter.spec.is_bias) {
      parameter.tensor.zero_();
    } else if (parameter.spec.shape.size() == 1) {
      parameter.tensor.fill_(1.0);
    } else {
      // Drawn in f32 on the CPU, so that device and dtype do not change the model a seed means.
      parameter.tensor.copy_(normal_values(parameter.spec.shape, impl_->config.initializer_range,
                                           mix64(seed, hash_bytes(parameter.spec.name))));
    }
  }
}

void CausalLM::save(const std::filesystem::path& directory, DType dtype,
                    const std::filesystem::path& carry_from) const {
  std::filesystem::create_directories(directory);
  write_tensors(directory, parameters(), dtype, "model");
  Json config = impl_->config.raw;
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = torch_dtype_name(dtype);
  // A head with weights of its own (after a merge that untied it) must say so.
  if (config.contains("tie_word_embeddings") || impl_->config.tie_embeddings) {
    config["tie_word_embeddings"] = impl_->config.tie_embeddings;
  }
  write_json_file(directory / "config.json", config);
  if (!carry_from.empty()) weights::carry_over_files(carry_from, directory);
}

std::unique_ptr<CausalLM> load_model(const std::filesystem::path& directory,
                                     std::optional<at::ScalarType> dtype, const at::Device& device,
                                     const std::filesystem::path& adapter) {
  const arch::ModelConfig config = arch::load_model_config(directory);
  const auto source = weights::open_weights(directory);
  if (!dtype) {
    const weights::TensorInfo* first =
        source->tensors().empty() ? nullptr : &source->tensors().front();
    dtype =
        device::scalar_type_of(first && is_floating(first->dtype) ? first->dtype : config.dtype);
  }
  auto model = std::make_unique<CausalLM>(config, *dtype, device);
  model->load(*source);
  if (!adapter.empty()) model->load_adapter(adapter);
  return model;
}

}  // namespace danlu::models
