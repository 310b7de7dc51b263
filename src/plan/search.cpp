// Which plans are tried, and how most of them are left without being simulated: a bound of the
// time tells.
#include <algorithm>
#include <string>

#include "base/divisors.h"
#include "base/error.h"
#include "plan/bounds.h"
#include "plan/estimate.h"

namespace danlu::plan {
namespace {

using settings::RecomputeFlags, settings::Sharding;

/// Samples that one device holds well are not cut; longer ones may be.
constexpr int64_t kLongSample = 16384;

std::vector<settings::ContextShape> context_shapes(const Request& request, const Search& search) {
  if (!request.mesh.context.is_alone() || request.tokens < kLongSample)
    return {request.mesh.context};
  std::vector<settings::ContextShape> all;
  for (const int64_t size : divisors(search.world, 16)) all.push_back({.ulysses = size});
  return all;
}

bool shares_heads(const Request& request) {
  const int64_t tensor = request.mesh.tensor;
  return settings::can_share_heads(request.model.num_heads / tensor,
                                   std::max<int64_t>(1, request.model.num_kv_heads / tensor),
                                   request.mesh.context.ulysses);
}

/// How many ranks experts may be divided among, of `copies` that have other samples.
std::vector<int64_t> expert_axis_sizes(const arch::ModelConfig& model, int64_t copies) {
  if (!model.has_experts()) return {1};
  std::vector<int64_t> sizes = divisors(copies, model.experts.count);
  std::erase_if(sizes, [&](int64_t size) { return model.experts.count % size != 0; });
  return sizes;
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
            if (!shares_heads(one)) continue;
            for (const int64_t ep : expert_axis_sizes(request.model, dp)) {
              one.mesh.expert = ep;
              all.push_back(one);
            }
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
  double bound = 0;   ///< seconds that a step takes at least, of what fits
  int64_t bytes = 0;  ///< of the fullest rank, allocator included
  bool fits = false;
};

/// The fastest of what a split may be combined with that fits, else what needs the least.
Candidate best_of(const Request& split, const Machine& machine) {
  Bounds bounds(split, machine);
  Candidate best;
  bool first = true;
  const bool copies = split.mesh.model_copies() > 1;
  for (const RecomputeFlags& recompute : recomputes(split)) {
    for (const bool offload : {false, true}) {
      if (offload && (machine.is_host || !split.adamw.is_plain()))
        break;                // there is nowhere else to update
      bool is_least = false;  // shares state alone, and fits
      for (const Sharding sharding :
           {Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
        Candidate one{.request = split};
        one.request.sharding = copies ? sharding : Sharding::kNone;
        one.request.recompute = recompute;
        one.request.state_in_files = offload || split.state_in_files;
        one.bytes = bounds.bytes(one.request);
        one.fits = static_cast<double>(one.bytes) <= machine.memory_bytes &&
                   bounds.host_bytes(one.request) <= machine.host_bytes;
        if (one.fits) one.bound = bounds.seconds(one.request);
        const bool better = one.fits != best.fits ? one.fits
                            : one.fits            ? one.bound < best.bound
                                                  : one.bytes < best.bytes;
        if (first || better) best = one;
        first = false;
        is_least = one.fits && one.request.sharding <= Sharding::kState;
        // What shares more is no faster.
        if (one.fits || !copies) break;
      }
      // Nor is what is offloaded, unless it shares less; nor, beside all that is kept, what is made
      // again. Which way of that is the fastest, the bound tells.
      if (is_least && !offload && recompute == RecomputeFlags{}) return best;
      if (is_least) break;
    }
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
