#include "weights/hf/body_names.h"

#include <utility>

#include "weights/hf/renamed_source.h"

namespace danlu::weights {

std::shared_ptr<const TensorSource> with_body_names(std::shared_ptr<const TensorSource> source,
                                                    const arch::ModelConfig& config) {
  std::string body = arch::family_named(config.family).body;
  if (body.empty()) body = "model.";
  RenamedSource::Names names;
  for (const TensorInfo& info : source->tensors()) names.emplace(info.name, info.name);
  bool changes = false;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (!spec.name.starts_with(body) || names.count(spec.name) > 0) continue;
    const auto bare = names.find(spec.name.substr(body.size()));
    if (bare == names.end()) continue;
    names.erase(bare);
    names.emplace(spec.name, spec.name.substr(body.size()));
    changes = true;
  }
  if (!changes) return source;
  return std::make_shared<RenamedSource>(std::move(source), names);
}

bool lacks_head(const TensorSource& source, const arch::ModelConfig& config) {
  if (config.tie_embeddings || config.score) return false;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.role == arch::Role::kHead && source.find(spec.name)) return false;
  }
  return true;
}

}  // namespace danlu::weights
