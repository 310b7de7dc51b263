// base/not_here.h: what this version lacks, in the same words wherever somebody asks for it.
#pragma once
#include "base/error.h"

namespace danlu {

inline constexpr const char* kNoReinforcement =
    "this describes reinforcement learning (R1, GRPO, PPO), which is not part of this version: "
    "sampling answers, rewards for them and the update of the policy are missing";
inline const std::string kSftInsteadHint =
    tr("to train on the reference answers instead: handler AlpacaStyleInstructionHandler without "
       "dataset_additional_keys, then danlu sft");

}  // namespace danlu
