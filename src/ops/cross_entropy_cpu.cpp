#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/fused_cpu.h"

namespace danlu::ops::cpu {

ChunkLoss cross_entropy_chunk(const at::Tensor& logits_CV, const at::Tensor& targets_C,
                              double z_weight, double grad_scale, bool make_grad) {
  const int64_t rows = logits_CV.size(0), width = logits_CV.size(1);
  const at::Tensor targets = targets_C.contiguous();
  std::vector<RowLoss> losses(static_cast<size_t>(rows));
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      char* logits =
          static_cast<char*>(logits_CV.data_ptr()) + row * width * logits_CV.element_size();
      losses[static_cast<size_t>(row)] =
          cross_entropy_row(element_of(logits_CV), logits, static_cast<size_t>(width),
                            targets.data_ptr<int64_t>()[row], static_cast<float>(z_weight),
                            static_cast<float>(grad_scale), make_grad);
    }
  });
  ChunkLoss result;
  for (const RowLoss& row : losses) {
    result.sum += row.loss;
    result.num_correct += row.correct ? 1 : 0;
  }
  return result;
}

}  // namespace danlu::ops::cpu
