#include "train/objectives/gathered_vectors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "device/sent.h"
#include "parallel/agree.h"

namespace danlu::train {
namespace {

constexpr auto kNumbers = static_cast<int64_t>(data::kGroupNumbers);

/// How many rows each rank gives.
struct Given {
  std::vector<int64_t> rows;
  int64_t most() const { return *std::max_element(rows.begin(), rows.end()); }
  int64_t before(int64_t rank) const {
    int64_t sum = 0;
    for (int64_t r = 0; r < rank; ++r) sum += rows[static_cast<size_t>(r)];
    return sum;
  }
};

/// rows: vectors, and beside each the numbers of its segment [S, H + 3]. The same of all ranks.
at::Tensor gathered(const parallel::Group& group, const Given& given, const at::Tensor& rows) {
  at::Tensor padded = at::zeros({given.most(), rows.size(1)}, rows.options());
  padded.narrow(0, 0, rows.size(0)).copy_(rows);
  const at::Tensor all = group.all_gather(padded, 0);
  std::vector<at::Tensor> parts;
  for (size_t rank = 0; rank < given.rows.size(); ++rank)
    parts.push_back(all.narrow(0, static_cast<int64_t>(rank) * given.most(), given.rows[rank]));
  return at::cat(parts, 0);
}

std::vector<data::Group> groups_of_rows(const at::Tensor& numbers_N3) {
  const at::Tensor on_host = numbers_N3.to(at::kCPU).to(at::kFloat).contiguous();
  data::Batch batch;  // of segments alone
  batch.segment_starts.resize(static_cast<size_t>(on_host.size(0)) + 1);
  batch.segment_labels.assign(on_host.data_ptr<float>(),
                              on_host.data_ptr<float>() + on_host.numel());
  return data::groups_of(batch);
}

/// The rank in batch_ranks() that gives this rank's texts: all ranks of the context axis have them.
int64_t giver_of(const parallel::Mesh& mesh, const std::vector<int64_t>& data_ranks) {
  const int64_t own = mesh.shape().data_rank(mesh.rank());
  return std::find(data_ranks.begin(), data_ranks.end(), own) - data_ranks.begin();
}

}  // namespace

GatheredVectors gather_vectors(const models::CausalLM& policy, const at::Tensor& own_SH,
                               const data::Batch& batch) {
  const parallel::Mesh& mesh = policy.mesh();
  const parallel::Group& ranks = mesh.batch_ranks();
  GatheredVectors found;
  std::vector<data::Group> own = data::groups_of(batch);
  found.count = std::ssize(own);
  if (ranks.is_alone()) {
    found.vectors_NH = own_SH;
    found.groups = std::move(own);
    return found;
  }
  const int64_t segments = own_SH.size(0);
  const bool gives = mesh.context().rank() == 0;
  const Given given{parallel::numbers_of_all(ranks, gives ? segments : 0)};
  const int64_t giver =
      giver_of(mesh, parallel::numbers_of_all(ranks, mesh.shape().data_rank(mesh.rank())));
  const at::Tensor numbers_S3 =
      device::sent(at::tensor(batch.segment_labels, at::TensorOptions(at::kFloat))
                       .to(at::kDouble)
                       .view({segments, kNumbers}),
                   own_SH.device());
  const at::Tensor rows = at::cat({own_SH.detach(), numbers_S3}, 1);
  const at::Tensor all = gathered(ranks, given, gives ? rows : rows.narrow(0, 0, 0));
  const int64_t hidden = own_SH.size(1), begin = given.before(giver), end = begin + segments;
  const at::Tensor vectors = all.narrow(1, 0, hidden);
  found.vectors_NH = at::cat(
      {vectors.narrow(0, 0, begin), own_SH, vectors.narrow(0, end, vectors.size(0) - end)}, 0);
  found.groups = groups_of_rows(all.narrow(1, hidden, kNumbers));
  while (found.groups[static_cast<size_t>(found.first)].anchor < begin) ++found.first;
  return found;
}

void gather_nothing(const models::CausalLM& policy) {
  const parallel::Mesh& mesh = policy.mesh();
  const parallel::Group& ranks = mesh.batch_ranks();
  if (ranks.is_alone()) return;
  const Given given{parallel::numbers_of_all(ranks, 0)};
  parallel::numbers_of_all(ranks, mesh.shape().data_rank(mesh.rank()));
  gathered(ranks, given,
           at::zeros({0, policy.config().hidden_size + kNumbers},
                     at::TensorOptions(at::kDouble).device(policy.device())));
}

}  // namespace danlu::train
