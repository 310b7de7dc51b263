#include "train/evaluate.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "data/batch_stream.h"
#include "train/step.h"

namespace danlu::train {
double loss_of(models::CausalLM& model, const data::Batch& batch) {
  const at::NoGradGuard no_grad;
  const models::LossSum loss =
      model.loss(forward_input(batch, model.device()), target_tensor(batch, model.device()));
  return loss.sum.item<double>() / static_cast<double>(batch.num_targets);
}

Evaluation evaluate(models::CausalLM& model, std::shared_ptr<const data::SampleSource> samples,
                    const EvaluationSettings& settings) {
  const auto begin = std::chrono::steady_clock::now();
  at::NoGradGuard no_grad;
  data::BatchStreamOptions options;
  options.micro_batch_size = settings.batch_size;
  options.max_tokens_per_micro_batch = settings.max_tokens;
  options.vocab_size = model.config().vocab_size;
  const parallel::Group& data = model.mesh().data();
  options.dp_rank = data.rank();
  options.dp_size = data.size();
  const int64_t size = samples->size();
  // Reading ahead goes round the end.
  data::BatchStream stream(
      std::move(samples), [size](int64_t index) { return index % size; }, options);
  int64_t batches = stream.steps_per_epoch();
  const int64_t wanted = settings.max_batches > 0 ? settings.max_batches : batches * data.size();
  batches = std::min(batches, (wanted + data.size() - 1) / data.size());
  if (settings.on_start) settings.on_start(batches);

  Evaluation result;
  double sum = 0, correct = 0, targets = 0, num_samples = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const data::StepBatches step = stream.next();
    if (i * data.size() + data.rank() >= wanted) continue;  // the last round may be for some only
    for (const data::Batch& batch : step.micro_batches) {
      num_samples += static_cast<double>(batch.num_samples);
      if (batch.num_targets == 0) continue;
      const models::LossSum loss =
          model.loss(forward_input(batch, model.device()), target_tensor(batch, model.device()));
      sum += loss.sum.item<double>();
      correct += static_cast<double>(loss.num_correct);
      targets += static_cast<double>(batch.num_targets);
    }
  }
  sum_over(data, {&sum, &correct, &targets, &num_samples});
  result.num_samples = static_cast<int64_t>(num_samples);
  result.num_targets = static_cast<int64_t>(targets);
  if (result.num_targets == 0)
    throw DataError(tr("[evaluate] no token of the held-out data is a target"));
  result.loss = sum / targets;
  result.token_accuracy = correct / targets;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace danlu::train
