#include "weights/hf/tower_file.h"

#include <set>
#include <utility>

#include "base/error.h"
#include "base/lfs_pointer.h"
#include "weights/convert/joined_source.h"
#include "weights/hf/tower_names.h"
#include "weights/hf/wrapped_names.h"
#include "weights/lora/adapter_places.h"

namespace danlu::weights {
namespace {

/// Null where there is none.
std::shared_ptr<const TensorSource> open_tower_file(const std::filesystem::path& adapter) {
  const std::filesystem::path file = adapter / kTowerFile;
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(file, unknown)) return nullptr;
  refuse_lfs_pointer(file, "the weights");
  return without_wrappers(open_safetensors(file), file);
}

}  // namespace

std::vector<std::string> modules_in_tower_file(const std::filesystem::path& adapter) {
  const auto tower = open_tower_file(adapter);
  if (!tower) return {};
  std::set<std::string> modules;
  for (const TensorInfo& info : tower->tensors()) {
    const auto name = parse_adapter_name(info.name);
    const bool is_whole =
        name && (name->part == AdapterPart::kSavedModule || name->part == AdapterPart::kBias);
    if (!is_whole) {
      throw ModelError(tr("{}: {} is no weight of a vision tower that was trained beside adapters",
                          (adapter / kTowerFile).string(), info.name),
                       tr("its names begin with base_model.model. and end in .weight or .bias"));
    }
    modules.insert(hub_name(base_module(*name)));
  }
  return {modules.begin(), modules.end()};
}

std::shared_ptr<const TensorSource> with_tower_file(std::shared_ptr<const TensorSource> source,
                                                    const std::filesystem::path& adapter) {
  auto tower = open_tower_file(adapter);
  if (!tower) return source;
  for (const TensorInfo& info : tower->tensors()) {
    if (!source->find(info.name)) continue;
    throw ModelError(tr("{}: {} is in {} too", (adapter / kTowerFile).string(), info.name,
                        source->file_of(info.name).filename().string()),
                     tr("files of two saves may be mixed: keep one of them"));
  }
  return join_tensors(std::move(source), std::move(tower));
}

}  // namespace danlu::weights
