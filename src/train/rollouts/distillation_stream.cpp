#include "train/rollouts/distillation_stream.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "train/objectives/distillation.h"
#include "train/rollouts/drawn_answers.h"
#include "train/rollouts/row_prompt.h"

namespace danlu::train {
DistillationStream::DistillationStream(DistillationParts parts, DistillationSettings settings,
                                       int64_t consumed)
    : parts_(std::move(parts)),
      settings_(std::move(settings)),
      rows_(parts_.rows, parts_.order, settings_.batches, consumed) {}

bool DistillationStream::draws(int64_t first_sample) const {
  const int64_t size = parts_.rows->size(), batch = settings_.batches.global_batch_size();
  const int64_t step = first_sample / size * rows_.steps_per_epoch() + first_sample % size / batch;
  return PythonRandom(static_cast<int64_t>(settings_.seed) + step).random() <= settings_.lmbda;
}

std::vector<data::Sample> DistillationStream::answered(const data::StepBatches& step) {
  const settings::Reinforcement& told = settings_.told;
  const int64_t count = step.end - step.begin, rank = settings_.batches.dp_rank,
                ranks = settings_.batches.dp_size;
  const int64_t begin = step.begin + count * rank / ranks,
                end = step.begin + count * (rank + 1) / ranks;
  std::vector<infer::Request> requests;
  for (int64_t number = begin; number < end; ++number) {
    infer::Request& request = requests.emplace_back();
    const std::vector<int32_t> prompt = prompt_of(parts_.rows->get(parts_.order(number)));
    if (prompt.empty()) {
      throw DataError(
          tr("[train] sample {}: all of it is learnt, and no prompt is left that the model could "
             "answer",
             parts_.order(number)),
          tr("--lmbda 0 learns from the answers of the rows"));
    }
    request.prompt.assign(prompt.begin(), prompt.end());
    request.sampling = {.do_sample = true,
                        .temperature = told.loss.temperature,
                        .top_k = told.top_k,
                        .top_p = told.top_p,
                        .min_p = told.min_p,
                        .repetition_penalty = told.repetition_penalty,
                        .seed = settings_.seed};
    request.max_new_tokens = told.max_new_tokens;
    request.stop_ids = settings_.stop_ids;
    request.num_tokens = settings_.num_tokens;
    request.stream = static_cast<uint64_t>(number);
  }
  std::vector<DrawnAnswer> own;
  const double begun = steady_now_s();
  parts_.drawing.with_weights([&] {
    for (const infer::Answer& found : parts_.drawing.generate(requests))
      own.push_back(drawn_answer(found));
  });
  times_["rollout"] = steady_now_s() - begun;
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].prompt = std::move(requests[i].prompt);
    own[i].number = own[i].place = begin + static_cast<int64_t>(i);
  }
  std::vector<data::Sample> samples;
  double tokens = 0, cut = 0;
  for (const DrawnAnswer& answer : answers_of_all(parts_.ranks->models(), own)) {
    data::Sample& sample = samples.emplace_back(sample_of(answer, /*is_masked=*/false));
    sample.token_columns[kDrawnColumn].assign(sample.ids.size(), 1);
    tokens += static_cast<double>(answer.ids.size());
    cut += answer.is_ended ? 0 : 1;
  }
  if (tokens == 0)
    throw DataError(
        tr("[train] no prompt of samples {} to {} leaves room for an answer", step.begin, step.end),
        tr("a smaller --max_length leaves out rows with such prompts"));
  figures_["completions/mean_length"] = tokens / static_cast<double>(count);
  figures_["completions/clipped_ratio"] = cut / static_cast<double>(count);
  return samples;
}

data::StepBatches DistillationStream::next() {
  const double begun = steady_now_s();
  times_.clear();
  if (put_back_) {
    wait_s_ = 0;
    return *std::exchange(put_back_, std::nullopt);
  }
  figures_.clear();
  data::StepBatches step = rows_.next();
  const bool is_drawn = draws(step.begin);
  figures_["on_policy"] = is_drawn ? 1 : 0;
  if (is_drawn) {
    data::BatchStreamOptions options = settings_.batches;
    options.prefetch_steps = 0;
    options.last_batch = data::LastBatch::kPartial;
    data::BatchStream drawn(
        std::make_shared<data::VectorSource>(answered(step)), [](int64_t index) { return index; },
        options);
    data::StepBatches batches = drawn.next();
    batches.begin = step.begin;
    batches.end = step.end;
    batches.next = step.next;
    step = std::move(batches);
  }
  wait_s_ = steady_now_s() - begun - (is_drawn ? times_["rollout"] : 0);
  return step;
}

}  // namespace danlu::train
