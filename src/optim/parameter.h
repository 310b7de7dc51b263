// optim/parameter.h: settings of the parameters that an optimizer is given.
#pragma once
#include <string>
#include <vector>

#include "parallel/parameter.h"

namespace danlu::optim {

/// Optimizers take live leaves, contiguous, f32|bf16|f16, and update them in place.
using parallel::Parameter;

/// Which parameters weight decay applies to.
enum class DecayRule {
  kAll,       ///< every parameter
  kMatrices,  ///< not biases, not norm weights (everything with fewer than two dimensions)
};

/// Parameters whose name matches `pattern` (base/pattern.h, searched) get these settings; the last
/// match wins.
struct GroupRule {
  std::string pattern;
  double lr_scale = 1.0;
  double weight_decay = -1.0;  ///< negative: the common one
};

struct GroupConfig {
  double weight_decay = 0.0;
  DecayRule decay_rule = DecayRule::kMatrices;
  std::vector<GroupRule> rules = {};
};

/// The settings of one parameter.
struct ParameterSettings {
  double lr_scale = 1.0;
  double weight_decay = 0.0;
};

/// One entry per parameter. Errors: UsageError for a pattern that is no regular expression or
/// matches nothing.
std::vector<ParameterSettings> settings_of(const std::vector<Parameter>& parameters,
                                           const GroupConfig& config);

/// "all" or "matrices". Errors: UsageError.
DecayRule decay_rule_from_name(const std::string& name);

}  // namespace danlu::optim
