// data/preprocess_manifest.h: `<prefix>_preprocess.json`, what the files of a prefix were made
// from.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/media_settings.h"
#include "data/preprocess_report.h"
#include "data/sample_kind.h"

namespace danlu::data {

/// The chat template by which conversations were rendered.
struct RecordedTemplate {
  std::string description;  ///< ChatEncoder::description(); empty: none was used or recorded
  std::string hash;         ///< 16 hexadecimal digits of ChatEncoder::content_hash()
  bool operator==(const RecordedTemplate&) const = default;
};

struct PreprocessManifest {
  std::string key;  ///< content_key of inputs, tokenizer, template and settings
  Json files;       ///< name -> bytes
  PreprocessReport report;
  RecordedTemplate recorded_template;
  std::string tokenizer;  ///< 16 hexadecimal digits of Tokenizer::content_hash(); empty: none
  SampleKind kind = SampleKind::kTokens;
  Json media = nullptr;  ///< MediaSettings::grid_json(); null: text alone, or not recorded
};

std::filesystem::path manifest_path(const std::filesystem::path& prefix);
/// Empty where there is no manifest, or a damaged one.
std::optional<PreprocessManifest> read_manifest(const std::filesystem::path& prefix);
/// Writes a manifest of the data sets `outputs`, with the sizes that their files have now.
void write_manifest(const std::filesystem::path& prefix, PreprocessManifest manifest,
                    const std::vector<std::filesystem::path>& outputs);

/// True if the files of `outputs` have the sizes that `manifest` says.
bool describes_files(const PreprocessManifest& manifest,
                     const std::vector<std::filesystem::path>& outputs);

/// Refuses to put a data set of content `key` in the place of another one, or of files without a
/// manifest. Errors: UsageError naming what is there.
void refuse_to_replace(const std::filesystem::path& prefix, const std::string& key,
                       const std::vector<std::filesystem::path>& outputs);

/// The template of preprocessed samples; empty where none is recorded for the files as they are.
RecordedTemplate read_recorded_template(const std::filesystem::path& prefix);

/// PreprocessManifest::kind of the samples at `prefix`; empty where none is recorded for the files
/// as they are.
std::optional<SampleKind> read_recorded_kind(const std::filesystem::path& prefix);

/// Refuses samples whose pictures and videos have other grids by `settings`, or are turned another
/// way. Samples of older versions and of other programs record nothing, and are taken. Errors:
/// UsageError naming what differs.
void require_recorded_media(const std::filesystem::path& prefix, const MediaSettings& settings);

/// PreprocessManifest::tokenizer of the texts or samples at `prefix`; empty where none is recorded.
std::string read_recorded_tokenizer(const std::filesystem::path& prefix);

}  // namespace danlu::data
