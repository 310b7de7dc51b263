#include "weights/convert/conversion.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/new_output.h"
#include "base/progress.h"
#include "weights/convert/layout_writer.h"
#include "weights/convert/replaceable.h"
#include "weights/tensor_bands.h"

namespace danlu::weights {
namespace {

constexpr uint64_t kMega = 1'000'000;

/// What this conversion is: another one must not go on with its files.
std::string identity_of(const Conversion& conversion) {
  Json files = Json::array();
  for (const fs::path& file : conversion.source_files) {
    struct stat info{};
    if (::stat(file.c_str(), &info) != 0) throw IoError(tr("{}: cannot be read", file.string()));
    files.push_back({fs::absolute(file).lexically_normal().string(), info.st_size,
                     info.st_mtim.tv_sec, info.st_mtim.tv_nsec});
  }
  Json written = Json::array();
  const Target& target = conversion.target;
  for (size_t i = 0; i < target.layout.files.size(); ++i) {
    uint64_t known = 0;
    for (const PlacedBytes& part : target.plans[i].known) known = hash_bytes(part.bytes, known);
    written.push_back({target.layout.files[i], target.plans[i].size_bytes, known});
  }
  const Json identity = {{"to", target.description},
                         {"from", files},
                         {"files", written},
                         {"settings", conversion.settings}};
  return identity.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// The record of a result names its files too, under this key.
constexpr const char* kHolds = "holds";

/// An empty object if it is damaged.
Json parsed(const std::string& record) {
  try {
    Json json = parse_json(record, kConversionFile);
    return json.is_object() ? json : Json::object();
  } catch (const DataError&) {
    return Json::object();
  }
}

/// Whether a record is of that conversion.
bool is_record_of(const std::string& record, const std::string& identity) {
  if (record == identity) return true;
  Json json = parsed(record);
  if (json.erase(kHolds) == 0) return false;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n" == identity;
}

/// Every file of a result that is about to get its name, by its size.
void list_files(const fs::path& staging, const std::string& identity) {
  Json holds = Json::object();
  for (const auto& entry : fs::recursive_directory_iterator(staging)) {
    const std::string name = fs::relative(entry.path(), staging).string();
    if (entry.is_regular_file() && name != kConversionFile) holds[name] = entry.file_size();
  }
  Json record = parsed(identity);
  record[kHolds] = std::move(holds);
  write_json_file(staging / kConversionFile, record);
}

void check_output(const Conversion& conversion, const fs::path& output) {
  refuse_to_replace_inputs(output, conversion.source_files);
  require_renamable(output);
  if (conversion.output_is_file && fs::is_directory(output)) {
    throw UsageError(tr("[output] {} is a directory; this format is one file", output.string()),
                     tr("name a file, e.g. model.gguf"));
  }
  if (!is_taken(output)) return;
  if (!conversion.overwrite) throw_taken(output);
  std::set<std::string> written;
  for (const std::string& file : conversion.target.layout.files)
    written.insert(*fs::path(file).begin());
  require_replaceable(output, conversion.output_is_file, written);
}

/// Removes all but the record and the finished files, whose bytes it returns.
uint64_t keep_finished(const fs::path& staging, const Target& target) {
  std::map<fs::path, uint64_t> expected;
  for (size_t i = 0; i < target.layout.files.size(); ++i)
    expected[staging / target.layout.files[i]] = target.plans[i].size_bytes;
  uint64_t bytes = 0;
  std::vector<fs::path> others;
  for (const auto& entry : fs::recursive_directory_iterator(staging)) {
    if (entry.is_directory() || entry.path() == staging / kConversionFile) continue;
    const auto at = expected.find(entry.path());
    if (at != expected.end() && entry.file_size() == at->second) {
      bytes += at->second;
    } else {
      others.push_back(entry.path());
    }
  }
  for (const fs::path& file : others) fs::remove(file);
  return bytes;
}

/// The names of new files are on the disk only when their directories are.
void sync_directories_below(const fs::path& root) {
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_directory()) sync_path(entry.path());
  }
  sync_path(root);
}

/// Gives what is finished its name. Without `overwrite` nothing is replaced, even if it came
/// meanwhile.
void publish(const fs::path& from, const fs::path& output, bool overwrite) {
  if (overwrite) return publish_directory(from, output);
  std::error_code ignored;
  if (!is_taken(output)) fs::remove(output, ignored);  // an empty directory
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, output.c_str(), RENAME_NOREPLACE) == 0) {
    sync_path(output.parent_path());
    return;
  }
  if (errno == EEXIST || errno == ENOTEMPTY) throw_taken(output);
  if (is_taken(output)) throw_taken(output);
  publish_directory(from, output);  // a file system without that flag
}

/// The file that is there from just before a result gets its name until the call is done.
fs::path mark_of(const fs::path& output) { return staging_of(output).string() + ".done"; }

