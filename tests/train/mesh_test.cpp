// Promise 4: the numbers do not depend on the mesh. Ranks are threads; the oracle is one rank.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "base/file.h"
#include "base/rng.h"
#include "models/tensor_io.h"
#include "parallel/comm/local.h"
#include "support/tiny_model.h"
#include "train/step.h"
#include "train/support.h"

namespace danlu::train {
namespace mesh_test {

using parallel::Mesh;
using parallel::MeshShape;

enum class Tuning { kFull, kLora, kDora };

/// A model of one family, and how it is trained.
struct Case {
  const char* name;
  const char* family;
  Json changes;
  Tuning tuning = Tuning::kFull;
  MeshShape shape = {};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  const char* tuning = c.tuning == Tuning::kFull   ? ""
                       : c.tuning == Tuning::kLora ? "_lora"
                                                   : "_dora";
  return fmt::format("{}{}_tp{}_dp{}{}", c.name, tuning, c.shape.tensor, c.shape.data,
                     c.shape.sequence_parallel ? "_sp" : "");
}

TrainConfig config_of(const Case& c) {
  TrainConfig config;
  config.schedule.shape.kind = optim::ScheduleKind::kConstant;
  config.schedule.shape.lr = 2e-4;
  config.adamw.groups.weight_decay = 0.1;
  // At 1e-8, gradients that are rounding noise would become whole steps.
  config.adamw.eps = 1e-6;
  config.tuner = c.tuning == Tuning::kFull ? Tuner::kFull : Tuner::kLora;
  config.lora.rank = 3;
  config.lora.dropout = 0.1;
  config.lora.dora = c.tuning == Tuning::kDora;
  return config;
}

/// Every parameter is random (B too: with B = 0 the gradient of A is zero), and the same on any
/// mesh.
void randomise(models::CausalLM& model) {
  const at::NoGradGuard no_grad;
  for (const auto& list : {model.parameters(), model.adapter_parameters()}) {
    for (const parallel::Parameter& p : list) {
      at::Tensor whole = models::normal_values(p.spec.shape, 0.1, hash_bytes(p.name()));
      if (p.spec.shape.size() == 1 && !p.spec.is_bias) whole = whole.abs() + 0.7;
      at::Tensor(p.tensor).copy_(parallel::cut_out(whole, p.pieces));
    }
  }
}

TrainState state_of(const Case& c, const Mesh& mesh, at::ScalarType dtype = at::kFloat) {
  Json json = danlu::test::tiny_config(c.family);
  for (const auto& [key, value] : c.changes.items()) {
    if (value.is_null()) {
      json.erase(key);
    } else {
      json[key] = value;
    }
  }
  auto model = std::make_unique<models::CausalLM>(arch::family_of(json).parse(json), mesh, dtype,
                                                  at::Device(at::kCPU));
  const TrainConfig config = config_of(c);
  if (c.tuning != Tuning::kFull) {
    model->initialize(3);  // DoRA's magnitudes are lengths of rows
    model->add_lora(config.lora, 5);
  }
  randomise(*model);
  return test::make_state(std::move(model), config);
}

/// Samples of unequal numbers of targets, several to a pass.
data::StepBatches batches_of(const Mesh& mesh, int64_t step) {
  constexpr int64_t kGlobal = 8;
  static const auto source = std::make_shared<data::VectorSource>(test::toy_samples(64));
  data::BatchStreamOptions options;
  options.dp_size = mesh.shape().data;
  options.dp_rank = mesh.data().rank();
  options.micro_batch_size = 2;
  options.accumulation_steps = kGlobal / 2 / options.dp_size;
  options.prefetch_steps = 0;
  const data::BatchStream stream(source, [](int64_t i) { return i % 64; }, options, 0);
  return stream.step_at(step * kGlobal);
}

struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> gradients;  ///< of the first step, before clipping
  std::map<std::string, at::Tensor> weights;    ///< in the end
};

/// Puts what this rank holds into tensors of the whole shape.
void assemble(const parallel::Parameter& p, const at::Tensor& joined,
              std::map<std::string, at::Tensor>& wholes) {
  at::Tensor& whole =
      wholes.try_emplace(p.name(), at::zeros(p.spec.shape, joined.options())).first->second;
  parallel::for_each_piece(p, joined, [&](const parallel::Piece& piece, const at::Tensor& part) {
    at::Tensor place = whole.narrow(0, piece.rect.row, piece.rect.rows);
    if (whole.dim() == 2) place = place.narrow(1, piece.rect.col, piece.rect.cols);
    place.copy_(part);
  });
}

Outcome train(const Case& c, const MeshShape& shape, int64_t steps) {
  Outcome outcome;
  std::mutex mutex;
  const auto rank = [&](const Mesh& mesh) {
    TrainState state = state_of(c, mesh);
    const TrainConfig config = config_of(c);
    for (int64_t step = 0; step < steps; ++step) {
      const StepResult result =
          run_step(state, batches_of(mesh, step), config, config.schedule.shape);
      const std::lock_guard lock(mutex);
      const at::NoGradGuard no_grad;
      const auto& parameters = state.optimizer->parameters();
      for (size_t i = 0; step == 0 && i < parameters.size(); ++i)
        assemble(parameters[i], state.gradients->grad(i), outcome.gradients);
      for (size_t i = 0; step + 1 == steps && i < parameters.size(); ++i)
        assemble(parameters[i], parameters[i].tensor.detach(), outcome.weights);
      if (outcome.losses.size() == static_cast<size_t>(step)) {
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
      }
      EXPECT_EQ(outcome.losses[static_cast<size_t>(step)], result.loss) << "ranks disagree";
      EXPECT_EQ(outcome.norms[static_cast<size_t>(step)], result.grad_norm) << "ranks disagree";
    }
  };
  if (shape.size() == 1) {
    rank(Mesh::single());
  } else {
    parallel::run_local_ranks(shape.size(), [&](parallel::World& world) {
      const Mesh mesh(world, shape);
      rank(mesh);
    });
  }
  return outcome;
}

class MeshOf : public testing::TestWithParam<Case> {};

TEST_P(MeshOf, GivesTheNumbersOfOneRank) {
  constexpr int64_t kSteps = 20;
  constexpr double kTolerance = 1e-5;
  const Outcome expected = train(GetParam(), {}, kSteps);
  const Outcome got = train(GetParam(), GetParam().shape, kSteps);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    const double largest = gradient.abs().max().item<double>();
    EXPECT_GT(largest, 0) << name << ": a gradient of zero proves nothing";
    const at::Tensor difference = got.gradients.at(name) - gradient;
    EXPECT_LE(difference.abs().max().item<double>(), kTolerance * largest) << name;
  }
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(got.losses[step], expected.losses[step], kTolerance * expected.losses[step]);
    EXPECT_NEAR(got.norms[step], expected.norms[step], kTolerance * expected.norms[step]) << step;
  }
}

