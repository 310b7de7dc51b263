#include "train/objectives/text_labels.h"

#include <ATen/core/Tensor.h>

#include "base/ignore_label.h"
#include "data/batch.h"
#include "train/objectives/reward.h"

namespace danlu::train {

data::Batch batch_of_texts(std::span<const std::vector<int32_t>> texts) {
  std::vector<data::Sample> samples;
  for (const std::vector<int32_t>& text : texts) {
    data::Sample sample;
    sample.ids = text;
    sample.labels.assign(text.size(), static_cast<int32_t>(kIgnoreLabel));
    samples.push_back(std::move(sample));
  }
  return data::make_batch(samples);
}

std::vector<std::vector<double>> numbers_of_texts(const FrozenModel& judge,
                                                  std::span<const std::vector<int32_t>> texts,
                                                  const std::vector<int64_t>& ids) {
  if (texts.empty()) return {};
  const data::Batch batch = batch_of_texts(texts);
  at::Tensor found_SL;
  ForwardPasses(judge.stage(), judge.links())
      .run({&batch}, {},
           [&](size_t, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
             found_SL = segment_numbers(judge.stage(), hidden_nH, input, batch, ids);
           });
  const at::Tensor on_host = found_SL.detach().to(at::kCPU).contiguous();
  const double* next = on_host.data_ptr<double>();
  std::vector<std::vector<double>> numbers;
  for (size_t i = 0; i < texts.size(); ++i, next += on_host.size(1))
    numbers.emplace_back(next, next + on_host.size(1));
  return numbers;
}

}  // namespace danlu::train
