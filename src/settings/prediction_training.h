// settings/prediction_training.h: how layers that predict further ahead (multi-token prediction)
// are trained. Flags: docs/experts.md.
#pragma once
#include <cstdint>

namespace danlu::settings {

struct PredictionTraining {
  int64_t layers = 0;  ///< 0: they are no part of the network and stay as they are in files
  /// Factor of the mean of their losses, each over the targets of the step.
  double loss_factor = 0.1;
  /// The first reads the model's hidden states after the final norm (Megatron), or before it
  /// (MindSpeed).
  bool normed = true;

  double factor_of_each() const {
    return layers > 0 ? loss_factor / static_cast<double>(layers) : 0;
  }
  bool operator==(const PredictionTraining&) const = default;
};

}  // namespace danlu::settings
