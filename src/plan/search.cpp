// Which plans are tried, and how most of them are left without being simulated: a bound of the
// time, from the work of the slowest stage and the bubble's formula, tells.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "base/error.h"
#include "plan/estimate.h"
#include "plan/rank_memory.h"

namespace danlu::plan {
namespace {

using settings::RecomputeFlags, settings::Sharding;

/// Samples that one device holds well are not cut; longer ones may be.
constexpr int64_t kLongSample = 16384;

std::vector<int64_t> divisors(int64_t of, int64_t most) {
  std::vector<int64_t> all;
  for (int64_t size = 1; size <= std::min(of, most); ++size) {
    if (of % size == 0) all.push_back(size);
  }
  return all;
}

std::vector<settings::ContextShape> context_shapes(const Request& request, const Search& search) {
  if (!request.mesh.context.is_alone() || request.tokens < kLongSample)
    return {request.mesh.context};
  std::vector<settings::ContextShape> all;
  for (const int64_t size : divisors(search.world, 16)) all.push_back({.ulysses = size});
  return all;
}

bool shares_heads(const Request& request) {
  const int64_t by = request.mesh.context.ulysses, tensor = request.mesh.tensor;
  const int64_t heads = request.model.num_heads / tensor;
  const int64_t kv_heads = std::max<int64_t>(1, request.model.num_kv_heads / tensor);
  return heads % by == 0 && (kv_heads % by == 0 || by % kv_heads == 0);
}

/// Every way to lay the work out, ZeRO, recompute and offload as in `request`.
std::vector<Request> splits(const Request& request, const Search& search) {
  std::vector<Request> all;
  const int64_t layers = request.model.num_layers;
  for (const settings::ContextShape& context : context_shapes(request, search)) {
    for (const int64_t tp : divisors(search.world, search.world)) {
      if (search.world % (tp * context.size()) != 0) continue;
      for (const int64_t pp : divisors(search.world / tp / context.size(), layers)) {
        const int64_t dp = search.world / tp / context.size() / pp;
        if (layers % pp != 0 || search.samples % dp != 0) continue;
        for (const int64_t micro : divisors(search.samples / dp, 8)) {
          for (const int64_t runs : divisors(layers / pp, pp > 1 ? 4 : 1)) {
            Request one = request;
            one.mesh = {.tensor = tp,
                        .data = dp,
                        .pipeline = pp,
                        .context = context,
                        .sequence_parallel = tp > 1,
                        .ring = runs > 1};
            one.pipeline = {.stages = pp, .virtual_stages = runs > 1 ? runs : 0};
            one.order = runs > 1 ? arch::PipelineOrder::kInterleaved
                                 : arch::PipelineOrder::kOneForwardOneBackward;
            one.micro_batch_size = micro;
            one.num_micro_batches = search.samples / dp / micro;
            if (runs > 1 && one.num_micro_batches < pp) continue;
            if (shares_heads(one)) all.push_back(std::move(one));
          }
        }
      }
    }
  }
  return all;
}

std::vector<RecomputeFlags> recomputes(const Request& request) {
  if (request.recompute != RecomputeFlags{}) return {request.recompute};
  const int64_t run = request.model.num_layers / request.mesh.pipeline /
                      std::max<int64_t>(1, request.pipeline.virtual_stages);
  std::vector<RecomputeFlags> all = {{}, {.granularity = "selective"}};
  if (run >= 4) {
    all.push_back({.granularity = "full", .method = "block", .num_layers = run / 4});
    all.push_back({.granularity = "full", .method = "block", .num_layers = run / 2});
  }
  all.push_back({.granularity = "full"});
  return all;
}

struct Candidate {
  Request request;
  double bound = 0;   ///< seconds that a step takes at least
  int64_t bytes = 0;  ///< of the fullest rank, allocator included
  bool fits = false;
};

/// No step is shorter: work of the slowest stage, and what the pipeline fills and drains with.
class Bounds {
 public:
  Bounds(const Request& request, const Machine& machine) : machine_(machine) {
    stages_ = arch::stages_of(request.model, request.pipeline);
    for (const arch::Stage& stage : stages_) {
      const bool is_new = elements_.empty() || stage.has_head ||
                          stage.layers().size() != stages_[1].layers().size();
      elements_.push_back(is_new || elements_.size() < 2 ? elements_alone(request, stage)
                                                         : elements_.back());
    }
  }

