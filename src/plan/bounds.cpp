#include "plan/bounds.h"

#include <algorithm>
#include <functional>

#include "arch/gated_delta.h"
#include "plan/update_time.h"

namespace danlu::plan {
namespace {

bool have_equal_layers(const arch::ModelConfig& model) {
  const std::vector<int64_t>& windows = model.sliding_window;
  const bool same_windows = std::all_of(windows.begin(), windows.end(),
                                        [&](int64_t window) { return window == windows[0]; });
  const std::vector<bool>& sparse = model.experts.sparse_layer;
  const bool same_experts =
      std::adjacent_find(sparse.begin(), sparse.end(), std::not_equal_to<>()) == sparse.end();
  return same_windows && !model.vision && same_experts && model.own_kinds.empty() &&
         !arch::has_gated_delta(model);
}

bool have_equal_runs(const arch::Stage& a, const arch::Stage& b) {
  return std::equal(a.chunks.begin(), a.chunks.end(), b.chunks.begin(), b.chunks.end(),
                    [](const arch::PlaceRange& x, const arch::PlaceRange& y) {
                      return x.end - x.first == y.end - y.first;
                    });
}

/// The most runs of layers whose activations a stage keeps at once.
int64_t in_flight_of(const arch::Schedule& schedule) {
  int64_t kept = 0, most = 0;
  for (const arch::Action& action : schedule) {
    if (action.work == arch::Work::kForward) most = std::max(most, ++kept);
    if (action.work == arch::Work::kBackward) --kept;
  }
  return most;
}

}  // namespace

using settings::Sharding;

Bounds::Bounds(const Request& request, const Machine& machine)
    : machine_(machine), stages_(arch::stages_of(request.model, request.pipeline)) {
  alike_ = request.freeze.empty() && have_equal_layers(request.model);
  for (size_t s = 2; s + 1 < stages_.size(); ++s)
    alike_ = alike_ && have_equal_runs(stages_[1], stages_[s]);
  for (size_t s = 0; s < stages_.size(); ++s) {
    const bool is_new = s < 2 || s + 1 == stages_.size() || !alike_;
    elements_.push_back(is_new ? elements_alone(request, stages_[s]) : elements_.back());
  }
}

Bounds::StageTime Bounds::time_of(size_t stage, const Request& request, StageClock& clock) const {
  const Traffic traffic = traffic_of(request, stages_[stage], elements_[stage]);
  StageTime time;
  for (int64_t chunk = 0; chunk < stages_[stage].num_chunks(); ++chunk) {
    const WorkTimes own = clock.chunk(stages_[stage], chunk, traffic, elements_[stage]).with_copies;
    const double all = own.forward + own.backward_input + own.backward_weight;
    time.work += all;
    if (chunk == 0) time.first = all;
  }
  return time;
}

double Bounds::seconds(const Request& request) const {
  const ProgramTraits program;
  StageClock clock(request, machine_, program);
  StageTime time;
  double most = 0, before = 0, update = 0;
  for (size_t s = 0; s < stages_.size(); ++s) {
    if (s < 2 || s + 1 == stages_.size() || !alike_) {
      time = time_of(s, request, clock);
      update = std::max(update, update_seconds(request, machine_, elements_[s]));
    }
    // A stage begins when those before it have gone forward through their first run of layers, and
    // ends with the backward of its own, which then goes back through theirs.
    most = std::max(most, before + time.work * static_cast<double>(request.num_micro_batches));
    before += time.first;
  }
  return most + update + tied_seconds(request, machine_, elements_.back());
}

std::pair<size_t, int64_t> Bounds::fullest(const Request& request) {
  std::pair<size_t, int64_t> most{0, -1};
  for (size_t s = 0; s < stages_.size(); s += std::max<size_t>(1, stages_.size() - 1)) {
    // What recompute changes and what sharding and offload change add up: each is worked out once.
    Request shared = request, made_again = request;
    shared.recompute = {.granularity = "full"};
    made_again.sharding = Sharding::kNone;
    made_again.state_in_files = false;
    const Memory& kept = memory(s, shared);
    const Memory& passes = memory(s, made_again);
    const int64_t pass =
        kept.communication + passes.activations + passes.working - passes.gradients_to_come;
    const int64_t bytes = kept.kept() + std::max(pass, kept.beside_passes());
    if (bytes > most.second) most = {s, bytes};
  }
  return most;
}

int64_t Bounds::bytes(const Request& request) {
  return static_cast<int64_t>(static_cast<double>(fullest(request).second) *
                              (1 + machine_.allocator));
}

double Bounds::host_bytes(const Request& request) {
  const bool away = request.offload.to == settings::OffloadTo::kHost;
  if (!away && !request.state_in_files) return 0;
  const size_t stage = fullest(request).first;
  Request shared = request;
  shared.recompute = {.granularity = "full"};
  const Memory& kept = memory(stage, shared);
  const double state = plan::host_bytes(request, machine_, stages_[stage], kept, 0);
  if (!away) return state;
  const auto key = std::pair(stage, settings::recompute_text(request.recompute));
  auto found = away_.find(key);
  if (found == away_.end()) {
    Request passes = request;
    passes.state_in_files = false;
    const int64_t in_flight =
        in_flight_of(schedule_of(request, stages_[stage], static_cast<int64_t>(stage)));
    found = away_.emplace(key, plan::host_bytes(passes, machine_, stages_[stage], kept, in_flight))
                .first;
  }
  return state + found->second;
}

const Memory& Bounds::memory(size_t stage, const Request& request) {
  const auto key = std::make_tuple(stage, settings::recompute_text(request.recompute),
                                   static_cast<int>(request.sharding), request.state_in_files);
  auto found = memory_.find(key);
  if (found == memory_.end()) {
    found = memory_.emplace(key, memory_alone(request, stages_[stage], static_cast<int64_t>(stage)))
                .first;
  }
  return found->second;
}

}  // namespace danlu::plan
