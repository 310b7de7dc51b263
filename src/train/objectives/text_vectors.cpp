#include "train/objectives/text_vectors.h"

#include <ATen/core/Tensor.h>

#include "train/objectives/contrast.h"
#include "train/objectives/embedding.h"
#include "train/objectives/text_labels.h"

namespace danlu::train {

std::vector<std::vector<float>> vectors_of_texts(const FrozenModel& model,
                                                 std::span<const std::vector<int32_t>> texts) {
  if (texts.empty()) return {};
  const data::Batch batch = batch_of_texts(texts);
  at::Tensor found_SH;
  ForwardPasses(model.stage(), model.links())
      .run({&batch}, {},
           [&](size_t, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
             found_SH = at_length_one(segment_vectors(model.stage(), hidden_nH, input, batch));
           });
  const at::Tensor on_host = found_SH.detach().to(at::kCPU).to(at::kFloat).contiguous();
  const float* next = on_host.data_ptr<float>();
  std::vector<std::vector<float>> vectors;
  for (size_t i = 0; i < texts.size(); ++i, next += on_host.size(1))
    vectors.emplace_back(next, next + on_host.size(1));
  return vectors;
}

}  // namespace danlu::train
