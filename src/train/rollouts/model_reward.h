// train/rollouts/model_reward.h: a reward model as what judges answers.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eval/rewards/reward.h"
#include "train/objectives/reference.h"

namespace danlu::train {

/// What the head of `judge` gives at the last token of prompt and answer, taken as the ids that
/// were drawn. A number that is not finite is a score that is missing, and a warning says so.
/// tail: what the template puts after the token that ends an answer, where the judge was taught to
/// look; it follows answers that are ended or have a missing_end.
/// policy: the model that is trained, on the same mesh, which outlives the reward as its links do.
/// scores() is collective over all ranks, of which those of one model give the same answers; a rank
/// without answers takes part.
/// Errors: InternalError unless the judge has a head of one number.
std::unique_ptr<eval::Reward> model_reward(const std::string& name,
                                           std::shared_ptr<const FrozenModel> judge,
                                           const models::CausalLM& policy, StageLinks& links,
                                           const std::vector<int32_t>& tail = {});

/// What `reward` says on the first rank of the group, which holds one model together: a program is
/// asked once. scores() is collective over the group.
std::unique_ptr<eval::Reward> reward_of_first_rank(std::unique_ptr<eval::Reward> reward,
                                                   const parallel::Group& group);

}  // namespace danlu::train
