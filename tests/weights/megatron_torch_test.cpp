// Megatron checkpoints as PyTorch sees them: every tensor of every rank, the arguments and the
// optimizer, against a formulation in torch operations (check_megatron.py).
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/tiny_model.h"
#include "weights/python_torch.h"
#include "weights/random_models.h"
#include "weights/write_megatron.h"

namespace danlu::weights::megatron {
namespace {

using test::RandomModels;

void save(const std::filesystem::path& directory, const TensorSource& source) {
  std::filesystem::create_directories(directory);
  save_safetensors(directory, source.tensors(),
                   [&](size_t i) { return source.mapped(source.tensors()[i].name); });
}

Json describe_case(const Json& config_json, const TargetOptions& options) {
  const Split& s = options.split;
  Json described = {{"config", config_json},
                    {"tp", s.tp},
                    {"pp", s.pp},
                    {"ep", s.ep},
                    {"layers_per_chunk", s.layers_per_virtual_stage},
                    {"layer_list", s.layer_list},
                    {"noop_layers", s.noop_layers},
                    {"tp_extends_ep", s.tp_extends_ep},
                    {"counts_tensor_ranks", s.counts_tensor_ranks},
                    {"vocab_divisor", s.vocab_divisor},
                    {"dialect", static_cast<int>(options.form.dialect)},
                    {"experts", static_cast<int>(options.form.experts)},
                    {"iteration", options.iteration ? Json(*options.iteration) : Json()},
                    {"optimizer", Json()}};
  if (options.optimizer) {
    described["optimizer"] = {{"distributed", options.optimizer_shape.distributed},
                              {"fp32", options.optimizer_shape.fp32},
                              {"data_parallel", options.optimizer_shape.data_parallel}};
  }
  return described;
}

/// A random model at a random split below `directory`, with Adam's state for every other one.
void write_case(const std::filesystem::path& directory, uint64_t seed) {
  RandomModels random(3000 + seed);
  // The oracle's own layout knows no latent attention (megatron_latent_test.cpp), nor the experts
  // of these three.
  Json json = random.config_json();
  while (random.parse(json).latent || json["model_type"] == "glm4_moe" ||
         json["model_type"] == "phimoe" || json["model_type"] == "llama4_text")
    json = random.config_json();
  const arch::ModelConfig config = random.parse(json);
  const auto globals = global_tensors(config, config.dtype);
  const auto model = random.source(globals);
  TargetOptions options{random.split(config), random.form(config)};
  if (seed % 5 == 0) options.iteration.reset();
  OptimizerState state;
  if (seed % 2 == 0) {
    OptimizerShape& shape = options.optimizer_shape;
    shape.distributed = random.coin();
    shape.fp32 = config.dtype == DType::kF32 && !shape.distributed;
    shape.param_dtype = config.dtype;
    shape.data_parallel = 2 * options.split.ep;
    state = random.optimizer(globals, !shape.fp32);
    options.optimizer = &state;
  }
  try {
    test::write_megatron(directory / "megatron", json, config, model, options);
  } catch (const ModelError&) {
    // A tied embedding that a distributed optimizer cannot place: without the state, then.
    ASSERT_TRUE(config.tie_embeddings && options.optimizer_shape.distributed);
    options.optimizer = nullptr;
    test::write_megatron(directory / "megatron", json, config, model, options);
  }
  save(directory / "model", *model);
  if (options.optimizer) save(directory / "state", *state.tensors);
  write_json_file(directory / "case.json", describe_case(json, options));
}

TEST(MegatronTorch, EveryRankHoldsWhatTorchOperationsMakeOfTheModel) {
  DANLU_REQUIRES_PYTHON_TORCH();
  const test::TemporaryDirectory directory;
  constexpr uint64_t kCases = 80;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    SCOPED_TRACE(seed);
    write_case(directory.path() / std::to_string(seed), seed);
  }
  ASSERT_EQ(test::run_python(python, "check_megatron.py", directory.path().string()), 0);
}

}  // namespace
}  // namespace danlu::weights::megatron
