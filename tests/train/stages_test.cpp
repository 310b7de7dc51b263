// A model cut into stages, each with its schedule and a rank of its own, against the whole.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "models/adapters.h"
#include "models/tensor_io.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "parallel/comm/local.h"
#include "train/passes.h"
#include "train/support.h"

namespace danlu::train {
namespace stages_test {

struct Case {
  bool lora = false;
  models::Recompute recompute = models::Recompute::kNone;
  bool weights_later = false;
  int64_t chunks = 1;
  std::vector<int64_t> noops = {};
};

/// A stage of the test's model with everything that trains it.
struct StageState {
  std::unique_ptr<models::CausalLM> model;
  std::unique_ptr<optim::GradBuffer> gradients;

  StageState(const arch::ModelConfig& config, const arch::Stage& stage, const parallel::Mesh& mesh,
             const Case& how)
      : model(std::make_unique<models::CausalLM>(config, stage, mesh, at::kFloat,
                                                 at::Device(at::kCPU))) {
    models::initialize(*model, 7);
    model->memory().set_recompute(how.recompute);
    if (how.lora) add_lora();
    gradients = std::make_unique<optim::GradBuffer>(models::keep(*model, {}));
    gradients->zero();
  }
  void add_lora() {
    weights::PeftConfig lora = settings::new_adapters();
    lora.dropout = 0.1;
    models::add_lora(*model, lora, 5);
    const at::NoGradGuard no_grad;
    for (const parallel::Parameter& p : model->adapter_parameters())
      at::Tensor(p.tensor).add_(models::normal_values(p.tensor.sizes().vec(), 0.1, 3));
  }
  std::map<std::string, at::Tensor> grads() const {
    gradients->finish();
    std::map<std::string, at::Tensor> found;
    const auto& units = gradients->store().units();
    for (size_t u = 0; u < units.size(); ++u) {
      for (size_t i = 0; units[u].trainable && i < units[u].parameters.size(); ++i)
        found[units[u].parameters[i]->name()] = gradients->grad(u, i).clone();
    }
    return found;
  }
};

struct Outcome {
  double loss = 0;
  std::map<std::string, at::Tensor> grads;
};

Outcome outcome_of(const arch::ModelConfig& config, int64_t num_stages, const Case& how,
                   const std::vector<const data::Batch*>& batches) {
  const auto order = how.weights_later ? arch::PipelineOrder::kZeroBubble
                     : how.chunks > 1  ? arch::PipelineOrder::kInterleaved
                                       : arch::PipelineOrder::kOneForwardOneBackward;
  // Stages of unlike lengths where they do not divide the layers.
  arch::PipelineLayers split{.stages = num_stages};
  if (how.chunks > 1) split.virtual_stages = how.chunks;
  split.noop_layers = how.noops;
  for (int64_t stage = 0; how.chunks == 1 && stage < num_stages; ++stage) {
    split.layer_list.push_back((stage + 1) * config.num_layers / num_stages -
                               stage * config.num_layers / num_stages);
  }
  const std::vector<arch::Stage> stages = arch::stages_of(config, split);
  std::mutex mutex;
  Outcome outcome;
  parallel::run_local_ranks(num_stages, [&](parallel::World& world) {
    const parallel::Mesh mesh(world, {.pipeline = num_stages, .ring = how.chunks > 1});
    StageState state(config, stages[static_cast<size_t>(mesh.stage())], mesh, how);
    StageLinks links(*state.model);
    const auto objective = language_modelling();
    Passes passes(*state.model, *objective, *state.gradients, links);
    const PassSums sums = passes.run(schedule_of(order, mesh.stage(), num_stages, how.chunks,
                                                 static_cast<int64_t>(batches.size())),
                                     batches, std::vector<Columns>(batches.size()),
                                     {.dropout_seed = 11, .scale = 0.01});
    auto grads = state.grads();
    const std::lock_guard lock(mutex);
    outcome.loss += sums.loss;
    outcome.grads.merge(grads);
  });
  return outcome;
}

TEST(Stages, GiveTheLossAndEveryGradientOfTheWhole) {
  Json json = test::tiny_config_json();
  json["num_hidden_layers"] = 5;
  const arch::ModelConfig config = arch::family_of(json).parse(json);
  const data::StepBatches step =
      test::step_of(std::make_shared<data::VectorSource>(test::toy_samples(40)), 4, 5, 0);
  std::vector<const data::Batch*> batches;
  for (const data::Batch& batch : step.micro_batches) batches.push_back(&batch);
  for (const Case& how : {Case{}, Case{.lora = true}, Case{.recompute = models::Recompute::kFull},
                          Case{.weights_later = true}, Case{.lora = true, .weights_later = true},
                          Case{.recompute = models::Recompute::kFull, .weights_later = true}}) {
    Case at_once = how;
    at_once.weights_later = false;
    const Outcome whole = outcome_of(config, 1, at_once, batches);
    for (int64_t stages = how.weights_later ? 1 : 2; stages <= 4; ++stages) {
      SCOPED_TRACE(stages);
      const Outcome cut = outcome_of(config, stages, how, batches);
      EXPECT_NEAR(cut.loss, whole.loss, 1e-6 * whole.loss);
      ASSERT_EQ(cut.grads.size(), whole.grads.size());
      for (const auto& [name, grad] : whole.grads) {
        const double largest = grad.abs().max().item<double>();
        EXPECT_GT(largest, 0) << name;
        EXPECT_LE((cut.grads.at(name) - grad).abs().max().item<double>(), 1e-6 * largest) << name;
      }
    }
  }
}

// Five micro-batches do not divide by 2, 3 or 4 stages.
TEST(Stages, OfSeveralChunksGiveTheSame) {
  Json json = test::tiny_config_json();
  json["num_hidden_layers"] = 12;
  const arch::ModelConfig config = arch::family_of(json).parse(json);
  const data::StepBatches step =
      test::step_of(std::make_shared<data::VectorSource>(test::toy_samples(40)), 4, 5, 0);
  std::vector<const data::Batch*> batches;
  for (const data::Batch& batch : step.micro_batches) batches.push_back(&batch);
  for (const bool lora : {false, true}) {
    const Outcome whole = outcome_of(config, 1, {.lora = lora}, batches);
    struct Cut {
      int64_t stages, chunks;
      std::vector<int64_t> noops = {};
    };
    // With no-op slots some chunks are without layers: at both ends, and amid the others.
    for (const Cut& how :
         {Cut{2, 2}, Cut{2, 3}, Cut{3, 2}, Cut{4, 3}, Cut{2, 7, {0, 13}}, Cut{2, 7, {4, 7}}}) {
      SCOPED_TRACE(testing::Message() << how.stages << " stages of " << how.chunks << " chunks");
      const Outcome cut = outcome_of(
          config, how.stages, {.lora = lora, .chunks = how.chunks, .noops = how.noops}, batches);
      EXPECT_NEAR(cut.loss, whole.loss, 1e-6 * whole.loss);
      ASSERT_EQ(cut.grads.size(), whole.grads.size());
      for (const auto& [name, grad] : whole.grads) {
        const double largest = grad.abs().max().item<double>();
        EXPECT_GT(largest, 0) << name;
        EXPECT_LE((cut.grads.at(name) - grad).abs().max().item<double>(), 1e-6 * largest) << name;
      }
    }
  }
}

}  // namespace stages_test
}  // namespace danlu::train
