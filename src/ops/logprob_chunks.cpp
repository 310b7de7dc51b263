#include "ops/logprob_chunks.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ops/backend.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

/// The pairs whose ids are among the columns that are here.
struct PairsHere {
  std::vector<int64_t> numbers;  ///< of the pairs
  std::vector<int64_t> places;   ///< in the chunk's logits, flat
};

PairsHere pairs_here(const at::Tensor& logits_Cv, const ChunkPairs& pairs,
                     const VocabularyShare& share) {
  const int64_t columns = logits_Cv.size(1), first = share.is_part() ? share.first_row : 0;
  const int64_t *rows = pairs.rows_M.data_ptr<int64_t>(), *ids = pairs.ids_M.data_ptr<int64_t>();
  PairsHere here;
  for (int64_t i = 0; i < pairs.ids_M.numel(); ++i) {
    const int64_t column = ids[i] - first;
    if (column < 0 || column >= columns) continue;
    here.numbers.push_back(i);
    here.places.push_back(rows[i] * columns + column);
  }
  return here;
}

at::Tensor indices(const std::vector<int64_t>& numbers, const at::Device& device) {
  const at::Tensor tensor = at::empty({static_cast<int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), tensor.data_ptr<int64_t>());
  return tensor.to(device);
}

/// The id of each row's last pair, any one of rows without: sums_of_share asks for one.
at::Tensor some_ids(const ChunkPairs& pairs, int64_t rows) {
  const at::Tensor ids_C = at::zeros({rows}, at::kLong);
  for (int64_t i = 0; i < pairs.ids_M.numel(); ++i)
    ids_C.data_ptr<int64_t>()[pairs.rows_M.data_ptr<int64_t>()[i]] =
        pairs.ids_M.data_ptr<int64_t>()[i];
  return ids_C;
}

}  // namespace

ChunkNumbers numbers_of_chunk(const at::Tensor& logits_Cv, const ChunkPairs& pairs,
                              const VocabularyShare& share, bool with_expected) {
  const Backend& table = completed_backend(logits_Cv.device().type());
  const bool is_shared = share.is_part();
  const int64_t rows = logits_Cv.size(0), first = is_shared ? share.first_row : 0;
  ChunkNumbers numbers;
  numbers.largest_C1 = table.largest_of_share(logits_Cv);
  if (is_shared) share.max_over_ranks(numbers.largest_C1);

  const PairsHere here = pairs_here(logits_Cv, pairs, share);
  numbers.logits_M1 = at::zeros({pairs.ids_M.numel(), 1}, logits_Cv.options());
  if (!here.places.empty()) {
    const at::Tensor found_m1 =
        table.take_rows(logits_Cv.view({-1, 1}), indices(here.places, logits_Cv.device()));
    table.add_rows(numbers.logits_M1, indices(here.numbers, logits_Cv.device()), found_m1);
  }
  if (is_shared) share.sum_over_ranks(numbers.logits_M1);

  const at::Tensor kept_Cv = with_expected ? logits_Cv.clone() : at::Tensor();
  at::Tensor sums_C2 = table.sums_of_share(
      {logits_Cv, some_ids(pairs, rows).to(logits_Cv.device()), first}, numbers.largest_C1);
  if (with_expected) {
    const at::Tensor expected_C1 = logits_Cv.size(1) > 0
                                       ? table.row_dots(logits_Cv, kept_Cv).view({rows, 1})
                                       : at::zeros({rows, 1}, logits_Cv.options());
    sums_C2.narrow(1, 1, 1).copy_(expected_C1);
  }
  if (is_shared) share.sum_over_ranks(sums_C2);
  numbers.total_C1 = sums_C2.narrow(1, 0, 1).contiguous();
  if (with_expected) numbers.expected_C1 = sums_C2.narrow(1, 1, 1).contiguous();
  return numbers;
}

at::Tensor grad_of_chunk(const at::Tensor& logits_Cv, const ChunkPairs& pairs,
                         const VocabularyShare& share, const at::Tensor& largest_C1,
                         const at::Tensor& total_C, const at::Tensor& grad_M) {
  if (logits_Cv.numel() == 0) return logits_Cv;
  const Backend& table = completed_backend(logits_Cv.device().type());
  const at::Device device = logits_Cv.device();
  const int64_t rows = logits_Cv.size(0), first = share.is_part() ? share.first_row : 0;
  // d logprob / d logits is 1 at the id, less every id's probability.
  const at::Tensor of_rows_C =
      at::zeros({rows}, grad_M.options()).index_add_(0, pairs.rows_M, grad_M);
  table.sums_of_share({logits_Cv, some_ids(pairs, rows).to(device), first}, largest_C1);
  const at::Tensor grad_Cv = table.scale_rows(logits_Cv, (-of_rows_C / total_C).to(device));
  const PairsHere here = pairs_here(logits_Cv, pairs, share);
  if (here.places.empty()) return grad_Cv;
  const at::Tensor own_m1 =
      grad_M.index_select(0, indices(here.numbers, at::kCPU)).unsqueeze(1).to(device);
  table.add_rows(grad_Cv.view({-1, 1}), indices(here.places, device), own_m1);
  return grad_Cv;
}

std::vector<at::Tensor> on_host_together(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat, found;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  if (flat.empty()) return found;
  const at::Tensor all = joined(flat, 0).to(at::kCPU);
  int64_t begin = 0;
  for (const at::Tensor& tensor : flat) {
    found.push_back(all.narrow(0, begin, tensor.numel()));
    begin += tensor.numel();
  }
  return found;
}

}  // namespace danlu::ops
