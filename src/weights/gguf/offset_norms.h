// weights/gguf/offset_norms.h: norms that scale by 1 + w, of which GGUF files hold 1 + w. Internal
// to weights, and to who writes such a file.
#pragma once
#include <memory>

#include "arch/model_config.h"
#include "weights/gguf/gguf_format.h"
#include "weights/tensor_source.h"

namespace danlu::weights::gguf {

/// `source`, which has the parameters of `config`, with such norms as files hold them: F32, one
/// added. The source itself for a model without them. 1 + w has no room for the last bits of a
/// small w: where some number would come back as another, all of them are added to `metadata`, the
/// file's, for with_one_taken; llama.cpp passes that key over. Reads the norms.
std::shared_ptr<const TensorSource> with_one_added(std::shared_ptr<const TensorSource> source,
                                                   const arch::ModelConfig& config,
                                                   Metadata& metadata);

/// The way back, of a source under the parameters' names. `metadata`: the file's.
std::shared_ptr<const TensorSource> with_one_taken(std::shared_ptr<const TensorSource> source,
                                                   const arch::ModelConfig& config,
                                                   const Metadata& metadata);

}  // namespace danlu::weights::gguf
