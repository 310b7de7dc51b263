#include "train/evaluate.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "data/batch_stream.h"
#include "parallel/agree.h"
#include "train/objective.h"
#include "train/step.h"

namespace danlu::train {
namespace evaluate_detail {

Loss pass(const models::CausalLM& model, const Objective& objective, const data::Batch& batch) {
  const models::ForwardInput input = evaluation_input(model, batch);
  return objective.evaluate(model, model.forward(input), input, batch, 1.0);
}

}  // namespace evaluate_detail

double loss_of(const models::CausalLM& model, const data::Batch& batch) {
  const at::NoGradGuard no_grad;
  const Objective& objective = language_modelling();
  return evaluate_detail::pass(model, objective, batch).sum.item<double>() /
         objective.weight(batch);
}

Evaluation evaluate(const models::CausalLM& model,
                    std::shared_ptr<const data::SampleSource> samples,
                    const EvaluationSettings& settings) {
  const auto begin = std::chrono::steady_clock::now();
  const at::NoGradGuard no_grad;
  const Objective& objective = language_modelling();
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
  double sum = 0, correct = 0, weight = 0, num_samples = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const data::StepBatches step = stream.next();
    // The last round may be for some only.
    const bool takes_part = i * data.size() + data.rank() < wanted;
    const int64_t passes = std::count_if(
        step.micro_batches.begin(), step.micro_batches.end(),
        [&](const data::Batch& batch) { return takes_part && objective.weight(batch) > 0; });
    for (int64_t idle = parallel::largest_of(data, passes) - passes; idle > 0; --idle)
      model.pass_idly(/*with_backward=*/false);
    for (const data::Batch& batch : step.micro_batches) {
      if (!takes_part) break;
      num_samples += static_cast<double>(batch.num_samples);
      if (!(objective.weight(batch) > 0)) continue;
      const Loss loss = evaluate_detail::pass(model, objective, batch);
      sum += loss.sum.item<double>();
      correct += loss.correct.item<double>();
      weight += objective.weight(batch);
    }
  }
  sum_over(data, {&sum, &correct, &weight, &num_samples});
  take_first(model.mesh().tensor(), {&sum, &correct});
  result.num_samples = static_cast<int64_t>(num_samples);
  result.num_targets = static_cast<int64_t>(weight);
  if (result.num_targets == 0)
    throw DataError(tr("[evaluate] no token of the held-out data is a target"));
  result.loss = sum / weight;
  result.token_accuracy = correct / weight;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace danlu::train
