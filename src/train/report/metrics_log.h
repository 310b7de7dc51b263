// train/report/metrics_log.h: logging.jsonl, one object per line, continued correctly after a
// restart.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace danlu::train {

/// Appends objects to a file, each line complete on disk when append() returns.
class MetricsLog {
 public:
  /// Keeps the lines of steps <= `start_step` of an existing file and drops the rest: later steps
  /// that a resumed run repeats, lines without a step (summaries), and a line that a crash left
  /// unfinished. start_step 0 begins anew. Errors: IoError.
  MetricsLog(std::filesystem::path path, int64_t start_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  void append(const Json& line);
  /// Whether the file is still the one that is written to.
  bool is_there() const;
  /// Makes it anew, with these lines, an array of objects. Errors: IoError.
  void write_again(const Json& lines);

 private:
  void open();

  std::filesystem::path path_;
  int fd_ = -1;
};

/// (step, value) of every number in a logging.jsonl, by key; lines that do not parse are skipped.
/// Errors: IoError.
std::map<std::string, std::vector<std::pair<int64_t, double>>> read_metrics(
    const std::filesystem::path& path);

}  // namespace danlu::train
