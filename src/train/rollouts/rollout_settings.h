// train/rollouts/rollout_settings.h: how a rollout is made, and what with.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "data/batch_stream.h"
#include "eval/rewards/reward.h"
#include "models/causal_lm.h"
#include "settings/reinforcement.h"
#include "text/tokenizer.h"
#include "train/objectives/reference.h"
#include "train/rollouts/conversations.h"
#include "train/rollouts/critic.h"
#include "train/rollouts/drawing_ranks.h"
#include "train/rollouts/generator.h"
#include "train/stage_links.h"

namespace danlu::train {

struct RolloutSettings {
  settings::Reinforcement told;
  data::BatchStreamOptions batches;  ///< of a step; samples are answers
  std::vector<text::TokenId> stop_ids;
  std::optional<text::TokenId> answer_end;  ///< what ends an answer in the template
  uint64_t seed = 0;
  /// Gets a line for each answer, to held-out prompts too (JSON), of which the first is shown;
  /// empty: nobody looks at them.
  std::filesystem::path samples_file;
  /// The run's directory; empty: what was drawn is kept nowhere. With `origin`, what answers depend
  /// on beside weights.
  std::filesystem::path run_directory;
  std::string origin;
  /// Requests that are given to the generator together, and whose answers are written down
  /// together: the same ones in a run that goes on, so that its bits are.
  int64_t answers_together = 512;
  /// The rollouts of the whole run, the last of which leaves no answer unfinished; 0: nobody knows.
  int64_t rollouts = 0;
  int64_t steps = 0;     ///< of the whole run; 0: nobody knows
  Json state = nullptr;  ///< as RolloutStream::state() gave it

  bool draws_in_parts() const { return told.parts > 1; }
  int64_t samples_of_step() const { return batches.global_batch_size(); }
  /// Steps between two rollouts, passes over the same answers among them.
  int64_t steps_of_rollout() const { return told.steps * told.iterations; }
  int64_t prompts_of_rollout() const { return told.steps * samples_of_step() / told.answers; }
  /// The part [begin, end) of [first, first + count) that falls to this rank of the data axis.
  std::pair<int64_t, int64_t> share_of(int64_t first, int64_t count) const {
    const int64_t rank = batches.dp_rank, ranks = batches.dp_size;
    return {first + count * rank / ranks, first + count * (rank + 1) / ranks};
  }
};

/// What a rollout is made with; outlives the stream.
struct RolloutParts {
  models::CausalLM& policy;
  StageLinks& links;
  std::shared_ptr<const data::SampleSource> prompts;  ///< SampleKind::kPrompts
  data::BatchStream::Order order;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Generator generate;
  std::vector<std::shared_ptr<const eval::Reward>> rewards;
  /// Where rewards of tokens need one (PPO); nullptr: the policy without adapters.
  std::shared_ptr<const FrozenModel> reference = {};
  /// Learns from a step's answers before the policy does; nullptr: answers are compared with each
  /// other.
  Critic* critic = nullptr;
  /// nullptr: of a mesh whose ranks of one model stand on the tensor axis alone.
  std::shared_ptr<const DrawingRanks> ranks = {};
  WithWeights with_weights = {};  ///< empty: of the policy as it is
  /// With what answers are talked on; nullptr: an answer is all there is.
  std::shared_ptr<const Conversations> conversations = {};

  /// The prompt of this number in the order.
  data::Sample prompt(int64_t number) const { return prompts->get(order(number)); }
};

}  // namespace danlu::train
