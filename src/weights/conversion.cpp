#include "weights/conversion.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/progress.h"
#include "weights/layout_writer.h"
#include "weights/tensor_bands.h"

namespace danlu::weights {
namespace {

constexpr const char* kIdentityFile = "conversion.json";
constexpr uint64_t kMega = 1'000'000;

fs::path without_slash(const fs::path& path) {
  return fs::absolute(path / "").lexically_normal().parent_path();
}

bool is_within(const fs::path& inner, const fs::path& outer) {
  const fs::path relative =
      fs::weakly_canonical(inner).lexically_relative(fs::weakly_canonical(outer));
  return !relative.empty() && *relative.begin() != "..";
}

/// What this conversion is: another one must not go on with its files.
std::string identity_of(const Conversion& conversion) {
  Json files = Json::array();
  for (const fs::path& file : conversion.source_files) {
    struct stat info{};
    if (::stat(file.c_str(), &info) != 0)
      throw IoError(fmt::format("{}: cannot be read", file.string()));
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
  return Json{{"to", target.description}, {"from", files}, {"files", written}}.dump(1) + "\n";
}

void check_output(const Conversion& conversion, const fs::path& output) {
  for (const fs::path& file : conversion.source_files) {
    const bool is_source = fs::exists(output) && is_within(file, output);
    if (!is_source) continue;
    throw UsageError(fmt::format("[output] {} holds the source ({}): it would be replaced",
                                 output.string(), file.string()),
                     {"choose another directory", "请换一个目录"});
  }
  std::error_code error;
  const bool is_empty_directory = fs::is_directory(output, error) && fs::is_empty(output, error);
  if (!fs::exists(fs::symlink_status(output)) || is_empty_directory || conversion.overwrite) return;
  throw UsageError(fmt::format("[output] {} exists{}", output.string(),
                               fs::is_directory(output) ? " and is not empty" : ""),
                   {"choose another name, or give --overwrite", "请换一个名称，或加 --overwrite"});
}

/// Makes the staging folder, or takes up what an interrupted conversion of the same kind left.
/// Returns the bytes of the files that are finished.
uint64_t prepare_staging(const fs::path& staging, const std::string& identity,
                         const Target& target) {
  if (fs::exists(staging)) {
    const fs::path record = staging / kIdentityFile;
    if (fs::exists(record) && read_file(record) == identity) {
      uint64_t bytes = 0;
      for (size_t i = 0; i < target.layout.files.size(); ++i) {
        if (fs::exists(staging / target.layout.files[i])) bytes += target.plans[i].size_bytes;
      }
      log::info("going on with the conversion that was interrupted: {} are there",
                format_bytes(bytes));
      return bytes;
    }
    log::warning("{}: left by another conversion that was interrupted; it is removed",
                 staging.string());
    fs::remove_all(staging);
  }
  require_writable_directory(staging);
  write_file_atomic(staging / kIdentityFile, identity);
  return 0;
}

/// A bar in megabytes that several threads push.
class Meter {
 public:
  Meter(const char* title, uint64_t total_bytes)
      : bar_(title, total_bytes / kMega, "MB"), begin_(std::chrono::steady_clock::now()) {}
  void add(uint64_t bytes) { show(done_ += bytes); }
  void show(uint64_t done) { bar_.update(done / kMega); }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  void finish() { bar_.finish(); }

 private:
  ProgressBar bar_;
  std::chrono::steady_clock::time_point begin_;
  std::atomic<uint64_t> done_{0};
};

/// Errors: IoError naming the first difference.
std::vector<TensorDigest> check_copy(const Conversion& conversion, const fs::path& staging) {
  const auto result = conversion.reopen(staging);
  std::map<std::string, DType> dtypes;
  for (const TensorInfo& info : conversion.target.layout.globals) dtypes[info.name] = info.dtype;
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
    throw IoError(fmt::format("the result is not what was converted: {}", check.first->text()),
                  {"the disk may be failing, or this is a fault of danlu: nothing was put in place",
                   "可能是磁盘故障或程序缺陷：未生成任何结果"});
  }
  return std::move(check.digests);
}

}  // namespace

fs::path staging_of(const fs::path& output) {
  return without_slash(output).string() + ".converting";
}

ConversionReport convert(const Conversion& conversion) {
  const fs::path output = without_slash(conversion.output), staging = staging_of(output);
  check_output(conversion, output);
  const MadeDirectory parent(output.parent_path());
  auto lock = FileLock::try_take(staging.string() + ".lock");
  if (!lock) {
    throw IoError(fmt::format("{}: {} is converting to it", output.string(),
                              FileLock::holder(staging.string() + ".lock")));
  }
  const std::string identity = identity_of(conversion);
  ConversionReport report;
  report.reused_bytes = prepare_staging(staging, identity, conversion.target);
  try {
    const uint64_t total = conversion.target.size_bytes();
    report.written_bytes = total - report.reused_bytes;
    require_free_space(staging, report.written_bytes, "the converted checkpoint");
    Meter meter("converting", report.written_bytes);
    write_layout(*conversion.source, conversion.target.layout, conversion.target.plans, staging,
                 {.num_threads = streaming_threads(conversion.num_threads),
                  .on_written = [&](uint64_t bytes) { meter.add(bytes); }});
    report.write_seconds = meter.seconds();
    meter.finish();
    for (const auto& [path, text] : conversion.target.texts)
      write_file_atomic(staging / path, text);
    if (conversion.write_companions) conversion.write_companions(staging);
    if (identity_of(conversion) != identity)
      throw IoError("the source changed while it was converted; the result is not kept");
    if (conversion.reopen) report.digests = check_copy(conversion, staging);
  } catch (const TerminatedError&) {
    throw;  // to be taken up
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception&) {
    // A full disk may be emptied and the rest written; anything else would fail again.
    const bool has_finished =
        std::any_of(conversion.target.layout.files.begin(), conversion.target.layout.files.end(),
                    [&](const std::string& file) { return fs::exists(staging / file); });
    const bool has_all =
        std::all_of(conversion.target.layout.files.begin(), conversion.target.layout.files.end(),
                    [&](const std::string& file) { return fs::exists(staging / file); });
    std::error_code ignored;
    if (!has_finished || has_all) fs::remove_all(staging, ignored);
    throw;
  }
  fs::remove(staging / kIdentityFile);
  if (conversion.output_is_file) {
    fs::rename(staging / conversion.target.layout.files.front(), output);
    fs::remove_all(staging);
  } else {
    publish_directory(staging, output);
  }
  return report;
}

}  // namespace danlu::weights
