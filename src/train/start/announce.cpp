#include "train/start/announce.h"

#include <algorithm>

#include "base/log.h"
#include "device/memory.h"
#include "parallel/agree.h"
#include "train/report/planned_memory.h"

namespace danlu::train {
namespace {

/// Bytes that each rank may take: the least of all, read by each before any takes some. 0: unknown.
uint64_t memory_of_a_rank(const TrainConfig& config, const Ranks& ranks, const at::Device& device) {
  const auto sharers = static_cast<uint64_t>(config.place.local_size);
  const uint64_t own = device::available_memory(device, sharers);
  const std::vector<int64_t> of_all =
      parallel::numbers_of_all(ranks.all(), static_cast<int64_t>(own));
  return static_cast<uint64_t>(*std::min_element(of_all.begin(), of_all.end()));
}

/// `config` with `flags`, as if the line had said them.
TrainConfig with_recompute(const TrainConfig& config, const settings::RecomputeFlags& flags) {
  TrainConfig chosen = config;
  chosen.recompute = flags;
  chosen.args["recompute"] = flags.granularity;
  if (!flags.method.empty()) chosen.args["recompute_method"] = flags.method;
  if (flags.num_layers) chosen.args["recompute_num_layers"] = *flags.num_layers;
  if (flags.norm) chosen.args["recompute_norm"] = true;
  if (flags.activation_function) chosen.args["recompute_activation_function"] = true;
  return chosen;
}

}  // namespace

Announced announce(const BannerFacts& facts, const Ranks& ranks) {
  const uint64_t available = memory_of_a_rank(facts.config, ranks, facts.device);
  const settings::ObjectiveConfig& objective = facts.config.objective;
  const int64_t drawn =
      objective.draws() ? facts.data.longest_prompt + objective.policy.longest_answer() : 0;
  const int64_t longest = std::max(facts.data.lengths.max, drawn);
  Announced run{facts.config, plan_request(facts.config, facts.model, longest, facts.device)};
  run.request.patches = facts.data.most_patches;
  run.request.frame_patches = facts.data.most_frame_patches;
  // One of the processors may need more than others.
  run.request.widens = parallel::largest_of(ranks.all(), run.request.widens ? 1 : 0) > 0;
  log::info("{}", data_banner(facts, log::verbose()));
  // The file has all of it.
  if (!log::verbose()) log::write(log::Level::kDebug, data_banner(facts, /*all=*/true));
  if (facts.config.recompute.granularity == "auto") {
    const ChosenRecompute chosen = choose_recompute(facts.config, run.request, available);
    run.config = with_recompute(facts.config, chosen.flags);
    run.request.recompute = chosen.flags;
    log::info("{}", chosen.why);
  }
  log::info("{}", memory_line(run.request, available));
  if (run.config.dry_run) {
    log::info("{}", memory_table(run.request));
    log::info("dry run: flags, data and weights are as above; nothing was trained");
  } else if (run.config.checks_plan) {
    require_memory(run.config, run.request, available);
  }
  return run;
}

}  // namespace danlu::train