std::string mark_text(const std::string& identity, bool replaces) {
  return identity + (replaces ? "replaces\n" : "");
}

bool is_marked(const fs::path& output, const std::string& text) {
  const fs::path mark = mark_of(output);
  return fs::is_regular_file(mark) && read_file(mark) == text;
}

/// Whether a directory is this conversion's result, and whole.
bool holds_result(const Conversion& conversion, const fs::path& output,
                  const std::string& identity) {
  try {
    if (conversion.output_is_file || !fs::is_regular_file(output / kConversionFile)) return false;
    const std::string record = read_file(output / kConversionFile);
    const Json json = parsed(record);
    if (!is_record_of(record, identity) || !json.contains(kHolds)) return false;
    for (const auto& [name, size] : json.at(kHolds).items()) {
      if (!fs::is_regular_file(output / name) || Json(fs::file_size(output / name)) != size)
        return false;
    }
    const auto& texts = conversion.target.texts;
    return std::all_of(texts.begin(), texts.end(), [&](const auto& text) {
      const fs::path file = output / text.first;
      return fs::is_regular_file(file) && read_file(file) == text.second;
    });
  } catch (const fs::filesystem_error&) {
    return false;
  }
}

/// Whether this conversion put its result in place and was killed before it was done. Where it
/// replaced what was there, only a whole result tells the new from the old.
bool was_published(const Conversion& conversion, const fs::path& output,
                   const std::string& identity) {
  if (conversion.overwrite || !is_taken(output)) return false;
  if (is_marked(output, mark_text(identity, true)))
    return holds_result(conversion, output, identity);
  const fs::path moved =
      staging_of(output) /
      (conversion.output_is_file ? conversion.target.layout.files.front() : kConversionFile);
  // After a loss of power a file may have both names.
  std::error_code missing;
  return (!fs::exists(moved) || fs::equivalent(moved, output, missing)) &&
         is_marked(output, mark_text(identity, false));
}

/// Removes what a published conversion still has beside its result. The mark goes last.
void finish(const fs::path& output, std::optional<FileLock>& lock) {
  const fs::path staging = staging_of(output);
  if (is_taken(staging)) remove_directory_atomic(staging);
  lock.reset();
  fs::remove(mark_of(output));
}

/// Makes the staging folder, or takes up what an interrupted conversion of the same kind left.
/// Returns the bytes of the files that are finished.
uint64_t prepare_staging(const Conversion& conversion, const fs::path& output,
                         const std::string& identity) {
  const fs::path staging = staging_of(output), record = staging / kConversionFile;
  // What was replaced waits there for its removal: a directory in place of ours, a file under the
  // name and beside the record of what replaced it.
  const bool is_exchanged = !conversion.output_is_file &&
                            fs::is_regular_file(output / kConversionFile) &&
                            is_record_of(read_file(output / kConversionFile), identity);
  if (is_taken(staging) && (conversion.output_is_file || !fs::exists(record) || is_exchanged) &&
      is_marked(output, mark_text(identity, true)))
    remove_directory_atomic(staging);
  if (is_taken(staging)) {
    if (!fs::exists(record)) {
      throw UsageError(
          tr("[output] {} is in the way: conversions are put aside there", staging.string()),
          tr("move it, or choose another output"));
    }
    if (is_record_of(read_file(record), identity)) {
      const uint64_t bytes = keep_finished(staging, conversion.target);
      log::info("going on with the conversion that was interrupted: {} are there",
                format_bytes(bytes));
      return bytes;
    }
    log::warning("{}: left by another conversion that was interrupted; it is removed",
                 staging.string());
    remove_directory_atomic(staging);
  }
  // It is there with its record or not at all: without one it would be taken for somebody's own.
  write_directory_atomic(staging, [&](const fs::path& directory) {
    write_file_atomic(directory / kConversionFile, identity);
  });
  return 0;
}

