// train/objectives/weighted_tokens.h: cross entropy whose tokens count by how sure the model is.
#pragma once
#include <memory>

#include "train/objective.h"
#include "train/objectives/reference.h"

namespace danlu::train {

/// The mean over targets of −p log p, where no gradient goes through p (DFT, arXiv 2508.05629;
/// ms-swift's enable_dft_loss, LLaMA-Factory's use_dft_loss). Its metric is token_acc.
std::shared_ptr<const Objective> weighted_tokens();

/// The mean over targets of −(H/3)^power log p, H the entropy of the 20 likeliest tokens as a
/// distribution of their own, through which no gradient goes (LLaMA-Factory's use_eaft_loss). Its
/// metrics are token_acc and entropy, the mean of H. REQUIRES: the device computes by ATen.
std::shared_ptr<const Objective> entropy_weighted_tokens(double power);

/// The mean over targets of −p log p + weight KL(Q‖P), Q the distribution of `reference`
/// (LLaMA-Factory's use_asft_loss). Its metric is divergence. reference: on the
/// mesh of the policy; its passes come before the step's. Collective where its parameters are
/// shared.
std::shared_ptr<const Objective> anchored_tokens(double weight,
                                                 std::shared_ptr<const FrozenModel> reference);

}  // namespace danlu::train
