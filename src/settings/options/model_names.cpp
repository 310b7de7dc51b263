#include "settings/options/model_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "base/checkpoint_name.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "data/megatron/preference_datasets.h"
#include "data/readers/dataset_name.h"
#include "hub/missing.h"
#include "settings/options/registered_rows.h"

namespace danlu::settings {
namespace {

struct HubName {
  const char* name;
  const char* huggingface;
  const char* modelscope;
};

#include "settings/options/model_aliases.inc"

bool looks_like_hub_id(const std::string& name) {
  return std::count(name.begin(), name.end(), '/') == 1 && name.front() != '/' &&
         name.front() != '.' && name.back() != '/';
}

/// Whether somebody means a place on this machine.
bool is_like_a_path(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.front() == '.' || name.front() == '~')
    return true;
  const fs::path path = name;
  std::error_code unknown;
  if (std::distance(path.begin(), path.end()) > 1 && fs::is_directory(*path.begin(), unknown))
    return true;
  return std::any_of(path.begin(), path.end(), [](const fs::path& part) {
    return part.empty() || step_of_checkpoint(part.string()).has_value();
  });
}

std::optional<HubName> known(std::span<const HubName> table, const std::string& name) {
  for (const HubName& entry : table) {
    if (name == entry.name) return entry;
  }
  return std::nullopt;
}

std::string nearest_in(std::span<const HubName> table, const std::string& name) {
  std::vector<std::string> names;
  for (const HubName& entry : table) names.push_back(entry.name);
  const auto near = nearest_name(name, names);
  return near ? tr("did you mean '{}'? ", *near) : std::string();
}

}  // namespace

fs::path locate_model(const std::string& name, const std::string& flag) {
  if (fs::exists(name)) return name;
  std::vector<std::string> looked = {name};
  hub::NamesOnHubs names;
  const auto alias = known(kModelNames, name);
  if (alias || looks_like_hub_id(name)) {
    names = alias ? hub::NamesOnHubs{alias->huggingface, alias->modelscope}
                  : hub::NamesOnHubs{name, name};
    if (const auto found = hub::find_or_fetch(hub::Kind::kModel, names, looked)) {
      log::info("model {}: {}", name, found->string());
      return *found;
    }
  }
  throw ModelError(
      tr("[{}] '{}' is no directory{}; looked in {}", flag, name,
         alias ? tr(" (it means {})", alias->huggingface) : "", fmt::join(looked, ", ")),
      (alias ? "" : did_you_mean_path(name) + nearest_in(kModelNames, name)) +
          hub::how_to_fetch(hub::Kind::kModel, names));
}

fs::path locate_beside(const std::string& name, const std::string& flag) {
  std::error_code unknown;
  if (fs::exists(name, unknown) || !is_like_a_path(name)) return locate_model(name);
  const std::string near = did_you_mean_path(name);
  throw ModelError(tr("[train] {} {}: there is no such directory", flag, name),
                   near.empty() ? tr("danlu download fetches a model of a hub first") : near);
}

fs::path located_if_named(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error) || (!known(kModelNames, name) && !looks_like_hub_id(name)))
    return name;
  // A path in which a directory is mistyped looks the same.
  for (const char* ending : {".json", ".jsonl", ".model", ".gguf", ".safetensors", ".bin", ".pt"}) {
    if (name.ends_with(ending)) return name;
  }
  return locate_model(name);
}

std::string locate_dataset(const std::string& name, const fs::path& cache_dir) {
  const std::string bare = data::parse_dataset_name(name).path, rest = name.substr(bare.size());
  std::error_code error;
  const auto alias = known(kDatasetNames, bare);
  // Files that were tokenised beforehand go by what their names begin with.
  if (data::samples_exist(bare) || fs::exists(bare + ".idx", error)) return name;
  if (fs::exists(bare, error) || (!alias && !looks_like_hub_id(bare))) return name;
  for (const char* ending :
       {".json", ".jsonl", ".csv", ".tsv", ".parquet", ".txt", ".gz", ".bin"}) {
    if (!alias && bare.ends_with(ending)) return name;  // a file whose name is mistyped
  }
  std::vector<std::string> looked;
  const hub::NamesOnHubs names = alias ? hub::NamesOnHubs{alias->huggingface, alias->modelscope}
                                       : hub::NamesOnHubs{bare, bare};
  const auto found = hub::find_or_fetch(hub::Kind::kDataset, names, looked);
  if (found) {
    log::info("data set {}: {}", bare, found->string());
    if (alias && bare == "blossom-math-zh")
      return joined_blossom_math(*found, cache_dir).string() + rest;
    return found->string() + rest;
  }
  if (!alias) return name;
  throw DataError(tr("[data] '{}' is no file{}; looked in {}", bare,
                     tr(" (it means {})", alias->modelscope), fmt::join(looked, ", ")),
                  hub::how_to_fetch(hub::Kind::kDataset, names));
}

}  // namespace danlu::settings
