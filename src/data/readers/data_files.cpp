#include "data/readers/data_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/nearest_name.h"
#include "base/progress.h"
#include "base/shell_quote.h"
#include "data/readers/dataset_info.h"
#include "data/readers/dataset_name.h"

namespace danlu::data {
namespace {

constexpr std::string_view kAccepted =
    "parquet, json, jsonl, ndjson, csv, tsv, txt (also .gz, .zst)";

bool is_metadata(const fs::path& path) {
  const std::string name = path.filename().string();
  return name == "dataset_info.json" || name == "dataset_infos.json" || name == "state.json" ||
         name == "dataset_dict.json";
}

DataFile data_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw DataError(tr("{}: not a regular file: rows are read more than once", path.string()),
                    tr("write them to a file first"));
  }
  const auto type = file_type_of(path);
  if (!type) {
    throw DataError(
        tr("{}: not a type of file that holds rows; accepted: {}", path.string(), kAccepted));
  }
  if (*type == FileType::kParquet && path.extension() != ".parquet") {
    throw DataError(
        tr("{}: parquet files are compressed inside; unpack this one first", path.string()));
  }
  const uint64_t size = fs::file_size(path, error);
  if (error) throw DataError(tr("{}: cannot be read: {}", path.string(), error.message()));
  return {path, *type, size};
}

std::string summarize(const std::vector<DataFile>& files,
                      const std::map<std::string, size_t>& ignored) {
  std::map<std::string_view, size_t> counts;
  uint64_t size_bytes = 0;
  for (const DataFile& file : files) {
    ++counts[file_type_name(file.type)];
    size_bytes += file.size_bytes;
  }
  std::string text = format_bytes(size_bytes);
  // From the back: each text is one of the catalogue, around what stands after it.
  for (auto one = counts.rbegin(); one != counts.rend(); ++one) {
    const auto& [type, count] = *one;
    text = count == 1 ? fmt::format("{} {} file, {}", count, type, text)
                      : fmt::format("{} {} files, {}", count, type, text);
  }
  if (ignored.empty()) return text;
  std::string rest;
  for (const auto& [extension, count] : ignored) {
    rest += fmt::format("{}{} {}", rest.empty() ? "" : ", ", count,
                        extension.empty() ? "without extension" : extension);
  }
  return fmt::format("{} (ignored: {})", text, rest);
}

/// True if a file below `root` belongs to a split as hubs name them: train.json,
/// train-00000-of-00001.parquet, train/part0.jsonl, data_train.csv.
bool belongs_to_split(const fs::path& relative, const std::string& split) {
  for (const fs::path& part : relative) {
    const std::string name = part.string();
    for (size_t at = name.find(split); at != std::string::npos; at = name.find(split, at + 1)) {
      const size_t end = at + split.size();
      const bool starts = at == 0 || !std::isalnum(static_cast<unsigned char>(name[at - 1]));
      const bool ends = end == name.size() || !std::isalnum(static_cast<unsigned char>(name[end]));
      if (starts && ends) return true;
    }
  }
  return false;
}

/// The data files below `directory`; a directory that links lead to twice is taken once.
void collect_files(const fs::path& directory, std::set<fs::path>* visited,
                   std::vector<fs::path>* paths, std::map<std::string, size_t>* ignored) {
  std::error_code error;
  const fs::path real = fs::canonical(directory, error);
  if (error || !visited->insert(real).second) return;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const fs::path& path = entry.path();
    if (path.filename().string().starts_with('.')) continue;
    std::error_code unknown;
    const fs::file_status status = fs::status(path, unknown);
    if (fs::is_directory(status)) {
      collect_files(path, visited, paths, ignored);
    } else if (!fs::is_regular_file(status)) {
      ++(*ignored)[fs::exists(status) ? "special file" : "broken link"];
    } else if (!file_type_of(path) || is_metadata(path)) {
      ++(*ignored)[path.extension().string()];
    } else {
      paths->push_back(path);
    }
  }
  if (error) {
    throw DataError(tr("{}: cannot be listed: {}", directory.string(), error.message()));
  }
}

void list_directory(const fs::path& root, const std::string& split, Dataset* dataset) {
  std::vector<fs::path> paths;
  std::map<std::string, size_t> ignored;
  std::set<fs::path> visited;
  collect_files(root, &visited, &paths, &ignored);
  std::sort(paths.begin(), paths.end());
  bool has_train = false, has_other = false;
  for (const fs::path& path : paths) {
    const fs::path relative = path.lexically_relative(root);
    has_train |= belongs_to_split(relative, "train");
    has_other |= belongs_to_split(relative, "test") || belongs_to_split(relative, "validation");
    if (split.empty() || belongs_to_split(relative, split))
      dataset->files.push_back(data_file(path));
  }
  if (dataset->files.empty()) {
    throw DataError(split.empty() ? tr("{}: no data file in this directory; accepted: {}",
                                       root.string(), kAccepted)
                                  : tr("{}: no data file of the split \"{}\" in this directory ({} "
                                       "files of other names)",
                                       root.string(), split, paths.size()));
  }
  if (split.empty() && has_train && has_other) {
    log::warning("{}: holds files of several splits and all of them are read; {}:train takes one",
                 root.string(), root.string());
  }
  dataset->summary = summarize(dataset->files, ignored);
}

