#include "weights/lora/head_modules.h"

#include <algorithm>
#include <string>
#include <vector>

namespace danlu::weights {
namespace {

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

/// "classifier" of "classifier.dense" and "classifier.out_proj"; "" where they have no such module.
std::string whole_head(const arch::EncoderConfig& encoder) {
  const std::string module = arch::module_of(encoder.score);
  return encoder.dense.starts_with(module + ".") && module != encoder.score ? module : "";
}

}  // namespace

void split_head_modules(PeftConfig& peft, const arch::ModelConfig& config) {
  if (!config.encoder || !config.score) return;
  const std::string whole = whole_head(*config.encoder);
  std::vector<std::string> names;
  for (const std::string& name : peft.modules_to_save) {
    if (!whole.empty() && name == whole) {
      add_once(names, config.encoder->dense);
      add_once(names, config.encoder->score);
    } else if (name != "score") {
      add_once(names, name);
    }
  }
  peft.modules_to_save = names;
}

void join_head_modules(PeftConfig& peft, const arch::ModelConfig& config) {
  if (!config.encoder || !config.score) return;
  const std::string whole = whole_head(*config.encoder);
  if (whole.empty()) return;
  std::vector<std::string> names;
  for (const std::string& name : peft.modules_to_save) {
    const bool is_part = name == config.encoder->dense || name == config.encoder->score;
    add_once(names, is_part ? whole : name);
  }
  peft.modules_to_save = names;
}

}  // namespace danlu::weights
