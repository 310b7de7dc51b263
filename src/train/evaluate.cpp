#include "train/evaluate.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "data/batch_stream.h"
#include "parallel/agree.h"
#include "train/batch_input.h"
#include "train/correlation.h"

namespace danlu::train {
namespace {

struct EvaluationSums {
  double loss = 0;
  std::vector<double> found_and_wanted = {};  ///< two by two
  MetricSums metrics = {};
  models::PassResults results = {};
};

/// Adds what this rank's passes of whole batches come to.
void pass(const ForwardPasses& passes, const models::CausalLM& stage, const Objective& objective,
          const std::vector<const data::Batch*>& whole, EvaluationSums& sums) {
  const std::vector<Columns> columns = prepared(objective, passes, whole);
  const TrainedParts own(objective, stage.mesh(), whole);
  const std::vector<const data::Batch*>& batches = own.batches();
  passes.run(
      batches, {.results = &sums.results, .on_nothing = [&] { objective.take_part(stage); }},
      [&](size_t i, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
        const Loss loss = objective.evaluate(stage, hidden_nH, input, *batches[i], columns[i], 1.0);
        sums.loss += loss.counted().item<double>();
        for (const auto& [name, metric] : loss.metrics) sums.metrics.add(name, metric);
        if (!loss.found_and_wanted.defined()) return;
        const at::Tensor numbers = loss.found_and_wanted.to(at::kCPU).contiguous();
        const double* const first = numbers.data_ptr<double>();
        sums.found_and_wanted.insert(sums.found_and_wanted.end(), first, first + numbers.numel());
      });
}

/// Everybody's numbers, in the order of ranks, of a rank of the last stage.
std::pair<std::vector<double>, std::vector<double>> found_and_wanted_of_all(
    const parallel::Mesh& mesh, const std::vector<double>& own) {
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(double));
  std::pair<std::vector<double>, std::vector<double>> all;
  for (const std::string& theirs : parallel::texts_of_all(mesh.batch_ranks(), bytes)) {
    std::vector<double> numbers(theirs.size() / sizeof(double));
    std::memcpy(numbers.data(), theirs.data(), theirs.size());
    for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
      all.first.push_back(numbers[i]);
      all.second.push_back(numbers[i + 1]);
    }
  }
  return all;
}

/// How well what was found goes with what was wanted, on every rank. Collective.
void add_correlations(const models::CausalLM& model, const Objective& objective,
                      const std::vector<double>& own, std::map<std::string, double>& metrics) {
  if (objective.found().empty()) return;
  const parallel::Mesh& mesh = model.mesh();
  std::vector<double> numbers(4, 0.0);  // each with whether there is one
  if (mesh.stage() + 1 == mesh.shape().pipeline) {
    const auto [found, wanted] = found_and_wanted_of_all(mesh, own);
    const auto put = [&](size_t at, const std::optional<double>& number) {
      numbers[at] = number.value_or(0);
      numbers[at + 1] = number ? 1 : 0;
    };
    put(0, pearson(found, wanted));
    put(2, spearman(found, wanted));
  }
  sum_over(mesh.pipeline(), numbers);
  take_first(mesh.tensor(), numbers);
  if (numbers[1] > 0) metrics["pearson_" + objective.found()] = numbers[0];
  if (numbers[3] > 0) metrics["spearman_" + objective.found()] = numbers[2];
}

/// The whole batches that weigh anything.
struct Own {
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
      own.batches.push_back(&batch);
    }
  }
  return own;
}

/// How many rounds of batches are prepared and passed at a time. All of them where the objective
/// takes sums over them: they are in memory together, as ids. Stages of several chunks have
/// something to do while a batch is elsewhere.
int64_t batches_together(const Objective& objective, const models::CausalLM& model,
                         int64_t rounds) {
  if (objective.spans_batches()) return std::max<int64_t>(1, rounds);
  return model.stage().num_chunks() > 1 ? model.mesh().shape().pipeline : 1;
}

}  // namespace

double loss_of(const models::CausalLM& model, const Objective& objective,
               const data::Batch* batch) {
  const at::NoGradGuard no_grad;
  const parallel::Mesh& mesh = model.mesh();
  StageLinks links(model);
  std::vector<const data::Batch*> batches;
  if (batch) batches.push_back(batch);
  EvaluationSums sums;
  pass(ForwardPasses(model, links), model, objective, batches, sums);
  std::vector<double> sum = {sums.loss};
  sum_over(mesh.pipeline(), sum);
  return batch ? sum[0] / std::max(1.0, objective.weight(own_part(mesh, *batch))) : 0;
}

Evaluation evaluate(const models::CausalLM& model, const Objective& objective,
                    std::shared_ptr<const data::SampleSource> samples,
                    const EvaluationSettings& settings) {
  const auto begin = std::chrono::steady_clock::now();
  const at::NoGradGuard no_grad;
  data::BatchStreamOptions options;
  options.micro_batch_size = settings.batch_size;
  options.max_tokens_per_micro_batch = settings.max_tokens;
  options.vocab_size = model.config().vocab_size;
  if (model.stage().has(model.stage().chain.patches())) options.media_loader = settings.media;
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
  const ForwardPasses passes(model, links);
  EvaluationSums sums;
  std::vector<double> counts = {0, 0};  // weight and samples
  const int64_t together = batches_together(objective, model, batches);
  for (int64_t i = 0; i < batches; i += together) {
    std::vector<data::StepBatches> rounds;
    for (int64_t round = i; round < std::min(i + together, batches); ++round)
      rounds.push_back(stream.next());
    // The last round may be for some only: round r has the batches r * dp_size and on.
    const int64_t for_this_rank =
        (wanted - options.dp_rank + options.dp_size - 1) / options.dp_size - i;
    if (static_cast<int64_t>(rounds.size()) > for_this_rank)
      rounds.resize(static_cast<size_t>(std::max<int64_t>(0, for_this_rank)));
    const Own own = own_of(rounds, objective, mesh);
    counts[0] += own.weight;
    counts[1] += own.num_samples;
    pass(passes, model, objective, own.batches, sums);
  }
  std::vector<double> loss = {sums.loss};
  sum_over(mesh.batch_ranks(), loss);
  sum_over(mesh.batch_ranks(), counts);
  sum_over(mesh.pipeline(), loss);
  take_first(mesh.tensor(), loss);
  result.weight = counts[0];
  result.num_samples = static_cast<int64_t>(counts[1]);
  if (!(result.weight > 0))
    throw DataError(tr("[evaluate] no token of the held-out data is a target"));
  result.loss = loss[0] / result.weight;
  result.metrics =
      values_of(metrics_of_all(objective, model, sums.metrics.read(), sums.results, result.weight));
  add_correlations(model, objective, sums.found_and_wanted, result.metrics);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace danlu::train
