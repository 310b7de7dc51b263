// train/objectives/weighted_tokens.h: cross entropy that leaves unlikely tokens alone.
#pragma once
#include <memory>

#include "train/objective.h"

namespace danlu::train {

/// The mean over targets of −p log p, where no gradient goes through p (DFT, arXiv 2508.05629;
/// ms-swift's enable_dft_loss, LLaMA-Factory's use_dft_loss). Its metric is token_acc.
std::shared_ptr<const Objective> weighted_tokens();

}  // namespace danlu::train
