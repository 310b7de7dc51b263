#include "data/readers/dataset_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/nearest_name.h"

namespace danlu::data {
namespace {

constexpr const char* kInfoFile = "dataset_info.json";

/// Errors: UsageError naming the key that is none of `known`, and the nearest of these.
void require_known_keys(const Json& object, const std::vector<std::string>& known,
                        const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto nearest = nearest_name(key, known);
    throw UsageError(tr("{}: unknown key \"{}\"", where, key),
                     nearest ? tr("did you mean \"{}\"?", *nearest)
                             : tr("known: {}", fmt::format("{}", fmt::join(known, ", "))));
  }
}

/// Errors: UsageError for another value than LLaMA-Factory's, in an object or without.
void check_entry(const Json& entry, const std::string& where) {
  require_known_keys(entry,
                     {"file_name", "formatting", "columns", "tags", "split", "num_samples",
                      "ranking", "subset", "folder", "hf_hub_url", "ms_hub_url", "om_hub_url",
                      "script_url", "cloud_file_name", "file_sha1"},
                     where);
  for (const char* key : {"columns", "tags"}) {
    const auto found = entry.find(key);
    if (found == entry.end() || found->is_null() || found->is_object()) continue;
    throw UsageError(tr("{}: \"{}\" must be an object, got {}", where, key, found->type_name()));
  }
  const std::string formatting = json_get<std::string>(entry, "formatting").value_or("alpaca");
  const std::vector<std::string> known = {"alpaca", "sharegpt", "openai"};
  if (std::find(known.begin(), known.end(), formatting) != known.end()) return;
  const auto nearest = nearest_name(formatting, known);
  throw UsageError(tr("{}: unknown formatting \"{}\"", where, formatting),
                   nearest ? tr("did you mean \"{}\"?", *nearest)
                           : tr("known: {}", fmt::format("{}", fmt::join(known, ", "))));
}

/// dataset_info.json calls roles as MindSpeed's map keys do; only the format's name differs.
FormatOptions format_of(const Json& entry) {
  FormatOptions format;
  const std::string formatting = json_get<std::string>(entry, "formatting").value_or("alpaca");
  format.map_keys = json_get<Json>(entry, "columns").value_or(Json::object());
  if (const auto tags = json_get<Json>(entry, "tags")) format.map_keys["tags"] = *tags;
  format.map_is_whole = entry.contains("columns");
  format.ranking = json_get<bool>(entry, "ranking").value_or(false);
  if (formatting == "alpaca" && !format.ranking && format.map_keys.contains("prompt") &&
      !format.map_keys.contains("response") && !format.map_keys.contains("query") &&
      !format.map_keys.contains("kto_tag")) {
    // LLaMA-Factory's way to declare a pre-training text column.
    format.json_keys = {format.map_keys["prompt"].get<std::string>()};
    format.map_keys = Json::object();
  } else if (formatting == "sharegpt" || formatting == "openai") {
    format.handler_name =
        formatting == "openai" ? "OpenAIInstructionHandler" : "SharegptStyleInstructionHandler";
  } else if (!format.map_keys.empty() || format.ranking) {
    format.handler_name = "AlpacaStyleInstructionHandler";
  }
  return format;
}

DatasetInfo read_entry(const fs::path& info_path, const std::string& name, const Json& entry) {
  const std::string where = fmt::format("{}: \"{}\"", info_path.string(), name);
  if (!entry.is_object()) throw DataError(tr("{}: must be an object", where));
  check_entry(entry, where);
  const auto file_name = json_get<std::string>(entry, "file_name");
  if (!file_name) {
    throw UsageError(
        tr("{}: names a data set on a hub, which is not fetched", where),
        tr("danlu download ORG/NAME --repo_type dataset, then give the path of its files"));
  }
  DatasetInfo info;
  info.file = info_path.parent_path() / *file_name;
  if (!fs::exists(info.file)) {
    throw DataError(tr("{}: file_name {} does not exist", where, info.file.string()));
  }
  info.split =
      fs::is_directory(info.file) ? json_get<std::string>(entry, "split").value_or("") : "";
  info.max_rows = json_get<int64_t>(entry, "num_samples").value_or(-1);
  info.format = format_of(entry);
  info.format.map_keys_from = where + ": columns";
  return info;
}

}  // namespace

std::optional<DatasetInfo> find_dataset_info(const std::string& name, const fs::path& info_dir) {
  if (fs::is_regular_file(name)) {
    const fs::path path = name;
    const fs::path info_path = path.parent_path() / kInfoFile;
    if (!fs::exists(info_path) || path.filename() == kInfoFile) return std::nullopt;
    const Json infos = read_json_file(info_path);
    for (const auto& [key, entry] : infos.items()) {
      if (!entry.is_object() ||
          json_get<std::string>(entry, "file_name") != path.filename().string())
        continue;
      return read_entry(info_path, key, entry);
    }
    return std::nullopt;
  }
  if (fs::exists(name)) return std::nullopt;
  for (const fs::path& place : {info_dir, fs::path("."), fs::path("data")}) {
    const fs::path info_path = place / kInfoFile;
    if (place.empty() || !fs::exists(info_path)) continue;
    const Json infos = read_json_file(info_path);
    if (const auto entry = infos.find(name); entry != infos.end()) {
      return read_entry(info_path, name, *entry);
    }
  }
  return std::nullopt;
}

}  // namespace danlu::data
