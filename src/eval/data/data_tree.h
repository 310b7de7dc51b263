// eval/data/data_tree.h: a benchmark's files as users have them, and the rows in them.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace danlu::eval {

/// One way in which a benchmark's files lie.
struct Layout {
  std::string name;  ///< "the authors' data.tar", "Hugging Face cais/mmlu", …
  /// Split -> patterns of paths, tried in order until one finds files. Of a path's parts * and ?
  /// stand for any characters of a name, {subject} for the subject's.
  std::map<std::string, std::vector<std::string>> files;
  std::vector<std::string> columns;  ///< of CSV files without a header; empty: they have one
  std::string records;  ///< member of a JSON document that holds the rows ("examples"); empty: none
  /// The paths are files of their own, all of which a split has: none stands for another.
  bool are_named = false;
  std::map<std::string, std::string> fields;  ///< uniform field -> template; applied by others
};

/// Files below a directory, or in an archive. Copies share what was unpacked, which is removed with
/// the last of them. Not thread-safe.
class DataTree {
 public:
  /// `path` may be the directory that layouts are relative to, one above it (up to three levels),
  /// the directory of one split, a single file of rows, or an archive, which is unpacked below
  /// TMPDIR. Errors: DataError (nothing there, neither directory nor archive nor file of rows);
  /// those of unpack_archive.
  static DataTree open(const std::filesystem::path& path);

  /// Looks from `directory` alone, neither above nor below it nor into archives.
  static DataTree from(const std::filesystem::path& directory);

  /// What open was given.
  const std::filesystem::path& path() const;

  /// Whether the files of a split are there; split empty: of any.
  bool has(const Layout& layout, const std::string& split, const std::string& subject) const;
  /// The files of a split, sorted; empty: there are none. Archives below `path` are opened, with a
  /// notice, if no file of the layout lies outside of them. A tree that choose_layout did not give
  /// looks wherever the layout may begin and takes the first place that has the split. Errors:
  /// DataError for parts of a set ("-00001-of-00003") that are missing; a pattern with ".."; those
  /// of unpack_archive.
  std::vector<std::filesystem::path> files(const Layout& layout, const std::string& split,
                                           const std::string& subject) const;
  /// All rows of a split in order, each an object. Cells of CSV files are texts, empty ones too.
  /// Errors: DataError naming the file and where in it: no such split, an empty file, no rows,
  /// other columns than the layout's, a row that is no object; those of data/readers.
  std::vector<Json> rows(const Layout& layout, const std::string& split,
                         const std::string& subject) const;
  /// "file:line", or of a table or list "file:row n", of one of those rows. Reads files again.
  std::string place_of_row(const Layout& layout, const std::string& split,
                           const std::string& subject, size_t index) const;
  /// A text file of the tree, without a byte order mark.
  /// Errors: DataError (missing, not UTF-8, a path with ".."); IoError.
  std::string text(const std::string& relative_path) const;

  /// Where a layout may begin. For choose_layout.
  struct Root {
    std::filesystem::path path;
    /// Nearer ones are preferred: 0 is `path` itself, 1 and more above it, then below.
    int rank = 0;
    bool is_above = false;  ///< counts only if it leads back to files below `path`
  };
  const std::vector<Root>& roots() const;
  /// Whether a layout can begin there, by any file of any subject.
  bool serves(const Root& root, const Layout& layout) const;
  /// Adds what archives below `path` hold of a layout to roots(). False if that is nothing new. One
  /// that cannot be read is passed by: it may be another benchmark's.
  bool open_archives(const Layout& layout) const;
  /// Errors: DataError of the first that was passed by so. For those who miss something.
  void refuse_broken_archives() const;
  /// The same tree, looked at from one place only.
  DataTree at(const Root& root) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::vector<Root> only_;  ///< of at(); empty: all
};

}  // namespace danlu::eval
