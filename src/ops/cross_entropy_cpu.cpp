#include <ATen/core/Tensor.h>

#include <vector>

#include "device/parallel.h"
#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {

void cross_entropy(const CrossEntropyChunk& chunk) {
  const int64_t rows = chunk.logits_CV.size(0), width = chunk.logits_CV.size(1);
  const at::Tensor targets = chunk.targets_C.contiguous();
  std::vector<RowLoss> losses(static_cast<size_t>(rows));
  device::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      char* logits = static_cast<char*>(chunk.logits_CV.data_ptr()) +
                     row * width * static_cast<int64_t>(chunk.logits_CV.element_size());
      losses[static_cast<size_t>(row)] =
          cross_entropy_row(element_of(chunk.logits_CV), logits, static_cast<size_t>(width),
                            targets.data_ptr<int64_t>()[row], static_cast<float>(chunk.z_weight),
                            static_cast<float>(chunk.grad_scale), chunk.make_grad);
    }
  });
  double sum = 0;
  int64_t num_correct = 0;
  for (const RowLoss& row : losses) {
    sum += row.loss;
    num_correct += row.correct ? 1 : 0;
  }
  *chunk.sum.data_ptr<float>() += static_cast<float>(sum);
  *chunk.correct.data_ptr<int64_t>() += num_correct;
}

}  // namespace danlu::ops::cpu
