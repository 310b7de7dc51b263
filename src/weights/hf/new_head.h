// weights/hf/new_head.h: the head of a reward model on a base that has none yet.
#pragma once
#include <memory>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// `source` with zeros for what it lacks of `config`'s score head, for an adapter to put its own in
/// their place; `source` itself where it has all. The zeros are F32. REQUIRES: config.score.
std::shared_ptr<const TensorSource> with_empty_head(std::shared_ptr<const TensorSource> source,
                                                    const arch::ModelConfig& config);

/// A reward model whose head of one number has a bias of 0, as a model whose head has none:
/// `config` is then one of the form arch::ScoreForm::kSequence. Nothing of others.
void drop_zero_bias(std::shared_ptr<const TensorSource>& source, arch::ModelConfig& config);

}  // namespace danlu::weights
