// optim/loss_scaler.h: dynamic loss scaling for fp16, as DeepSpeed and Megatron do it.
#pragma once
#include <cstdint>

#include "base/json.h"

namespace danlu::optim {

struct LossScaleConfig {
  double fixed_scale = 0;          ///< > 0: constant; 0: dynamic
  double initial_scale = 65536.0;  ///< 2^16
  int64_t window = 1000;           ///< good steps after which the scale doubles
  int64_t hysteresis = 2;          ///< overflows in a window before the scale halves
  double min_scale = 1.0;
  double max_scale = 16777216.0;  ///< 2^24: larger ones only lose steps to overflow
  /// Errors: UsageError.
  void validate() const;
};

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
