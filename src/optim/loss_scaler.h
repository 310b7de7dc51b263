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
  /// Call once a step that is taken or skipped: an overflow means that it is skipped.
  void update(bool overflow);
  /// No step has succeeded yet: where the scale belongs is not known, and an overflow says only
  /// that it is lower.
  bool is_searching() const { return dynamic_ && !has_succeeded_; }
  /// Halves the scale, whatever the hysteresis, for another try of the same step. False where it is
  /// at its minimum. REQUIRES: is_searching().
  bool search_lower();
  Json state() const;
  /// Errors: DataError if a key is missing.
  void load_state(const Json& state);

 private:
  LossScaleConfig config_;
  bool dynamic_ = false;
  double scale_ = 1.0;
  int64_t steps_since_overflow_ = 0;
  int64_t hysteresis_left_ = 0;
  bool has_succeeded_ = false;
};

}  // namespace danlu::optim
