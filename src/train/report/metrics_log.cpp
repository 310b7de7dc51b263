#include "train/report/metrics_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"

namespace danlu::train {
namespace {

/// Calls visit(text, object) for each complete line that holds an object.
template <typename Visit>
void for_each_object(const std::string& content, Visit visit) {
  for (size_t at = 0; at < content.size();) {
    const size_t end = content.find('\n', at);
    if (end == std::string::npos) return;
    const std::string text = content.substr(at, end - at);
    at = end + 1;
    const auto object = try_parse_json(text);
    if (object && object->is_object()) visit(text, *object);
  }
}

std::optional<int64_t> step_of(const Json& object) {
  const auto step = object.find("global_step");
  if (step != object.end() && step->is_number_integer()) return step->get<int64_t>();
  return std::nullopt;
}

}  // namespace

MetricsLog::MetricsLog(fs::path path, int64_t start_step) : path_(std::move(path)) {
  std::string kept;
  if (start_step > 0 && fs::exists(path_)) {
    for_each_object(read_file(path_), [&](const std::string& text, const Json& object) {
      const auto step = step_of(object);
      if (step && *step <= start_step) kept += text + "\n";
    });
  }
  write_file_atomic(path_, kept);
  open();
}

MetricsLog::~MetricsLog() { ::close(fd_); }

void MetricsLog::open() {
  const int fd = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) throw IoError(tr("{}: cannot open: {}", path_.string(), std::strerror(errno)));
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

bool MetricsLog::is_there() const { return has_name(fd_, path_.c_str()); }

void MetricsLog::write_again(const Json& lines) {
  std::string text;
  for (const Json& line : lines) text += dump_text(line) + "\n";
  write_file_atomic(path_, text);
  open();
}

void MetricsLog::append(const Json& line) {
  const std::string text = dump_text(line) + "\n";
  // One write for the whole line: readers that follow the file never see half of it.
  write_all_or_throw(
      fd_, text, path_,
      tr("free some space; where a checkpoint was saved the same command goes on from it"));
}

std::map<std::string, std::vector<std::pair<int64_t, double>>> read_metrics(const fs::path& path) {
  std::map<std::string, std::vector<std::pair<int64_t, double>>> series;
  for_each_object(read_file(path), [&](const std::string&, const Json& object) {
    const auto step = step_of(object);
    if (!step) return;
    for (const auto& item : object.items()) {
      if (item.key() == "global_step") continue;
      // JSON has no NaN: it is written as null, and is a gap in the picture.
      if (item.value().is_number()) {
        series[item.key()].emplace_back(*step, item.value().get<double>());
      } else if (item.value().is_null()) {
        series[item.key()].emplace_back(*step, std::numeric_limits<double>::quiet_NaN());
      }
    }
  });
  return series;
}

}  // namespace danlu::train
