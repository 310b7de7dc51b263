#include "data/preprocess_manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

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

/// The manifest of samples at `prefix`, if it describes the files as they are.
std::optional<PreprocessManifest> manifest_of_samples(const fs::path& prefix) {
  auto manifest = read_manifest(prefix);
  if (!manifest || !manifest->files.is_object() || manifest->files.empty()) return std::nullopt;
  std::vector<fs::path> outputs;
  const std::string ending = tokens_path("").string();
  for (const auto& [name, size] : manifest->files.items()) {
    if (name.ends_with(ending))
      outputs.push_back(prefix.parent_path() / name.substr(0, name.size() - ending.size()));
  }
  if (!describes_files(*manifest, outputs)) return std::nullopt;
  return manifest;
}

/// The flag that says the number under `key` of MediaSettings::grid_json by a rule; the key itself
/// where none does.
std::string flag_of(std::string key, const std::string& rule) {
  static const std::set<std::string> kNoFlags{"patch_size",       "temporal_patch_size",
                                              "merge_size",       "do_resize",
                                              "video_pre_resize", "video_frame_pixels"};
  if (kNoFlags.contains(key)) return key;
  if (rule == "qwen_vl_utils" && key.starts_with("image_")) key = key.substr(6);
  if (rule == "mindspeed-mm-2.0" && key == "image_max_pixels") key = "image_resolution";
  if (rule == "mindspeed-mm-2.0" && key == "video_max_pixels") key = "video_resolution";
  return "--" + key;
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
    manifest.media = json.value("media", Json());
    manifest.tokenizer = json.value("tokenizer", "");
    manifest.kind =
        sample_kind_from_name(json.value("kind", sample_kind_name(SampleKind::kTokens)));
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
  if (!manifest.media.is_null() && !manifest.report.visual.empty()) json["media"] = manifest.media;
  if (!manifest.tokenizer.empty()) json["tokenizer"] = manifest.tokenizer;
  if (manifest.kind != SampleKind::kTokens) json["kind"] = sample_kind_name(manifest.kind);
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
  const auto manifest = manifest_of_samples(prefix);
  return manifest ? manifest->recorded_template : RecordedTemplate{};
}

std::optional<SampleKind> read_recorded_kind(const fs::path& prefix) {
  const auto manifest = manifest_of_samples(prefix);
  if (!manifest) return std::nullopt;
  return manifest->kind;
}

void require_recorded_media(const fs::path& prefix, const MediaSettings& settings) {
  const auto manifest = manifest_of_samples(prefix);
  if (!manifest || !manifest->media.is_object()) return;
  const VisualCounts& visual = manifest->report.visual;
  const Json now = settings.grid_json();
  const bool same_rule = manifest->media.value("pre_resize", Json()) == now["pre_resize"];
  std::vector<std::string> differences;
  for (const auto& [key, then] : manifest->media.items()) {
    if (!now.contains(key) || now[key] == then) continue;
    const bool is_of_videos = key.starts_with("video_"), is_of_pictures = key.starts_with("image_");
    if ((is_of_videos && visual.videos == 0) || (is_of_pictures && visual.pictures == 0)) continue;
    // These follow from the others; and another rule has other limits.
    if (key.starts_with("frames_") || (!same_rule && (is_of_videos || is_of_pictures))) continue;
    differences.push_back(
        tr("{} {} then, {} now", flag_of(key, now["pre_resize"]), then.dump(), now[key].dump()));
  }
  if (differences.empty()) return;
  throw UsageError(
      tr("[dataset] {}: its pictures were read otherwise when its samples were made: "
         "{}",
         prefix.string(), fmt::join(differences, "; ")),
      tr("give the flags that danlu preprocess was given, or preprocess the rows again "
         "with those of this run and --overwrite"));
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
