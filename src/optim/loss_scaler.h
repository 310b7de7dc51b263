// optim/loss_scaler.h: dynamic loss scaling for fp16, as DeepSpeed and Megatron do it.
#pragma once
#include <cstdint>

#include "base/json.h"
#include "settings/optimizer.h"

namespace danlu::optim {

using settings::LossScaleConfig;

/// The factor the loss is multiplied with before backward, adapted to overflows.
class LossScaler {
 public:
  /// Scale 1 for ever: fp32 and bf16.
  LossScaler();
  explicit LossScaler(const LossScaleConfig& config);
  double scale() const { return scale_; }
  bool dynamic() const { return dynamic_; }
  /// Call once a step. An overflow means the step is to be skipped.
  void update(bool overflow);
  Json state() const;
  /// Errors: DataError if a key is missing.
  void load_state(const Json& state);

 private:
  LossScaleConfig config_;
  bool dynamic_ = false;
  double scale_ = 1.0;
  int64_t steps_since_overflow_ = 0;
  int64_t hysteresis_left_ = 0;
};

}  // namespace danlu::optim
