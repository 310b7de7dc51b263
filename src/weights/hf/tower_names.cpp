#include "weights/hf/tower_names.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "weights/hf/renamed_source.h"

namespace danlu::weights {
namespace {

constexpr std::string_view kInAdapter = "base_model.model.";
constexpr std::pair<std::string_view, std::string_view> kNewerAndHub[] = {
    {"model.visual.", "visual."}, {"model.language_model.", "model."}};

/// `change` of the name, without what stands before it in an adapter.
template <typename Change>
std::string within_adapter(const std::string& name, const Change& change) {
  if (!name.starts_with(kInAdapter)) return change(name);
  return std::string(kInAdapter) + change(name.substr(kInAdapter.size()));
}

}  // namespace

std::string hub_name(const std::string& name) {
  return within_adapter(name, [](const std::string& own) {
    for (const auto& [newer, hub] : kNewerAndHub) {
      if (own.starts_with(newer)) return std::string(hub) + own.substr(newer.size());
      // The module itself, as entries of adapter_config.json have it.
      if (own + "." == newer) return std::string(hub.substr(0, hub.size() - 1));
    }
    return own;
  });
}

std::string newer_name(const std::string& name) {
  return within_adapter(name, [](const std::string& own) {
    for (const auto& [newer, hub] : kNewerAndHub) {
      if (own.starts_with(hub)) return std::string(newer) + own.substr(hub.size());
    }
    return own;
  });
}

bool speaks_of_newer_names(const std::string& pattern) {
  for (const char* part : {"language_model", "model.visual", "model\\.visual"}) {
    if (pattern.find(part) != std::string::npos) return true;
  }
  return false;
}

std::shared_ptr<const TensorSource> with_hub_names(std::shared_ptr<const TensorSource> source,
                                                   const arch::ModelConfig& config,
                                                   const std::filesystem::path& path) {
  if (!config.vision) return source;
  RenamedSource::Names names;
  bool changes = false;
  for (const TensorInfo& info : source->tensors()) {
    const std::string hub = hub_name(info.name);
    changes |= hub != info.name;
    const auto [at, is_new] = names.emplace(hub, info.name);
    if (is_new) continue;
    throw ModelError(tr("{}: {} and {} are one tensor under its older and its newer name",
                        path.string(), at->second, info.name),
                     tr("files of two saves may be mixed: keep one of them"));
  }
  if (!changes) return source;
  return std::make_shared<RenamedSource>(std::move(source), names);
}

}  // namespace danlu::weights
