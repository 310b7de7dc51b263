// tests/train/support.h: small models and samples for training tests.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/json.h"
#include "data/batch_stream.h"
#include "data/sample_source.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "train/step.h"
#include "weights/tensor_source.h"

namespace danlu::train::test {

/// A Llama of 2 layers, width 32, vocabulary 96, as config.json.
inline Json tiny_config_json() {
  return Json{{"architectures", {"LlamaForCausalLM"}},
              {"model_type", "llama"},
              {"vocab_size", 96},
              {"hidden_size", 32},
              {"intermediate_size", 48},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"max_position_embeddings", 128},
              {"rms_norm_eps", 1e-5},
              {"rope_theta", 10000.0},
              {"hidden_act", "silu"},
              {"tie_word_embeddings", false},
              {"bos_token_id", 1},
              {"eos_token_id", 2},
              {"torch_dtype", "float32"},
              {"initializer_range", 0.08}};
}

inline arch::ModelConfig tiny_config() {
  const danlu::test::TemporaryDirectory directory;
  write_json_file(directory / "config.json", tiny_config_json());
  return arch::load_model_config(directory);
}

/// Sentences of a toy language: token t is followed by (3 t + 1) mod 90 + 3; lengths 4 to 30.
inline std::vector<data::Sample> toy_samples(int64_t count) {
  std::vector<data::Sample> samples;
  for (int64_t i = 0; i < count; ++i) {
    data::Sample sample;
    int32_t token = static_cast<int32_t>(3 + (i * 7) % 90);
    const int64_t length = 4 + (i * 11) % 27;
    for (int64_t t = 0; t < length; ++t) {
      sample.ids.push_back(token);
      sample.labels.push_back(t < 2 ? -100 : token);
      token = (3 * token + 1) % 90 + 3;
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

/// folder/model: a tiny random model; folder/data.jsonl: `rows` toy samples.
inline void write_run_inputs(const std::filesystem::path& folder, DType dtype, int64_t rows) {
  std::filesystem::create_directories(folder / "model");
  models::CausalLM model(tiny_config(), parallel::Mesh::single(),
                         dtype == DType::kBF16 ? at::kBFloat16 : at::kFloat, at::Device(at::kCPU));
  models::initialize(model, 3);
  models::save(model, folder / "model", dtype, {});
  std::ofstream file(folder / "data.jsonl");
  for (const data::Sample& sample : toy_samples(rows))
    file << Json{{"input_ids", sample.ids}, {"labels", sample.labels}}.dump() << '\n';
}

/// The goldens' recipe: AdamW with decay of all parameters, clipping at 1, a constant rate.
inline TrainConfig golden_recipe(double lr) {
  TrainConfig config;
  config.adamw = {0.9, 0.95, 1e-8, {0.1, optim::DecayRule::kAll, {}}};
  config.max_grad_norm = 1.0;
  config.schedule.shape.kind = settings::ScheduleKind::kConstant;
  config.schedule.shape.lr = lr;
  return config;
}

inline TrainState make_state(std::unique_ptr<models::CausalLM> model, const TrainConfig& config) {
  TrainState state;
  state.model = std::move(model);
  parallel::ParameterStore& store = models::keep(*state.model, config.keeping);
  state.gradients = std::make_unique<optim::GradBuffer>(store);
  state.optimizer = std::make_unique<optim::AdamW>(store, config.adamw);
  state.links = std::make_unique<StageLinks>(*state.model);
  return state;
}

inline TrainState tiny_state(const TrainConfig& config, at::ScalarType dtype = at::kFloat) {
  auto model = std::make_unique<models::CausalLM>(tiny_config(), parallel::Mesh::single(), dtype,
                                                  at::Device(at::kCPU));
  models::initialize(*model, 7);
  return make_state(std::move(model), config);
}

/// One tensor of a safetensors file.
inline at::Tensor read_tensor(const weights::TensorSource& source, const std::string& name) {
  const weights::TensorInfo* info = source.find(name);
  if (!info) throw std::runtime_error("no tensor " + name);
  at::Tensor tensor = at::empty(info->shape, info->dtype == DType::kI64 ? at::kLong : at::kFloat);
  source.read(name, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  return tensor;
}

/// Steps over `source` in file order.
inline data::StepBatches step_of(std::shared_ptr<const data::SampleSource> source, int64_t micro,
                                 int64_t accumulation, int64_t max_tokens, int64_t consumed = 0) {
  data::BatchStreamOptions options;
  options.micro_batch_size = micro;
  options.accumulation_steps = accumulation;
  options.max_tokens_per_micro_batch = max_tokens;
  options.prefetch_steps = 0;
  return data::BatchStream(
             source, [n = source->size()](int64_t i) { return i % n; }, options)
      .step_at(consumed);
}

}  // namespace danlu::train::test
