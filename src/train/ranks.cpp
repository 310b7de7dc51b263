#include "train/ranks.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "parallel/comm/c10d.h"

namespace danlu::train {

Ranks::Ranks(const RankPlace& place, const parallel::MeshShape& shape, double timeout_s,
             const Json& settings) {
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
  all_ = world_->make_group_of_all();
  // Before the mesh: ranks that see another one would wait for, or talk past, each other.
  require_same_settings(settings);
  own_mesh_ = std::make_unique<parallel::Mesh>(*world_, shape);
}

std::string Ranks::from(int64_t rank, const std::string& text) const {
  const parallel::Group& all = this->all();
  at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  all.broadcast(size, rank);
  at::Tensor bytes = at::empty({std::max<int64_t>(1, size.item<int64_t>())}, at::kByte);
  if (all.rank() == rank) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  all.broadcast(bytes, rank);
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(size.item<int64_t>())};
}

void Ranks::wait_for_turn() const {
  if (world_ && !is_first()) world_->wait_for(fmt::format("turn {}", turns_));
}

void Ranks::end_turn() const {
  if (world_ && is_first()) world_->post(fmt::format("turn {}", turns_));
  ++turns_;
}

int64_t Ranks::largest(int64_t number) const {
  at::Tensor numbers = at::full({1}, number, at::kLong);
  all().all_reduce_max(numbers);
  return numbers.item<int64_t>();
}

void Ranks::require_same(const std::string& what, const std::string& value) const {
  const std::string first = from_first(value);
  refuse(what, value == first ? "" : tr("{} there, {} on rank 0", value, first));
}

void Ranks::require_same_settings(const Json& settings) const {
  const Json first = parse_json(from_first(settings.dump()), "rank 0");
  std::string difference;
  for (const auto& [name, value] : first.items()) {
    if (!difference.empty() || (settings.contains(name) && settings[name] == value)) continue;
    const auto shown = [](const Json& of) { return of.is_null() ? tr("not given") : of.dump(); };
    difference = tr("--{} is {} there, {} on rank 0", name, shown(settings.value(name, Json())),
                    shown(value));
  }
  if (difference.empty() && settings.size() != first.size())
    difference = tr("more flags are given");
  refuse("configuration", difference);
}

void Ranks::refuse(const std::string& what, const std::string& difference) const {
  const at::Tensor differs = all().all_gather(at::full({1}, !difference.empty(), at::kLong), 0);
  for (int64_t rank = 1; rank < size(); ++rank) {
    if (differs[rank].item<int64_t>() == 0) continue;
    throw UsageError(tr("[ranks] rank {} has another {}: {}", rank, what, from(rank, difference)),
                     tr("all ranks run the same program with the same flags, model and data"));
  }
}

}  // namespace danlu::train
