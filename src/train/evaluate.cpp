#include "train/evaluate.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "data/batch_stream.h"
#include "parallel/agree.h"
#include "train/objective.h"
#include "train/passes.h"
#include "train/step.h"

namespace danlu::train {
namespace evaluate_detail {

/// The stage's part of a pass; the last one's has sums.
PassSums pass(const models::CausalLM& stage, const Objective& objective, const data::Batch& batch,
              StageLinks& links) {
  const models::ForwardInput input = evaluation_input(stage, batch);
  const auto tokens = static_cast<int64_t>(batch.ids.size());
  const at::Tensor hidden_nH =
      stage.forward(input, links.is_first() ? at::Tensor() : links.receive_hidden(tokens));
  if (!links.is_last()) {
    links.send_hidden(hidden_nH);
    return {};
  }
  const Loss loss = objective.evaluate(stage, hidden_nH, input, batch, 1.0);
  return {loss.sum.item<double>(), loss.correct.item<double>()};
}

}  // namespace evaluate_detail

double loss_of(const models::CausalLM& model, const data::Batch& batch) {
  const at::NoGradGuard no_grad;
  const Objective& objective = language_modelling();
  StageLinks links(model);
  double sum = evaluate_detail::pass(model, objective, batch, links).loss;
  links.finish();
  sum_over(model.mesh().pipeline(), {&sum});
  return sum / objective.weight(batch);
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
  StageLinks links(model);
  double sum = 0, correct = 0, weight = 0, num_samples = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const data::StepBatches step = stream.next();
    // The last round may be for some only.
    const bool takes_part = i * data.size() + data.rank() < wanted;
    const int64_t passes = std::count_if(
        step.micro_batches.begin(), step.micro_batches.end(),
        [&](const data::Batch& batch) { return takes_part && objective.weight(batch) > 0; });
    for (int64_t idle = parallel::largest_of(data, passes) - passes; idle > 0; --idle)
      model.forward_idly(/*keeps=*/false);
    for (const data::Batch& batch : step.micro_batches) {
      if (!takes_part) break;
      num_samples += static_cast<double>(batch.num_samples);
      if (!(objective.weight(batch) > 0)) continue;
      const PassSums sums = evaluate_detail::pass(model, objective, batch, links);
      sum += sums.loss;
      correct += sums.correct;
      weight += objective.weight(batch);
    }
  }
  links.finish();
  sum_over(data, {&sum, &correct, &weight, &num_samples});
  sum_over(model.mesh().pipeline(), {&sum, &correct});
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