bool list_glob(const std::string& pattern, Dataset* dataset) {
  ::glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_TILDE, nullptr, &found);
  std::map<std::string, size_t> ignored;
  for (size_t i = 0; code == 0 && i < found.gl_pathc; ++i) {
    const fs::path path = found.gl_pathv[i];
    if (fs::is_directory(path)) continue;
    if (file_type_of(path)) {
      dataset->files.push_back(data_file(path));
    } else {
      ++ignored[path.extension().string()];
    }
  }
  ::globfree(&found);
  if (!dataset->files.empty()) dataset->summary = summarize(dataset->files, ignored);
  return !dataset->files.empty();
}

FormatOptions merge_formats(const FormatOptions& user, const FormatOptions& info) {
  FormatOptions merged = info;
  if (!user.handler_name.empty()) merged.handler_name = user.handler_name;
  if (!user.map_keys.empty()) {
    merged.map_keys = user.map_keys;
    merged.map_is_whole = user.map_is_whole;
  }
  if (!user.columns.empty()) merged.columns = user.columns;
  if (!user.json_keys.empty()) merged.json_keys = user.json_keys;
  merged.answers_optional = user.answers_optional;
  merged.text_first = user.text_first;
  merged.reads_media = user.reads_media;
  merged.kind = user.kind;
  merged.names = user.names;
  merged.learns_all_rounds = user.learns_all_rounds;
  return merged;
}

/// Errors: DataError if `path` is a .bin/.idx pair, one of its files, or what their names begin
/// with: rows that were tokenised before go by a prefix.
void refuse_tokenised(const std::string& path) {
  std::string stem = path;
  for (const char* ending : {".bin", ".idx"}) {
    if (stem.ends_with(ending)) stem.resize(stem.size() - 4);
  }
  const auto exists = [](const std::string& prefix) {
    std::error_code ignored;
    return fs::exists(prefix + ".idx", ignored);
  };
  const size_t name = stem.rfind('/') == stem.npos ? 0 : stem.rfind('/') + 1;
  const size_t packed = stem.find("_packed", name);
  for (const std::string& samples : {stem, stem.substr(0, packed)}) {
    if (!exists(samples + "_packed_input_ids_document")) continue;
    throw DataError(
        tr("[dataset] {}: of the preprocessed samples {}", path, samples),
        tr("danlu sft takes them by their prefix: --data-path {}", shell_quoted(samples)));
  }
  for (const std::string& text : {stem, stem + "_text_document"}) {
    if (!exists(text)) continue;
    throw DataError(
        tr("[dataset] {}: tokenised text (.bin, .idx), not rows", path),
        tr("danlu pretrain takes it by its prefix: --data-path {}", shell_quoted(text)));
  }
}

[[noreturn]] void not_found(const DatasetName& name, const std::string& text) {
  std::vector<std::string> nearby;
  const fs::path parent = fs::path(name.path).parent_path();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent.empty() ? "." : parent, ignored)) {
    nearby.push_back((parent / entry.path().filename()).string());
  }
  std::string hint =
      tr("a data set is a file, a directory, a glob, or a name in dataset_info.json; what a "
         "hub has is fetched by danlu download --dataset NAME");
  if (const auto near = nearest_name(name.path, nearby)) {
    hint = tr("did you mean {}?", *near);
  }
  throw DataError(tr("[dataset] {}: no such file or directory", text), hint);
}

}  // namespace

std::string_view file_type_name(FileType type) {
  constexpr std::string_view kNames[] = {"parquet", "json", "jsonl", "csv", "tsv", "txt"};
  return kNames[static_cast<size_t>(type)];
}

std::optional<FileType> file_type_of(const fs::path& path) {
  fs::path name = lower_case(path.filename().string());
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  static const std::map<std::string, FileType> kTypes{
      {".parquet", FileType::kParquet}, {".json", FileType::kJson},
      {".jsonl", FileType::kJsonLines}, {".ndjson", FileType::kJsonLines},
      {".csv", FileType::kCsv},         {".tsv", FileType::kTsv},
      {".txt", FileType::kText}};
  const auto found = kTypes.find(name.extension().string());
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

Dataset resolve_dataset(const std::string& text, const FormatOptions& format,
                        const fs::path& info_dir) {
  const DatasetName name = parse_dataset_name(text);
  Dataset dataset;
  dataset.name = text;
  dataset.max_rows = name.max_rows;
  dataset.format = format;
  DatasetName target = name;
  if (const auto info = find_dataset_info(name.path, info_dir)) {
    target.path = info->file.string();
    if (target.split.empty()) target.split = info->split;
    dataset.limited_by_info = dataset.max_rows < 0;
    if (dataset.limited_by_info) dataset.max_rows = info->max_rows;
    dataset.format = merge_formats(format, info->format);
  }
  if (fs::is_directory(target.path)) {
    list_directory(target.path, target.split, &dataset);
    return dataset;
  }
  if (!target.split.empty() && target.split != "train") {
    if (!dataset_path_exists(target.path)) not_found(name, text);
    throw DataError(tr("[dataset] {}: a single file has no split \"{}\"", text, target.split));
  }
  if (!file_type_of(target.path)) refuse_tokenised(target.path);
  if (dataset_path_exists(target.path)) {
    dataset.files = {data_file(target.path)};
    dataset.summary = summarize(dataset.files, {});
  } else if (!list_glob(target.path, &dataset)) {
    not_found(name, text);
  }
  return dataset;
}

}  // namespace danlu::data
