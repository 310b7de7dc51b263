#include "settings/options/model_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "data/readers/dataset_name.h"
#include "settings/options/registered_rows.h"

namespace danlu::settings {
namespace model_names_detail {

struct HubName {
  const char* name;
  const char* huggingface;
  const char* modelscope;
};

#include "settings/options/model_aliases.inc"

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::path home() { return variable("HOME").empty() ? fs::path(".") : fs::path(variable("HOME")); }

/// Roots of the Hugging Face cache, most specific variable first.
fs::path huggingface_cache() {
  if (!variable("HF_HUB_CACHE").empty()) return variable("HF_HUB_CACHE");
  if (!variable("HF_HOME").empty()) return fs::path(variable("HF_HOME")) / "hub";
  return home() / ".cache" / "huggingface" / "hub";
}

fs::path modelscope_cache() {
  if (!variable("MODELSCOPE_CACHE").empty()) return variable("MODELSCOPE_CACHE");
  return home() / ".cache" / "modelscope" / "hub";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// hub/models--org--name/snapshots/<revision>: the one refs/main names, else the newest.
std::optional<fs::path> snapshot_of(const fs::path& repository) {
  std::error_code error;
  if (fs::exists(repository / "refs" / "main", error)) {
    std::string revision = read_file(repository / "refs" / "main");
    while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back())))
      revision.pop_back();
    if (fs::is_directory(repository / "snapshots" / revision, error))
      return repository / "snapshots" / revision;
  }
  std::optional<fs::path> newest;
  for (const auto& entry : fs::directory_iterator(repository / "snapshots", error)) {
    if (!newest || fs::last_write_time(entry.path()) > fs::last_write_time(*newest))
      newest = entry.path();
  }
  return newest;
}

/// Looks both caches through; every place looked at is appended to `looked`.
std::optional<fs::path> find_in_caches(const std::string& kind, const std::string& hf_id,
                                       const std::string& ms_id, std::vector<std::string>& looked) {
  std::error_code error;
  if (!hf_id.empty()) {
    const fs::path repository = huggingface_cache() / (kind + "--" + replaced(hf_id, "/", "--"));
    looked.push_back(repository.string());
    if (const auto snapshot = snapshot_of(repository)) return snapshot;
  }
  if (ms_id.empty()) return std::nullopt;
  // ModelScope writes dots of names as ___ in newer versions.
  for (const fs::path& root : {modelscope_cache(), modelscope_cache() / kind}) {
    for (const std::string& id : {ms_id, replaced(ms_id, ".", "___")}) {
      looked.push_back((root / id).string());
      if (fs::is_directory(root / id, error)) return root / id;
    }
  }
  return std::nullopt;
}

bool looks_like_hub_id(const std::string& name) {
  return std::count(name.begin(), name.end(), '/') == 1 && name.front() != '/' &&
         name.front() != '.' && name.back() != '/';
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

}  // namespace model_names_detail

fs::path locate_model(const std::string& name) {
  using namespace model_names_detail;
  if (fs::exists(name)) return name;
  std::vector<std::string> looked = {name};
  const auto alias = known(kModelNames, name);
  if (alias || looks_like_hub_id(name)) {
    const auto found = find_in_caches("models", alias ? alias->huggingface : name,
                                      alias ? alias->modelscope : name, looked);
    if (found) {
      log::info("model {}: {}", name, found->string());
      return *found;
    }
  }
  throw ModelError(
      tr("[model] '{}' is no directory{}; looked in {}", name,
         alias ? tr(" (it means {})", alias->huggingface) : "", fmt::join(looked, ", ")),
      tr("{}Danlu downloads nothing: fetch the model with your hub's own tool, then give its "
         "directory",
         (alias ? "" : did_you_mean_path(name) + nearest_in(kModelNames, name))));
}

std::string locate_dataset(const std::string& name, const fs::path& cache_dir) {
  using namespace model_names_detail;
  const std::string bare = data::parse_dataset_name(name).path, rest = name.substr(bare.size());
  std::error_code error;
  const auto alias = known(kDatasetNames, bare);
  if (fs::exists(bare, error) || (!alias && !looks_like_hub_id(bare))) return name;
  std::vector<std::string> looked;
  const auto found = find_in_caches("datasets", alias ? alias->huggingface : bare,
                                    alias ? alias->modelscope : bare, looked);
  if (found) {
    log::info("data set {}: {}", bare, found->string());
    if (alias && bare == "blossom-math-zh")
      return joined_blossom_math(*found, cache_dir).string() + rest;
    return found->string() + rest;
  }
  if (!alias) return name;
  throw DataError(tr("[data] '{}' is no file{}; looked in {}", bare,
                     tr(" (it means {})", alias->modelscope), fmt::join(looked, ", ")),
                  tr("Danlu downloads nothing: fetch the data set with your hub's own tool, then "
                     "give its path"));
}

}  // namespace danlu::settings
