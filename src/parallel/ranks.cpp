#include "parallel/ranks.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "parallel/agree.h"
#include "parallel/comm/c10d.h"

namespace danlu::parallel {
namespace {

C10dJob job_of(const RankPlace& place) {
  C10dJob job;
  job.rank = place.rank;
  job.size = place.size;
  job.master_address = place.master_address;
  job.master_port = place.master_port;
  job.launcher_port = place.launcher_port;
  job.restarts = restart_from_environment().number;
  job.speaks = place.local_rank == 0 || !place.says_local_size;  // for its machine
  return job;
}

}  // namespace

void tell_ranks(const RankPlace& place, const Error& why) {
  if (place.is_awaited()) say_absent(job_of(place), why);
}

Ranks::Ranks(const RankPlace& place, const MeshShape& shape, double timeout_s,
             const Json& settings) {
  if (place.size == 1) return;
  C10dJob job = job_of(place);
  // "For ever" is written as 180000000; what counts milliseconds in 32 bits cannot wait so long.
  constexpr double kLongest = 7 * 24 * 3600;
  job.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(std::min(timeout_s, kLongest) * 1000));
  world_ = connect_c10d(job);
  do_or_give_up([&] {
    all_ = world_->make_group_of_all();
    // Before the mesh: ranks that see another one would wait for, or talk past, each other.
    require_same_settings(settings);
    own_mesh_ = std::make_unique<Mesh>(*world_, shape, std::move(all_));
    find_leads(place);
  });
}

void Ranks::give_up() const {
  if (!world_) return;
  const Error error = current_error();
  const bool short_of_memory = error.code() == ExitCode::kMemory && error.hint().empty();
  world_->give_up(short_of_memory ? MemoryError(error.what(), tr("lower the batch size or the "
                                                                 "sequence length, or use a "
                                                                 "smaller dtype"))
                                  : error);
}

std::string Ranks::from(int64_t rank, const std::string& text) const {
  return text_from(all(), rank, text);
}

void Ranks::find_leads(const RankPlace& place) {
  lead_ = place.rank - place.local_rank;
  const std::vector<int64_t> leads = numbers_of_all(all(), lead_);
  const std::vector<int64_t> said = numbers_of_all(all(), place.says_local_rank);
  const std::vector<int64_t> hosts =
      numbers_of_all(all(), static_cast<int64_t>(hash_bytes(host_name())));
  leads_.clear();
  for (int64_t rank = 0; rank < size(); ++rank) {
    const auto i = static_cast<size_t>(rank);
    if (leads_.empty() || leads_.back() != leads[i]) leads_.push_back(leads[i]);
    if (!said[i] || hosts[i] == hosts[static_cast<size_t>(leads[i])]) continue;
    const std::string here = from(rank, host_name()), there = from(leads[i], host_name());
    throw UsageError(
        tr("[ranks] rank {} on {} is process {} of its machine, but rank {}, which would be its "
           "first, is on {}",
           rank, here, rank - leads[i], leads[i], there),
        tr("processes of a machine need numbers in a row: mpirun --map-by slot, srun "
           "--distribution=block"));
  }
}

void Ranks::wait_for_turn(int64_t first) const {
  if (world_ && rank() != first) world_->wait_for(fmt::format("turn {} of {}", turns_, first));
}

void Ranks::end_turn(int64_t first) const {
  if (world_ && rank() == first) world_->post(fmt::format("turn {} of {}", turns_, first));
  ++turns_;
}

int64_t Ranks::largest(int64_t number) const { return largest_of(all(), number); }

void Ranks::compare_threads() const {
  const std::vector<int64_t> threads = numbers_of_all(all(), at::get_num_threads());
  const auto of = [&](int64_t rank) { return threads[static_cast<size_t>(rank)]; };
  int64_t other = 1;
  while (other < size() && of(other) == of(0)) ++other;
  if (other >= size()) return;
  const std::string host = from(other, host_name());
  if (!is_first()) return;
  log::warning(
      "[ranks] rank {} on {} computes with {} threads, rank 0 on {} with {}: each step takes as "
      "long as the slowest; OMP_NUM_THREADS sets them",
      other, host, of(other), host_name(), of(0));
}

void Ranks::require_same(const std::string& what, const std::string& value,
                         const std::string& where) const {
  const auto placed = [&](const std::string& text, const std::string& place) {
    return place.empty() ? text : fmt::format("{} ({})", text, place);
  };
  const std::string first = from_first(value), first_where = from_first(where);
  refuse(what, value == first ? ""
                              : tr("{} there, {} on rank 0", placed(value, where),
                                   placed(first, first_where)));
}

void Ranks::require_same_settings(const Json& settings) const {
  // This rank's go through a text too, so that both have lost the same in it.
  const std::string text = dump_text(settings);
  const Json first = parse_json(from_first(text), "rank 0");
  const Json own = parse_json(text, fmt::format("rank {}", all().rank()));
  std::string difference;
  for (const auto& [name, value] : first.items()) {
    if (!difference.empty() || (own.contains(name) && own[name] == value)) continue;
    const auto shown = [](const Json& of) {
      return of.is_null() ? tr("not given") : dump_text(of);
    };
    difference =
        tr("--{} is {} there, {} on rank 0", name, shown(own.value(name, Json())), shown(value));
  }
  if (difference.empty() && own.size() != first.size()) difference = tr("more flags are given");
  refuse("configuration", difference);
}

void Ranks::refuse(const std::string& what, const std::string& difference) const {
  const std::vector<int64_t> differs = numbers_of_all(all(), !difference.empty());
  for (int64_t rank = 1; rank < size(); ++rank) {
    if (differs[static_cast<size_t>(rank)] == 0) continue;
    throw UsageError(tr("[ranks] rank {} has another {}: {}", rank, what, from(rank, difference)),
                     tr("all ranks run the same program with the same flags, model and data"));
  }
}

}  // namespace danlu::parallel
