// board/run_state.h: how a run stands, read from what it leaves in its directory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace danlu::board {

enum class RunState { kRunning, kFinished, kStopped, kDiverged, kFailed };

/// "running", …: what the interface calls it.
const char* state_name(RunState state);

struct RunStanding {
  RunState state = RunState::kStopped;
  std::optional<int> exit_code;  ///< what the log says at its end
  std::string holder;            ///< "process 12 on HOST", of a run that another process trains
};

/// RUN/DONE: finished. Else running, if the process that the directory's lock names lives; one of
/// another machine is believed as long as the run's files change (kBelieved_s). Else what the last
/// line of train.log says of the exit code: 9 diverged, a signal's stopped, others failed; without
/// such a line the run was killed: stopped. `changed_ns`: when its files changed last, since 1970;
/// `is_complete`: its log has reached its last step, which finishes runs of programs that leave no
/// DONE. Takes no lock, so it never stands in a run's way.
RunStanding standing_of(const std::filesystem::path& run, int64_t changed_ns, bool is_complete);

inline constexpr int64_t kBelieved_s = 900;

}  // namespace danlu::board