std::vector<Case> cases() {
  const Json none = Json::object(), bias = {{"attention_bias", true}, {"mlp_bias", true}};
  const Json tied = {{"tie_word_embeddings", true}};
  const MeshShape tp2{.tensor = 2}, tp4{.tensor = 4}, dp2{.data = 2}, dp4{.data = 4};
  const MeshShape sp2{.tensor = 2, .sequence_parallel = true},
      sp4{.tensor = 4, .sequence_parallel = true};
  const MeshShape both{.tensor = 2, .data = 2, .sequence_parallel = true};
  std::vector<Case> list;
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora, Tuning::kDora}) {
    for (const MeshShape& shape : {tp2, tp4, dp2, dp4, sp2, sp4, both})
      list.push_back({"qwen2", "qwen2", none, tuning, shape});
  }
  list.push_back({"llama_biases", "llama", bias, Tuning::kFull, sp4});
  list.push_back({"llama_tied", "llama", tied, Tuning::kFull, tp4});
  list.push_back({"qwen3", "qwen3", none, Tuning::kFull, tp4});
  list.push_back({"qwen3", "qwen3", none, Tuning::kLora, sp2});
  list.push_back({"internlm2", "internlm2", none, Tuning::kFull, tp4});
  list.push_back({"internlm2", "internlm2", none, Tuning::kDora, sp4});
  const Json z_loss = {{"z_loss_weight", 0.1}};
  list.push_back({"baichuan2", "baichuan", z_loss, Tuning::kFull, tp4});
  list.push_back({"baichuan2", "baichuan", z_loss, Tuning::kLora, sp2});
  list.push_back({"baichuan_alibi",
                  "baichuan",
                  {{"max_position_embeddings", nullptr}, {"model_max_length", 64}},
                  Tuning::kFull,
                  sp4});
  list.push_back({"mistral_window", "mistral", {{"sliding_window", 3}}, Tuning::kFull, tp2});
  return list;
}
INSTANTIATE_TEST_SUITE_P(All, MeshOf, testing::ValuesIn(cases()), name_of);

}  // namespace mesh_test
}  // namespace danlu::train
