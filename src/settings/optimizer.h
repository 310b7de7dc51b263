// settings/optimizer.h: what AdamW and the loss scale are told.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace danlu::settings {

/// Which parameters weight decay applies to.
enum class DecayRule {
  kAll,       ///< every parameter
  kMatrices,  ///< not biases, not norm weights (everything with fewer than two dimensions)
};

/// "all" or "matrices". Errors: UsageError.
DecayRule decay_rule_from_name(const std::string& name);
std::string decay_rule_name(DecayRule rule);

/// Parameters whose name matches `pattern` (base/pattern.h, searched) get these settings; the last
/// match wins.
struct GroupRule {
  std::string pattern;
  double lr_scale = 1.0;
  double weight_decay = -1.0;         ///< negative: the common one
  std::string flag = "param_groups";  ///< what the user wrote it in
  bool may_match_nothing = false;
};

struct GroupConfig {
  double weight_decay = 0.0;
  DecayRule decay_rule = DecayRule::kMatrices;
  std::vector<GroupRule> rules = {};
};

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  GroupConfig groups = {};
  /// Errors: UsageError naming the field.
  void validate() const;
};

/// The factor that the loss is multiplied with before backward, in fp16.
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

}  // namespace danlu::settings
