// cli/engine/infer_output.h: where the answers of `danlu infer` go, row by row.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/options.h"
#include "cli/engine/infer_rows.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// Before any answer is made, so that none is made in vain and nothing is lost. `files_read`: what
/// the command reads. Errors: UsageError (--output is among them, whatever names they go by; it
/// exists and --overwrite was not given; it is no file); IoError (nothing can be written there, or
/// another process writes it). Returned: the lock that keeps others away until it goes.
[[nodiscard]] FileLock require_usable_output(const Options& options,
                                             const std::vector<fs::path>& files_read);

/// Where answers wait until all are there.
fs::path partial_of(const fs::path& output);

struct DefaultOutput {
  fs::path file;
  std::optional<FileLock> lock;  ///< another run of the same second takes another name
};
/// Where ms-swift puts the answers of data sets when nobody names a file: infer_result/<time>.jsonl
/// in the checkpoint of a run, in result/<model>/ for other models. Empty, with a warning, where
/// nothing can be written.
[[nodiscard]] DefaultOutput default_output(const ModelLocation& where);

/// Lines that are on disk as soon as they are added: in `FILE.partial`, which gets the name FILE at
/// the end, so that a killed run leaves what it had answered.
class AnswerFile {
 public:
  /// What FILE.partial holds moves to FILE.partial.N when the first line comes, with a warning, but
  /// for `kept`, which it begins with. `request` is beside it in FILE.partial.request until the
  /// end. `overwrite`: FILE may be there when it gets its name.
  AnswerFile(fs::path path, bool overwrite, std::string request, const std::string& kept);
  /// Without finish() the lines stay in FILE.partial, and a warning says so; those that cannot be
  /// written are printed on stdout.
  ~AnswerFile();
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;

  /// Appends complete lines. Never fails: what cannot be written waits for finish().
  void add(std::string_view lines);
  /// Appends complete lines, for a run that goes on from FILE.partial. Errors: IoError where they
  /// cannot be written: the file has what it had before.
  void add_or_stop(std::string_view lines);
  /// Gives the file its name. Answers took long to make: those that cannot be written are printed
  /// on stdout before the error. Errors: IoError; UsageError if somebody made FILE meanwhile: they
  /// stay in FILE.partial.
  void finish();

 private:
  bool open_partial();
  bool write_request() const;
  bool append(std::string_view lines);
  void keep();
  void publish();
  void rename_partial();

  fs::path path_, partial_;
  std::string request_;
  std::string lines_;  ///< all of them, should the disk be full
  size_t kept_bytes_ = 0;
  int fd_ = -1;
  bool overwrite_, is_broken_ = false, is_finished_ = false;
};

/// What became of a question.
struct Outcome {
  std::string answer;
  std::string finish_reason;  ///< "stop", "length", "cancelled", "error"
  std::string error;          ///< why it was not answered, in English; with "error" only
};

/// The row of --output: the question, its answer, and the data set's own answer as `labels`.
Json result_row(const Question& question, const Outcome& outcome);

/// The same for reading on the screen.
std::string result_text(const Question& question, const Outcome& outcome);

/// To stdout, at once.
void print_text(std::string_view text);

}  // namespace danlu::cli
