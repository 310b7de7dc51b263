#include "train/ranks.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "parallel/comm/c10d.h"

namespace danlu::train {

Ranks::Ranks(const RankPlace& place, const parallel::MeshShape& shape, double timeout_s) {
  if (place.size == 1) return;
  parallel::C10dJob job;
  job.rank = place.rank;
  job.size = place.size;
  job.master_address = place.master_address;
  job.master_port = place.master_port;
  // "For ever" is written as 180000000; what counts milliseconds in 32 bits cannot wait so long.
  constexpr double kLongest = 7 * 24 * 3600;
  job.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(std::min(timeout_s, kLongest) * 1000));
  world_ = parallel::connect_c10d(job);
  own_mesh_ = std::make_unique<parallel::Mesh>(*world_, shape);
}

std::string Ranks::from(int64_t rank, const std::string& text) const {
  const parallel::Group& all = mesh().all();
  at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  all.broadcast(size, rank);
  at::Tensor bytes = at::empty({std::max<int64_t>(1, size.item<int64_t>())}, at::kByte);
  if (all.rank() == rank) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  all.broadcast(bytes, rank);
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(size.item<int64_t>())};
}

int64_t Ranks::largest(int64_t number) const {
  at::Tensor numbers = at::full({1}, number, at::kLong);
  mesh().all().all_reduce_max(numbers);
  return numbers.item<int64_t>();
}

void Ranks::require_same(const std::string& what, const std::string& value) const {
  if (size() == 1) return;
  const std::string first = from_first(value);
  const at::Tensor differs = mesh().all().all_gather(at::full({1}, value != first, at::kLong), 0);
  for (int64_t rank = 1; rank < size(); ++rank) {
    if (differs[rank].item<int64_t>() == 0) continue;
    throw UsageError(tr("[ranks] rank {} has another {}: {} there, {} on rank 0", rank, what,
                        from(rank, value), first),
                     tr("all ranks run the same program with the same flags, model and data"));
  }
}

}  // namespace danlu::train