  double seconds(const Request& request) const {
    const Engine engine;
    StageClock clock(request, machine_, engine);
    double slowest = 0, fill = 0;
    for (size_t s = 0; s < stages_.size(); s += std::max<size_t>(1, stages_.size() - 1)) {
      const Traffic traffic = traffic_of(request, stages_[s], elements_[s]);
      double work = 0, first = 0;
      for (int64_t chunk = 0; chunk < stages_[s].num_chunks(); ++chunk) {
        const ChunkTimes times = clock.chunk(stages_[s], chunk, traffic, elements_[s]);
        const WorkTimes& own = times.with_copies;
        const double all = own.forward + own.backward_input + own.backward_weight;
        work += all;
        if (chunk == 0) first = all;
      }
      slowest = std::max(slowest, work * static_cast<double>(request.num_micro_batches));
      fill = std::max(fill, first);
    }
    return slowest + 0.9 * fill * static_cast<double>(request.mesh.pipeline - 1);
  }

  /// Of the fullest rank. What recompute changes and what sharding and offload change add up: each
  /// is worked out once.
  int64_t bytes(const Request& request) {
    int64_t most = 0;
    for (size_t s = 0; s < stages_.size(); s += std::max<size_t>(1, stages_.size() - 1)) {
      Request shared = request, made_again = request;
      shared.recompute = {.granularity = "full"};
      made_again.sharding = Sharding::kNone;
      made_again.state_in_files = false;
      const Memory& kept = memory(s, shared);
      const Memory& passes = memory(s, made_again);
      most = std::max(most, kept.kept() + kept.communication + passes.activations + passes.working);
    }
    return static_cast<int64_t>(static_cast<double>(most) * (1 + machine_.allocator));
  }

 private:
  const Memory& memory(size_t stage, const Request& request) {
    const auto key = std::make_tuple(stage, settings::recompute_text(request.recompute),
                                     static_cast<int>(request.sharding), request.state_in_files);
    auto found = memory_.find(key);
    if (found == memory_.end()) {
      found =
          memory_.emplace(key, memory_alone(request, stages_[stage], static_cast<int64_t>(stage)))
              .first;
    }
    return found->second;
  }

  const Machine& machine_;
  std::map<std::tuple<size_t, std::string, int, bool>, Memory> memory_;
  std::vector<arch::Stage> stages_;
  std::vector<Elements> elements_;
};

/// The fastest of what a split may be combined with that fits, else what needs the least.
Candidate best_of(const Request& split, const Machine& machine) {
  Bounds bounds(split, machine);
  Candidate best;
  bool first = true;
  const bool copies = split.mesh.copies() > 1;
  for (const RecomputeFlags& recompute : recomputes(split)) {
    for (const bool offload : {false, true}) {
      bool fitted = false;
      for (const Sharding sharding :
           {Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
        Candidate one{.request = split};
        one.request.sharding = copies ? sharding : Sharding::kNone;
        one.request.recompute = recompute;
        one.request.state_in_files = offload || split.state_in_files;
        one.bytes = bounds.bytes(one.request);
        one.fits = static_cast<double>(one.bytes) <= machine.memory_bytes;
        one.bound = bounds.seconds(one.request);
        const bool better = one.fits != best.fits ? one.fits
                            : one.fits            ? one.bound < best.bound
                                                  : one.bytes < best.bytes;
        if (first || better) best = one;
        first = false;
        fitted = one.fits;
        // What shares more is no faster.
        if (fitted || !copies) break;
      }
      if (fitted) break;  // nor is what is offloaded
    }
    // Nor what is made again.
    if (best.fits && best.request.sharding <= Sharding::kState && !best.request.state_in_files)
      break;
  }
  return best;
}

bool is_better(const Plan& a, const Plan& b) {
  if (a.fits() != b.fits()) return a.fits();
  return a.fits() ? a.step_s < b.step_s : a.memory() < b.memory();
}

}  // namespace

std::vector<Plan> search_plans(const Request& request, const Machine& machine,
                               const Search& search) {
  std::vector<Candidate> candidates;
  for (const Request& split : splits(request, search)) {
    try {
      candidates.push_back(best_of(split, machine));
    } catch (const UsageError&) {  // sizes that do not divide
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     if (a.fits != b.fits) return a.fits;
                     return a.fits ? a.bound < b.bound : a.bytes < b.bytes;
                   });
  std::vector<Plan> plans;
  for (const Candidate& candidate : candidates) {
    if (plans.size() >= search.limit) {
      const Plan& last = plans[search.limit - 1];
      if (last.fits() && (!candidate.fits || candidate.bound > last.step_s)) break;
      if (!last.fits() && plans.size() >= 2 * search.limit) break;
    }
    Plan plan = make_plan(candidate.request, machine);
    plan.simulated.spans.clear();
    plans.push_back(std::move(plan));
    std::stable_sort(plans.begin(), plans.end(), is_better);
  }
  if (plans.size() > search.limit) plans.resize(search.limit);
  return plans;
}

}  // namespace danlu::plan
