// settings/model_setup.h: what a run does to its model before it trains it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace danlu::settings {

/// What of a layer is computed again in backward instead of being kept.
enum class Recompute { kNone, kSelective, kFull };

/// Low-rank adapters on linear layers (PEFT's LoRA, rsLoRA, DoRA).
struct LoraConfig {
  int64_t rank = 8;
  double alpha = 32;
  double dropout = 0.0;
  bool rslora = false, dora = false;
  /// "all-linear", or names matched as PEFT does (equal to the module name or its end after a dot),
  /// or one regex.
  std::vector<std::string> targets{"all-linear"};
  std::map<std::string, int64_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;
  /// Modules trained whole beside the adapters (their own copy; a tied pair is thereby untied).
  std::vector<std::string> modules_to_save;
  std::vector<std::string> exclude = {};          ///< module names left out, matched like targets
  std::vector<int64_t> layers_to_transform = {};  ///< only these layers; empty: all
};

}  // namespace danlu::settings
