#include "data/preprocess_manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "data/megatron/indexed_dataset.h"
#include "data/megatron/instruction_dataset.h"

namespace danlu::data {
namespace {

std::vector<fs::path> files_of(const std::vector<fs::path>& outputs) {
  std::vector<fs::path> files;
  for (const fs::path& output : outputs) {
    files.push_back(tokens_path(output));
    files.push_back(index_path(output));
  }
  return files;
}

/// Name and size of every file.
Json file_sizes(const std::vector<fs::path>& outputs) {
  Json sizes = Json::object();
  for (const fs::path& file : files_of(outputs)) {
    std::error_code missing;
    const uint64_t size = fs::file_size(file, missing);
    sizes[file.filename().string()] = missing ? Json(nullptr) : Json(size);
  }
  return sizes;
}

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored);
}

/// The first file of `outputs`, or of those that `manifest` lists, that is there; "" for none.
fs::path present_file(const fs::path& prefix, const std::vector<fs::path>& outputs,
                      const std::optional<PreprocessManifest>& manifest) {
  for (const fs::path& file : files_of(outputs)) {
    if (is_there(file)) return file;
  }
  if (!manifest || !manifest->files.is_object()) return {};
  for (const auto& [name, size] : manifest->files.items()) {
    if (is_there(prefix.parent_path() / name)) return prefix.parent_path() / name;
  }
  return {};
}

}  // namespace

fs::path manifest_path(const fs::path& prefix) { return prefix.string() + "_preprocess.json"; }

std::optional<PreprocessManifest> read_manifest(const fs::path& prefix) {
  if (!is_there(manifest_path(prefix))) return std::nullopt;
  try {
    const Json json = read_json_file(manifest_path(prefix));
    PreprocessManifest manifest;
    manifest.key = json.at("key").get<std::string>();
    manifest.files = json.at("files");
    manifest.report = PreprocessReport::from_json(json.at("report"));
    if (json.contains("template")) {
      manifest.recorded_template = {json.at("template").at("description").get<std::string>(),
                                    json.at("template").at("hash").get<std::string>()};
    }
    manifest.tokenizer = json.value("tokenizer", "");
    return manifest;
  } catch (const std::exception&) {
    return std::nullopt;  // as if the files had been made by another program
  }
}

void write_manifest(const fs::path& prefix, PreprocessManifest manifest,
                    const std::vector<fs::path>& outputs) {
  Json json{
      {"key", manifest.key}, {"files", file_sizes(outputs)}, {"report", manifest.report.to_json()}};
  if (const RecordedTemplate& used = manifest.recorded_template; !used.hash.empty()) {
    json["template"] = {{"description", used.description}, {"hash", used.hash}};
  }
  if (!manifest.tokenizer.empty()) json["tokenizer"] = manifest.tokenizer;
  write_json_file(manifest_path(prefix), json);
}

bool describes_files(const PreprocessManifest& manifest, const std::vector<fs::path>& outputs) {
  return manifest.files == file_sizes(outputs);
}

void refuse_to_replace(const fs::path& prefix, const std::string& key,
                       const std::vector<fs::path>& outputs) {
  const auto manifest = read_manifest(prefix);
  if (manifest && manifest->key == key) return;
  const fs::path present = present_file(prefix, outputs, manifest);
  if (present.empty()) return;
  const std::string hint = tr("choose another --output-prefix, or replace it with --overwrite");
  if (!manifest) {
    throw UsageError(tr("[output_prefix] {} exists, and no {} says what it was made from",
                        present.string(), manifest_path(prefix).filename().string()),
                     hint);
  }
  throw UsageError(tr("[output_prefix] {} exists, made from other input or settings: {}",
                      present.string(), fmt::join(manifest->report.datasets, "; ")),
                   hint);
}

RecordedTemplate read_recorded_template(const fs::path& prefix) {
  const auto manifest = read_manifest(prefix);
  std::vector<fs::path> outputs;
  for (const char* field : {"input_ids", "attention_mask", "labels"}) {
    outputs.emplace_back(instruction_field_prefix(prefix.string(), field));
  }
  if (!manifest || !describes_files(*manifest, with_media_output(prefix, outputs))) return {};
  return manifest->recorded_template;
}

std::string read_recorded_tokenizer(const fs::path& prefix) {
  if (const auto manifest = read_manifest(prefix)) return manifest->tokenizer;
  // Texts add the name of their column to the prefix that the manifest is named after.
  const std::string ending = manifest_path("").string();
  const fs::path parent = prefix.has_parent_path() ? prefix.parent_path() : fs::path(".");
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(ending)) continue;
    const auto manifest = read_manifest(path.substr(0, path.size() - ending.size()));
    if (!manifest || !manifest->files.is_object()) continue;
    if (manifest->files.contains(tokens_path(prefix).filename().string()))
      return manifest->tokenizer;
  }
  return "";
}

}  // namespace danlu::data
