// A model cut into stages, each with its schedule and a thread, against the whole.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "models/tensor_io.h"
#include "train/passes.h"
#include "train/support.h"

namespace danlu::train {
namespace stages_test {

/// What one stage gives its neighbour, by micro-batch.
class Channel {
 public:
  void send(int64_t micro_batch, const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    sent_[micro_batch] = tensor.clone();
    changed_.notify_all();
  }
  at::Tensor receive(int64_t micro_batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return sent_.count(micro_batch) > 0; });
    return sent_.extract(micro_batch).mapped();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, at::Tensor> sent_;
};

struct Case {
  bool lora = false;
  models::Recompute recompute = models::Recompute::kNone;
  bool weights_later = false;
};

/// A stage of the test's model with everything that trains it.
struct StageState {
  std::unique_ptr<models::CausalLM> model;
  std::unique_ptr<optim::GradBuffer> gradients;

  StageState(const arch::ModelConfig& config, const arch::Stage& stage, const Case& how)
      : model(std::make_unique<models::CausalLM>(config, stage, parallel::Mesh::single(),
                                                 at::kFloat, at::Device(at::kCPU))) {
    model->initialize(7);
    model->set_recompute(how.recompute);
    if (how.lora) add_lora();
    gradients = std::make_unique<optim::GradBuffer>(model->keep({}));
    gradients->zero();
  }
  void add_lora() {
    weights::PeftConfig lora = settings::new_adapters();
    lora.dropout = 0.1;
    model->add_lora(lora, 5);
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

std::vector<arch::Stage> cut(int64_t layers, int64_t stages) {
  std::vector<arch::Stage> result;
  for (int64_t s = 0; s < stages; ++s) {
    result.push_back({.first_layer = s * layers / stages,
                      .end_layer = (s + 1) * layers / stages,
                      .has_embedding = s == 0,
                      .has_head = s + 1 == stages});
  }
  return result;
}

struct Outcome {
  double loss = 0;
  std::map<std::string, at::Tensor> grads;
};

Outcome outcome_of(const arch::ModelConfig& config, int64_t num_stages, const Case& how,
                   const std::vector<const data::Batch*>& batches) {
  const std::vector<arch::Stage> stages = cut(config.num_layers, num_stages);
  std::vector<Channel> forwards(stages.size()), backwards(stages.size());
  const auto schedule = how.weights_later ? arch::zero_bubble : arch::one_forward_one_backward;
  std::mutex mutex;
  Outcome outcome;
  std::vector<std::thread> threads;
  for (size_t s = 0; s < stages.size(); ++s) {
    threads.emplace_back([&, s] {
      StageState state(config, stages[s], how);
      StageLinks links;
      if (s > 0) {
        links.receive_hidden = [&, s](int64_t i) { return forwards[s - 1].receive(i); };
        links.send_grad = [&, s](int64_t i, const at::Tensor& t) { backwards[s - 1].send(i, t); };
      }
      if (s + 1 < stages.size()) {
        links.send_hidden = [&, s](int64_t i, const at::Tensor& t) { forwards[s].send(i, t); };
        links.receive_grad = [&, s](int64_t i) { return backwards[s].receive(i); };
      }
      Passes passes(*state.model, language_modelling(), *state.gradients, links);
      const PassSums sums = passes.run(
          schedule(static_cast<int64_t>(s), num_stages, static_cast<int64_t>(batches.size())),
          batches, /*dropout_seed=*/11, 0.01);
      const std::lock_guard lock(mutex);
      outcome.loss += sums.loss;
      outcome.grads.merge(state.grads());
    });
  }
  for (std::thread& thread : threads) thread.join();
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

}  // namespace stages_test
}  // namespace danlu::train
