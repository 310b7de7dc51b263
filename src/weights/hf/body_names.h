// weights/hf/body_names.h: files that were saved from a model without its head, whose class puts a
// name before all others: "h.0.…" where the model with its head has "transformer.h.0.…".
#pragma once
#include <memory>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// `source`, its tensors under the names of arch::parameters_of, also of files without their
/// beginning (arch::Family::body, else "model."), or with the old names of norms in encoders. The
/// source itself where nothing changes.
std::shared_ptr<const TensorSource> with_body_names(std::shared_ptr<const TensorSource> source,
                                                    const arch::ModelConfig& config);

/// Whether a model that needs a head of its own for the vocabulary has none in its files, as models
/// that were saved to give vectors of texts.
bool lacks_head(const TensorSource& source, const arch::ModelConfig& config);

}  // namespace danlu::weights