/// A bar in megabytes that several threads push.
class Meter {
 public:
  /// Less than a megabyte is done at once: nothing to show.
  Meter(const char* title, uint64_t total_bytes) : begin_(std::chrono::steady_clock::now()) {
    if (total_bytes >= kMega) bar_.emplace(title, total_bytes / kMega, "MB");
  }
  void add(uint64_t bytes) { show(done_ += bytes); }
  void show(uint64_t done) {
    if (bar_) bar_->update(done / kMega);
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  void finish() {
    if (bar_) bar_->finish();
  }

 private:
  std::optional<ProgressBar> bar_;
  std::chrono::steady_clock::time_point begin_;
  std::atomic<uint64_t> done_{0};
};

/// Errors: IoError naming the first difference.
std::vector<TensorDigest> check_copy(const Conversion& conversion, const fs::path& staging) {
  const auto result = conversion.reopen(staging);
  // Types as they are stored: GGUF keeps vectors wider than matrices.
  std::map<std::string, DType> dtypes;
  const Layout& layout = conversion.target.layout;
  for (const StoredTensor& stored : layout.tensors) {
    for (const Section& section : stored.sections) {
      for (const Piece& piece : section.pieces) {
        if (!piece.replica) dtypes[layout.globals[piece.global].name] = stored.info.dtype;
      }
    }
  }
  uint64_t bytes = 0;
  for (const TensorInfo& info : result->tensors()) bytes += info.size_bytes();
  Meter meter("checking", bytes);
  CopyCheck check = verify_copy(
      *conversion.source, *result,
      [&](const TensorInfo& info) {
        const auto at = dtypes.find(info.name);
        return at == dtypes.end() ? info.dtype : at->second;
      },
      [&](uint64_t done) { meter.show(done); }, conversion.num_threads);
  meter.finish();
  if (check.first) {
    throw IoError(
        tr("the result is not what was converted: {}", check.first->text()),
        tr("the disk may be failing, or this is a fault of danlu: nothing was put in place"));
  }
  return std::move(check.digests);
}

/// After an error, which is what the user is told of.
void give_up(const fs::path& staging) {
  try {
    remove_directory_atomic(staging);
  } catch (const IoError& error) {
    log::warning("{}", error.what());
  }
}

bool has_finished(const fs::path& staging, const Target& target) {
  return std::any_of(target.layout.files.begin(), target.layout.files.end(),
                     [&](const std::string& file) { return fs::exists(staging / file); });
}

/// Everything into the staging folder, checked. What cannot be gone on with is removed.
void fill(const Conversion& conversion, const fs::path& staging, const std::string& identity,
          ConversionReport& report) {
  bool is_void = false;  // what was written cannot be used, not even in part
  try {
    const uint64_t total = conversion.target.size_bytes();
    report.written_bytes = total - report.reused_bytes;
    require_free_space(staging, report.written_bytes, "the converted checkpoint");
    Meter meter("converting", report.written_bytes);
    write_layout(*conversion.source, conversion.target.layout, conversion.target.plans, staging,
                 {.num_threads = streaming_threads(conversion.num_threads),
                  .ends_on_signal = conversion.ends_on_signal,
                  .on_written = [&](uint64_t bytes) {
                    meter.add(bytes);
                    if (conversion.on_progress) conversion.on_progress();
                  }});
    report.write_seconds = meter.seconds();
    meter.finish();
    for (const auto& [path, text] : conversion.target.texts)
      write_file_atomic(staging / path, text);
    if (conversion.write_companions) conversion.write_companions(staging);
    is_void = true;
    if (identity_of(conversion) != identity)
      throw IoError(tr("the source changed while it was converted; the result is not kept"));
    if (conversion.reopen) report.digests = check_copy(conversion, staging);
    if (!conversion.output_is_file) list_files(staging, identity);
    sync_directories_below(staging);
  } catch (const Error&) {
    if (is_void || !has_finished(staging, conversion.target)) give_up(staging);
    throw;
  }
}

}  // namespace

bool is_up_to_date(const Conversion& conversion) {
  const fs::path output = place_of(conversion.output);
  const std::string identity = identity_of(conversion);
  // Killed before it was done: what is left beside it goes when it is taken up.
  for (const bool replaces : {false, true}) {
    if (is_marked(output, mark_text(identity, replaces))) return false;
  }
  return holds_result(conversion, output, identity);
}

fs::path staging_of(const fs::path& output) { return place_of(output).string() + ".converting"; }

ConversionReport convert(const Conversion& conversion) {
  fs::path output = place_of(conversion.output);
  // A link to a larger disk stays one.
  if (fs::is_symlink(output)) output = fs::weakly_canonical(output);
  const fs::path staging = staging_of(output);
  const std::string identity = identity_of(conversion);
  const auto is_published = [&] {
    if (was_published(conversion, output, identity)) return true;
    check_output(conversion, output);
    return false;
  };
  const auto is_there = [&] { return !conversion.overwrite && is_up_to_date(conversion); };
  ConversionReport report;
  report.was_up_to_date = is_there();
  if (report.was_up_to_date) return report;
  is_published();  // before anything is made
  const MadeDirectory parent = parent_of(output);
  std::optional<FileLock> lock(lock_output(output));
  // Who had the lock before us may have put its result there.
  report.was_up_to_date = is_there();
  if (report.was_up_to_date) return report;
  if (is_published()) {
    report.was_complete = true;
    report.reused_bytes = conversion.target.size_bytes();
    finish(output, lock);
    return report;
  }
  report.reused_bytes = prepare_staging(conversion, output, identity);
  fill(conversion, staging, identity, report);
  write_file_atomic(mark_of(output), mark_text(identity, conversion.overwrite));
  publish(conversion.output_is_file ? staging / conversion.target.layout.files.front() : staging,
          output, conversion.overwrite);
  finish(output, lock);
  return report;
}

}  // namespace danlu::weights
