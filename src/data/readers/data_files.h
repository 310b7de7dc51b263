// data/readers/data_files.h: from what a user calls a data set to the files that hold its rows.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/format_options.h"
#include "data/readers/row_choice.h"

namespace danlu::data {

enum class FileType { kParquet, kJson, kJsonLines, kCsv, kTsv, kText };

std::string_view file_type_name(FileType type);
/// The type by the extension, before .gz or .zst; empty if Danlu does not read such files.
std::optional<FileType> file_type_of(const std::filesystem::path& path);

struct DataFile {
  std::filesystem::path path;
  FileType type = FileType::kJson;
  uint64_t size_bytes = 0;
};

/// One data set: its files in reading order, and how many rows of it to take.
struct Dataset {
  std::string name;  ///< as the user wrote it
  std::vector<DataFile> files;
  int64_t max_rows = -1;                 ///< -1: all
  bool limited_by_info = false;          ///< max_rows is num_samples of dataset_info.json, not #n
  RowChoice choice = RowChoice::kFirst;  ///< which max_rows of them
  uint64_t draw_seed = 0;                ///< RowChoice::kDrawn
  bool document_per_file = false;        ///< text files: one row each, instead of one row a line
  FormatOptions format;
  /// "3 parquet files, 1.2 GB (ignored: 1 .md)".
  std::string summary;
  /// Before #n, a row once: max(1, ⌊share · min(rows, n)⌋) rows are held out, drawn where the
  /// choice is kDrawn, else the last ones; the training part is n rows less those, of the others.
  RowPart part = RowPart::kAll;
  double held_out_share = 0;  ///< (0, 1), unless `part` is kAll
};

/// Reads `text` = path[:split][#n] (see parse_dataset_name). `path` is a file, a directory (all
/// files of the accepted types below it), a glob, or a name in a dataset_info.json
/// (LLaMA-Factory's) that lies in the current directory, in ./data, or in `info_dir`; a path into
/// such a directory takes that file's entry too. A split chooses the files of a directory named
/// after it ("train", "test-00000-of-…"). `format` wins over what dataset_info.json says. Errors:
/// DataError (nothing there, no accepted file, unknown split); UsageError (bad "#n", a preference
/// data set, a data set on a hub).
Dataset resolve_dataset(const std::string& text, const FormatOptions& format = {},
                        const std::filesystem::path& info_dir = {});

}  // namespace danlu::data
