#include "train/evaluate.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "base/error.h"
#include "data/batch_stream.h"
#include "parallel/agree.h"
#include "train/objective.h"
#include "train/passes.h"
#include "train/step.h"

namespace danlu::train {
namespace evaluate_detail {

/// The stage's part of passes of `batches`, and of nothing where others of the data axis have more
/// than this rank, up to `passes`; the last one's has sums.
PassSums pass(const models::CausalLM& stage, const Objective& objective,
              const std::vector<const data::Batch*>& batches, int64_t passes, StageLinks& links) {
  const parallel::Mesh& mesh = stage.mesh();
  const arch::Schedule schedule =
      arch::forward_only(mesh.stage(), mesh.shape().pipeline, stage.stage().num_chunks(), passes);
  const auto batch_of = [&](const arch::Action& action) -> const data::Batch* {
    const auto i = static_cast<size_t>(action.micro_batch);
    return i < batches.size() ? batches[i] : nullptr;
  };
  for (const arch::Action& action : schedule) {
    const data::Batch* batch = batch_of(action);
    if (batch && action.work == arch::Work::kReceiveHidden)
      links.expect_hidden(static_cast<int64_t>(batch->ids.size()));
  }
  PassSums sums;
  at::Tensor hidden_nH;  // of the action before
  for (const arch::Action& action : schedule) {
    const data::Batch* batch = batch_of(action);
    if (action.work == arch::Work::kForward && !batch)
      stage.forward_idly(/*keeps=*/false, action.chunk);
    if (!batch) continue;
    if (action.work == arch::Work::kReceiveHidden) {
      hidden_nH = links.receive_hidden();
    } else if (action.work == arch::Work::kSendHidden) {
      links.send_hidden(hidden_nH);
    } else {
      const models::ForwardInput input = evaluation_input(stage, *batch);
      const bool begins = stage.stage().begins_at(action.chunk);
      hidden_nH = stage.forward(input, begins ? at::Tensor() : hidden_nH, action.chunk);
      if (!stage.stage().ends_at(action.chunk)) continue;
      const Loss loss = objective.evaluate(stage, hidden_nH, input, *batch, 1.0);
      sums.loss += loss.sum.item<double>();
      sums.correct += loss.correct.item<double>();
    }
  }
  return sums;
}

/// What this rank of the context axis has of the batches that weigh anything.
struct Own {
  std::deque<data::Batch> parts;
  std::vector<const data::Batch*> batches;
  double weight = 0, num_samples = 0;  ///< of whole batches, on the axis' first rank
};

Own own_of(const std::vector<data::StepBatches>& rounds, const Objective& objective,
           const parallel::Mesh& mesh) {
  Own own;
  const bool counts = mesh.context().rank() == 0;
  for (const data::StepBatches& round : rounds) {
    for (const data::Batch& batch : round.micro_batches) {
      if (counts) own.num_samples += static_cast<double>(batch.num_samples);
      if (!(objective.weight(batch) > 0)) continue;
      if (counts) own.weight += objective.weight(batch);
      own.batches.push_back(&own.parts.emplace_back(own_part(mesh, batch)));
    }
  }
  return own;
}

}  // namespace evaluate_detail

double loss_of(const models::CausalLM& model, const data::Batch& batch) {
  const at::NoGradGuard no_grad;
  const Objective& objective = language_modelling();
  const parallel::Mesh& mesh = model.mesh();
  StageLinks links(model);
  const data::Batch own = own_part(mesh, batch);
  double sum = evaluate_detail::pass(model, objective, {&own}, 1, links).loss;
  links.finish();
  sum_over(mesh.pipeline(), {&sum});
  return sum / std::max(1.0, objective.weight(own));
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
  const parallel::Mesh& mesh = model.mesh();
  options.dp_rank = mesh.shape().data_rank(mesh.rank());
  options.dp_size = mesh.shape().data;
  const int64_t size = samples->size();
  // Reading ahead goes round the end.
  data::BatchStream stream(
      std::move(samples), [size](int64_t index) { return index % size; }, options);
  int64_t batches = stream.steps_per_epoch();
  const int64_t wanted =
      settings.max_batches > 0 ? settings.max_batches : batches * options.dp_size;
  batches = std::min(batches, (wanted + options.dp_size - 1) / options.dp_size);
  if (settings.on_start) settings.on_start(batches);

  Evaluation result;
  StageLinks links(model);
  double sum = 0, correct = 0, weight = 0, num_samples = 0;
  // Stages of several chunks have something to do while a batch is elsewhere.
  const int64_t together = model.stage().num_chunks() > 1 ? model.mesh().shape().pipeline : 1;
  for (int64_t i = 0; i < batches; i += together) {
    std::vector<data::StepBatches> rounds;
    for (int64_t round = i; round < std::min(i + together, batches); ++round)
      rounds.push_back(stream.next());
    // The last round may be for some only: round r has the batches r * dp_size and on.
    const int64_t for_this_rank =
        (wanted - options.dp_rank + options.dp_size - 1) / options.dp_size - i;
    if (static_cast<int64_t>(rounds.size()) > for_this_rank)
      rounds.resize(static_cast<size_t>(std::max<int64_t>(0, for_this_rank)));
    const evaluate_detail::Own own = evaluate_detail::own_of(rounds, objective, mesh);
    weight += own.weight;
    num_samples += own.num_samples;
    const int64_t passes =
        parallel::largest_of(mesh.data(), static_cast<int64_t>(own.batches.size()));
    const PassSums sums = evaluate_detail::pass(model, objective, own.batches, passes, links);
    sum += sums.loss;
    correct += sums.correct;
  }
  links.finish();
  sum_over(mesh.data(), {&sum, &correct, &weight, &num_samples});
  sum_over(mesh.pipeline(), {&sum, &correct});
  take_first(mesh.tensor(), {&sum, &correct});
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
