#include "weights/hf/body_names.h"

#include <string>
#include <utility>
#include <vector>

#include "weights/hf/renamed_source.h"

namespace danlu::weights {
namespace {

/// What TensorFlow's BERT calls gamma and beta.
std::string with_new_norm_name(const std::string& name) {
  for (const auto& [old, now] : {std::pair(".LayerNorm.gamma", ".LayerNorm.weight"),
                                 std::pair(".LayerNorm.beta", ".LayerNorm.bias")}) {
    if (name.ends_with(old)) return name.substr(0, name.size() - std::string(old).size()) + now;
  }
  return name;
}

/// The parameters, and what an encoder's head would read of its files: it may come later.
std::vector<std::string> names_of_body(const arch::ModelConfig& config) {
  std::vector<std::string> names;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) names.push_back(spec.name);
  if (config.encoder && !config.score) {
    for (const char* part : {".weight", ".bias"}) names.push_back(config.encoder->dense + part);
  }
  return names;
}

}  // namespace

std::shared_ptr<const TensorSource> with_body_names(std::shared_ptr<const TensorSource> source,
                                                    const arch::ModelConfig& config) {
  std::string body = arch::family_named(config.family).body;
  if (body.empty()) body = "model.";
  RenamedSource::Names names;
  bool changes = false;
  for (const TensorInfo& info : source->tensors()) {
    const std::string name = config.encoder ? with_new_norm_name(info.name) : info.name;
    changes |= name != info.name;
    names.emplace(name, info.name);
  }
  for (const std::string& name : names_of_body(config)) {
    if (!name.starts_with(body) || names.count(name) > 0) continue;
    const auto bare = names.find(name.substr(body.size()));
    if (bare == names.end()) continue;
    const std::string in_file = bare->second;
    names.erase(bare);
    names.emplace(name, in_file);
    changes = true;
  }
  if (!changes) return source;
  return std::make_shared<RenamedSource>(std::move(source), names);
}

bool lacks_head(const TensorSource& source, const arch::ModelConfig& config) {
  if (config.tie_embeddings || config.score || config.encoder) return false;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.role == arch::Role::kHead && source.find(spec.name)) return false;
  }
  return true;
}

}  // namespace danlu::weights
