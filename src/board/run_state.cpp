#include "board/run_state.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/failure.h"
#include "board/line_follower.h"

namespace danlu::board {
namespace {

constexpr const char* kLockFile = ".danlu.lock";  // base/new_output.cpp
constexpr int64_t kNs = 1'000'000'000;
constexpr size_t kEndOfLog = 4096;

int64_t wall_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// When the machine was started, in seconds since 1970; 0: unknown.
int64_t boot_time_s() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

/// Seconds since 1970; nothing where the system does not tell.
std::optional<int64_t> started_at_s(int64_t pid) {
  static const int64_t kBoot = boot_time_s();
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == text.npos || kBoot == 0) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  const long ticks = ::sysconf(_SC_CLK_TCK);
  return kBoot + std::atoll(field.c_str()) / (ticks > 0 ? ticks : 100);
}

/// A process that began later than the lock was written is another one of that number.
bool lives(int64_t pid, int64_t lock_written_ns) {
  if (pid <= 0) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno != EPERM) return false;
  const auto started = started_at_s(pid);
  return !started || *started <= lock_written_ns / kNs + 2;
}

std::optional<int> exit_code_in_log(const std::filesystem::path& run) {
  const auto stamp = stamp_of(run / "train.log");
  if (!stamp) return std::nullopt;
  const uint64_t from = stamp->size_bytes > kEndOfLog ? stamp->size_bytes - kEndOfLog : 0;
  const std::string end = read_part(run / "train.log", from, kEndOfLog).value_or("");
  const size_t last = end.find_last_not_of("\n\r ");
  if (last == end.npos) return std::nullopt;
  const size_t begin = end.rfind('\n', last);
  return exit_code_said(std::string_view(end).substr(
      begin == end.npos ? 0 : begin + 1, last - (begin == end.npos ? 0 : begin + 1) + 1));
}

RunState state_after(int exit_code) {
  if (exit_code == static_cast<int>(ExitCode::kNumeric)) return RunState::kDiverged;
  return is_stop(static_cast<ExitCode>(exit_code)) ? RunState::kStopped : RunState::kFailed;
}

/// Who holds the directory, if he trains there; "" if nobody does.
std::string living_holder(const std::filesystem::path& run, int64_t changed_ns) {
  const auto stamp = stamp_of(run / kLockFile);
  if (!stamp) return "";
  std::istringstream text(read_part(run / kLockFile, 0, 512).value_or(""));
  int64_t pid = 0;
  std::string host;
  if (!(text >> pid >> host)) return "";
  const bool is_here = host == host_name();
  const bool is_believed = wall_now_ns() - changed_ns < kBelieved_s * kNs;
  if (is_here ? !lives(pid, stamp->changed_ns) : !is_believed) return "";
  return is_here ? fmt::format("process {}", pid) : fmt::format("process {} on {}", pid, host);
}

}  // namespace

const char* state_name(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kFinished:
      return "finished";
    case RunState::kStopped:
      return "stopped";
    case RunState::kDiverged:
      return "diverged";
    case RunState::kFailed:
      return "failed";
  }
  return "";
}

RunStanding standing_of(const std::filesystem::path& run, int64_t changed_ns, bool is_complete) {
  RunStanding standing;
  if (stamp_of(run / "DONE")) {
    standing.state = RunState::kFinished;
    return standing;
  }
  standing.holder = living_holder(run, changed_ns);
  if (!standing.holder.empty()) {
    standing.state = RunState::kRunning;
    return standing;
  }
  standing.exit_code = exit_code_in_log(run);
  if (standing.exit_code) {
    standing.state = state_after(*standing.exit_code);
    return standing;
  }
  const bool is_ours = stamp_of(run / "sft_args.json") && stamp_of(run / "config.yaml");
  if (is_complete && !is_ours) {
    standing.state = RunState::kFinished;
  } else if (!is_ours && wall_now_ns() - changed_ns < kBelieved_s * kNs) {
    standing.state = RunState::kRunning;  // another program's, which leaves no lock
  }
  return standing;
}

}  // namespace danlu::board
