// measure/training_step.h: the step of a training whose model and tokens are made up: forward,
// backward, AdamW, as train/step.cpp does it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "arch/model_config.h"
#include "bench/work.h"

namespace danlu::measure {

/// A Llama-like decoder with biases on q, k and v and tied embeddings; by default 100.1 M
/// parameters.
struct StepShape {
  int64_t vocab = 32000, hidden = 768, layers = 12, heads = 12, kv_heads = 4, ffn = 2048;
  int64_t batch = 4, sequence = 256;  ///< samples of a step, and tokens of each
  int64_t lora_rank = 0;              ///< above 0: adapters on every linear layer of the blocks
};

arch::ModelConfig config_of(const StepShape& shape);

class TrainingStep {
 public:
  /// Random weights of a fixed seed; state of the optimizer in f32.
  TrainingStep(const StepShape& shape, at::ScalarType type,
               const at::Device& device = at::Device(at::kCPU));
  ~TrainingStep();

  /// One step; the mean loss of its tokens, which it has before the update.
  double run();
  /// A part of it: the update from what the last passes left, which are made if there were none.
  void update();
  /// The norm of those gradients.
  double gradient_norm();

  double tokens() const;  ///< of a step
  double parameters() const;
  double trained_parameters() const;
  /// 6 multiplications and additions a parameter and token, as is usual (arXiv:2001.08361 §2.1);
  /// of frozen weights 4, since they have no gradient.
  bench::Work work() const;
  /// The work of the update: gradients, moments and masters are read (of bf16 the weight is half of
  /// one), the latter two and the weights written.
  bench::Work update_work() const;
  bench::Work norm_work() const;

 private:
  double forward_and_backward();
  void require_gradients();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace danlu::measure
