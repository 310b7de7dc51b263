// train/visual_input.h: the pictures and videos of a batch as a model takes them.
#pragma once
#include <memory>

#include "arch/vision_config.h"
#include "data/batch.h"
#include "data/media_loader.h"
#include "media/processor.h"
#include "models/causal_lm.h"

namespace danlu::train {

/// How much of a batch goes through a pass. On a context axis a rank has the pictures that stand,
/// wholly or in part, at its own tokens.
models::PassSize size_of(const data::Batch& batch);

/// Their memory as a tensor, f32 [patches, patch_values].
at::Tensor tensor_of(data::MediaPixels made);

/// Errors: ModelError naming the key of preprocessor_config.json that is not the tower's: a patch
/// of other sizes.
void require_fitting_processor(const arch::VisionConfig& vision,
                               const media::ImageProcessor& processor);

/// How add_visuals takes a batch's pixels.
struct PixelUse {
  double* waited_s = nullptr;  ///< gets the seconds waited for them, added; may be nullptr
  bool again = false;          ///< as data::PendingPixels::take
};

/// Gives `input` the pictures of `batch` and rotary positions in time, height and width, if the
/// model has a vision tower and the batch pictures; otherwise leaves it as it is. Pixels are waited
/// for where a pass begins in `chunk` of the model's stage. dropout_seed: 0: no dropout. Errors:
/// DataError naming the row whose picture cannot be read; ModelError for pictures that the model's
/// tower does not take.
void add_visuals(const models::CausalLM& model, const data::Batch& batch, uint64_t dropout_seed,
                 int64_t chunk, models::ForwardInput& input, const PixelUse& use = {});

}  // namespace danlu::train
