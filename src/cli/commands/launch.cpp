// `danlu launch --nproc N -- COMMAND`, and COMMAND --nproc N: the same command in several processes
// that train together.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/control_group.h"
#include "base/cpu_affinity.h"
#include "base/error.h"
#include "base/free_port.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/command.h"
#include "cli/commands/commands.h"
#include "cli/commands/train_options.h"
#include "cli/job_place.h"
#include "cli/rendezvous.h"
#include "doctor/devices.h"
#include "doctor/ports.h"

namespace danlu::cli {

OptionTable launch_options() {
  return OptionTable("launch", "run a training command in several processes that share its work",
                     "danlu launch --nproc N [--master_port PORT] COMMAND --flag value …",
                     train_launch_options());
}

namespace {

/// One rank of this machine.
struct Rank {
  pid_t pid = -1;
  int64_t number = 0;
  int output = -1;   ///< reads what it says; the first of a machine has the terminal
  std::string said;  ///< the end of it
  bool ended = false;
  int stopped_by = 0;     ///< a signal that holds it up, or that it was ended for
  double stopped_at = 0;  ///< while it does
  int status = 0;
};

/// The threads of a rank that its environment says nothing of: a part of this process's, or its own
/// processors.
size_t threads_of_rank(const JobPlace& place, int64_t local_rank) {
  const size_t share = default_thread_count() / static_cast<size_t>(place.nproc);
  const CpuAffinity affinity = cpu_affinity_from_environment();
  static const NearProcessors near =
      affinity.by_card ? doctor::processors_near_npus(doctor::SystemRoots::of_this_machine())
                       : NearProcessors();
  const CpuBinding binding =
      cpu_binding(affinity, local_rank, place.nproc, online_cpus(), allowed_cpus(), near);
  if (binding.processors.empty()) return std::max<size_t>(1, share);
  const size_t own = binding.processors.size(), quota = cpu_quota();
  if (quota == 0) return own;
  return std::min(own, std::max<size_t>(1, quota / static_cast<size_t>(place.nproc)));
}

/// This process's environment, and a rank's place.
std::vector<std::string> environment_of(const JobPlace& place, int64_t local_rank) {
  std::map<std::string, std::string> values;
  for (char** line = environ; *line; ++line) {
    const std::string text = *line;
    const size_t end = text.find('=');
    if (end != text.npos) values.try_emplace(text.substr(0, end), text.substr(end + 1));
  }
  if (std::string& threads = values["OMP_NUM_THREADS"]; threads.empty())
    threads = std::to_string(threads_of_rank(place, local_rank));
  values["RANK"] = std::to_string(place.first_rank + local_rank);
  values["WORLD_SIZE"] = std::to_string(place.world);
  values["LOCAL_RANK"] = std::to_string(local_rank);
  values["LOCAL_WORLD_SIZE"] = std::to_string(place.nproc);
  values["MASTER_PORT"] = std::to_string(place.master_port);
  values["MASTER_ADDR"] = place.master_address;
  std::vector<std::string> lines;
  for (const auto& [name, value] : values) lines.push_back(fmt::format("{}={}", name, value));
  return lines;
}

/// The words as exec takes them.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// In the child, between fork and exec: another thread may have held a lock of the allocator or of
/// the environment, so neither is touched.
[[noreturn]] void become_rank(int output, bool talks, pid_t launcher, char* const* words,
                              char* const* environment) {
  // The launcher's end, whatever ends it, is the ranks' end.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != launcher) ::_exit(127);
  // Who talks stays in the terminal's own group: others may not read what is typed.
  if (!talks) {
    ::setpgid(0, 0);
    // A group in the background may write to the terminal, and is not stopped for it.
    ::signal(SIGTTOU, SIG_IGN);
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  }
  if (output >= 0) {
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
  }
  ::execve("/proc/self/exe", words, environment);
  ::_exit(127);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : std::to_string(signal);
}

class Launch {
 public:
  /// talks: rank 0 reads standard input, and a Ctrl-C is for it alone, where it is one of these.
  Launch(const JobPlace& place, const std::vector<std::string>& command, bool talks)
      : place_(place), talks_(talks && place.first_rank == 0) {
    words_.push_back("danlu");
    words_.insert(words_.end(), command.begin(), command.end());
    arguments_ = pointers_to(words_);
  }

  ~Launch() {
    for (Rank& rank : ranks_) close_output(rank);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  int run() {
    watch_interrupts();
    allow_second_interrupt();    // the ranks end by it, and say what they leave
    ::signal(SIGCHLD, SIG_DFL);  // ignored, the system would take the ends of ranks away
    ranks_.reserve(static_cast<size_t>(place_.nproc));
    for (int64_t i = 0; i < place_.nproc; ++i) start(i);
    if (talks_) ::signal(SIGINT, SIG_IGN);  // the terminal gives it to rank 0, too
    while (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.ended; })) {
      listen();
      reap();
      pass_on_signals();
      end_stragglers();
    }
    for (Rank& rank : ranks_) drain(rank);
    return report();
  }

 private:
  // The ranks' own watch finds a silent rank after six seconds and says where it was, in less than
  // nine.
  static constexpr double kStoppedSeconds = 6;
  static constexpr double kGraceSeconds = 9;
  static constexpr size_t kKept = 4000;  ///< bytes of what a rank says

  void start(int64_t local_rank) {
    Rank rank;
    rank.number = place_.first_rank + local_rank;
    int ends[2] = {-1, -1};
    // The first speaks for all of this machine: rank 0 of the job says everything, the others whom
    // they wait for and why they end.
    if (local_rank > 0 && ::pipe2(ends, O_CLOEXEC) != 0) {
      const std::string why = std::strerror(errno);
      signal_all(SIGKILL);
      throw IoError(tr("[launch] no pipe for rank {}: {}", rank.number, why));
    }
    std::vector<std::string> lines = environment_of(place_, local_rank);
    const std::vector<char*> environment = pointers_to(lines);
    const pid_t launcher = ::getpid();
    rank.pid = ::fork();
    if (rank.pid == 0) {
      become_rank(ends[1], talks_ && rank.number == 0, launcher, arguments_.data(),
                  environment.data());
    }
    if (ends[1] >= 0) ::close(ends[1]);
    rank.output = ends[0];
    if (rank.pid < 0) {
      const std::string why = std::strerror(errno);
      signal_all(SIGKILL);
      throw IoError(tr("[launch] rank {} cannot be started: {}", rank.number, why));
    }
    ranks_.push_back(std::move(rank));
  }

  /// Waits a moment for what ranks say.
  void listen() {
    std::vector<pollfd> places;
    for (const Rank& rank : ranks_) {
      if (rank.output >= 0) places.push_back({rank.output, POLLIN, 0});
    }
    constexpr int kMilliseconds = 50;
    if (::poll(places.data(), places.size(), kMilliseconds) <= 0) return;
    for (Rank& rank : ranks_) {
      const auto ready = std::find_if(places.begin(), places.end(), [&](const pollfd& p) {
        return p.fd == rank.output && p.revents != 0;
      });
      if (ready == places.end()) continue;
      hear(rank);
    }
  }

  /// Reads once; false at the end.
  static bool hear(Rank& rank) {
    char buffer[4096];
    const ssize_t got = ::read(rank.output, buffer, sizeof(buffer));
    if (got <= 0) {
      if (got == 0) close_output(rank);
      return got < 0 && errno == EINTR;
    }
    rank.said.append(buffer, static_cast<size_t>(got));
    if (rank.said.size() > kKept) rank.said.erase(0, rank.said.size() - kKept);
    return true;
  }

  /// What it said last, before it ended.
  static void drain(Rank& rank) {
    while (rank.output >= 0) {
      pollfd place{rank.output, POLLIN, 0};
      // What a rank has started may hold the pipe open.
      if (::poll(&place, 1, 0) <= 0 || !hear(rank)) return;
    }
  }

  static void close_output(Rank& rank) {
    if (rank.output >= 0) ::close(rank.output);
    rank.output = -1;
  }

  void reap() {
    for (Rank& rank : ranks_) {
      if (rank.ended) continue;
      const pid_t got = ::waitpid(rank.pid, &rank.status, WNOHANG | WUNTRACED | WCONTINUED);
      if (got == 0) {
        end_if_stopped(rank);
        continue;
      }
      if (got < 0 && errno != ECHILD) continue;
      if (WIFSTOPPED(rank.status) || WIFCONTINUED(rank.status)) {
        rank.stopped_by = WIFSTOPPED(rank.status) ? WSTOPSIG(rank.status) : 0;
        rank.stopped_at = steady_now_s();
        continue;
      }
      rank.ended = true;
      if (rank.status == 0) continue;
      if (!first_failed_) failed_at_ = steady_now_s();
      if (is_lost(rank)) log::warning("{}; {}", ended_by_signal(rank), why_ended(rank));
      // Who fails because another is gone may be seen before it.
      if (!first_failed_ || weight_of(rank) > weight_of(*first_failed_)) first_failed_ = &rank;
    }
  }

  /// A debugger's moment is forgiven. For longer the others do not wait, and it could not end.
  static void end_if_stopped(const Rank& rank) {
    if (rank.stopped_by != 0 && steady_now_s() - rank.stopped_at > kStoppedSeconds)
      ::kill(rank.pid, SIGKILL);
  }

  /// How likely a rank's end is the cause of the others': what was done to it, an error of its own,
  /// one of communication.
  int weight_of(const Rank& rank) const {
    if (rank.stopped_by != 0) return 3;
    if (WIFSIGNALED(rank.status)) return killed_ ? 0 : 3;
    return WEXITSTATUS(rank.status) == static_cast<int>(ExitCode::kComm) ? 1 : 2;
  }

  /// Whether a signal ended it that this launcher did not send.
  bool is_lost(const Rank& rank) const {
    return WIFSIGNALED(rank.status) && rank.stopped_by == 0 && !killed_ && !obeyed(rank);
  }
  static std::string ended_by_signal(const Rank& rank) {
    return tr("[launch] rank {} (process {}) was ended by {}", rank.number, rank.pid,
              signal_name(WTERMSIG(rank.status)));
  }
  static std::string why_ended(const Rank& rank) {
    return WTERMSIG(rank.status) == SIGKILL
               ? tr("the system does so for want of memory; where a checkpoint or answers were "
                    "saved the same "
                    "command goes on from them")
               : tr("where a checkpoint or answers were saved the same command goes on from them");
  }
  /// Whether rank 0 ended with `code`, and has so said what there is to say, of another rank too.
  bool first_has_said(int code) const {
    const Rank& first = ranks_.front();
    return WIFEXITED(first.status) && WEXITSTATUS(first.status) == code;
  }

  void pass_on_signals() {
    const int signal = pending_interrupt();
    const bool again = num_passed_on_ < interrupts_received();
    if (signal == 0 || (signal == passed_on_ && !again)) return;
    passed_on_ = signal;
    num_passed_on_ += again ? 1 : 0;
    signal_all(signal);
  }

  /// A rank that failed is the end of all: the others notice by themselves, or are ended.
  void end_stragglers() {
    // After a signal ranks save, and leave together.
    if (!first_failed_ || obeyed(*first_failed_)) return;
    if (killed_ || steady_now_s() - failed_at_ < kGraceSeconds) return;
    killed_ = true;
    signal_all(SIGKILL);
  }

  void signal_all(int signal) const {
    for (const Rank& rank : ranks_) {
      if (!rank.ended) ::kill(rank.pid, signal);
    }
  }

  /// Whether a rank ended as the signal that was passed on to it asks.
  bool obeyed(const Rank& rank) const {
    if (passed_on_ == 0 || rank.stopped_by != 0) return false;
    return WIFSIGNALED(rank.status) ? WTERMSIG(rank.status) == passed_on_
                                    : WEXITSTATUS(rank.status) == 128 + passed_on_;
  }

  int report() const {
    if (!first_failed_) return 0;
    const Rank& rank = *first_failed_;
    if (obeyed(rank)) {
      const Rank& first = ranks_.front();
      const bool said = obeyed(first) && !WIFSIGNALED(first.status);
      if (said) return 128 + passed_on_;
      throw_interrupted(passed_on_, tr("[launch] stopped by {}", interrupt_name(passed_on_)));
    }
    if (rank.stopped_by != 0) {
      throw CommError(
          tr("[launch] rank {} (process {}) was stopped by {}; all ranks are ended", rank.number,
             rank.pid, signal_name(rank.stopped_by)),
          tr("where a checkpoint or answers were saved the same command goes on from them"));
    }
    constexpr int kLost = static_cast<int>(ExitCode::kComm);
    if (WIFSIGNALED(rank.status)) {
      if (first_has_said(kLost)) return kLost;
      throw CommError(ended_by_signal(rank), why_ended(rank));
    }
    const int code = WEXITSTATUS(rank.status);
    if (!first_has_said(code)) {
      log::write(log::Level::kInfo, tr("rank {} failed first; it said:\n{}", rank.number,
                                       rank.said.empty() ? "-" : rank.said));
    }
    return code;
  }

  JobPlace place_;
  const bool talks_;
  std::vector<std::string> words_;
  std::vector<char*> arguments_;
  std::vector<Rank> ranks_;
  const Rank* first_failed_ = nullptr;
  double failed_at_ = 0;
  int passed_on_ = 0, num_passed_on_ = 0;
  bool killed_ = false;
};

}  // namespace

namespace {

/// A command that one process does, in place of this one, whose terminal it keeps.
int run_first(const Options& options, std::vector<std::string> words) {
  if (options.get_int_or("node_rank", 0) > 0) {
    log::info("danlu {}: the first machine answers, there is nothing to do on this one", words[0]);
    return 0;
  }
  log::info(
      "danlu {}: one process reads the whole model and answers, whatever split it is stored in",
      words[0]);
  words.insert(words.begin(), "danlu");
  ::execv("/proc/self/exe", pointers_to(words).data());
  throw IoError(tr("[launch] danlu cannot be started: {}", std::strerror(errno)));
}

/// What the line after a command's name means.
Options options_of(const Command& command, const std::vector<std::string>& words) {
  log::HeldNotices unsaid;  // the ranks say them
  const Options options =
      command.options().parse({words.begin() + 1, words.end()}, command.accepts_config);
  unsaid.drop();
  return options;
}

/// Whether that asks for a model in parts.
bool asks_for_parts(const Command& command, const std::vector<std::string>& words) {
  return command.divides_model && is_divided(command, options_of(command, words));
}

}  // namespace

int run_launch(const Options& options) {
  const std::vector<std::string>& words = options.positional();
  const Command* command = words.empty() ? nullptr : find_command(words.front());
  if (!command) {
    throw UsageError(words.empty() ? tr("[launch] which command? none is named")
                                   : tr("[launch] danlu has no command '{}'", words.front()),
                     tr("danlu launch --nproc 2 sft --model DIR --dataset FILE …"));
  }
  const bool divides = asks_for_parts(*command, words);
  if (command->first_does_all && !divides) return run_first(options, words);
  if (!has_ranks(*command) && !divides) {
    throw UsageError(
        tr("[launch] danlu {} is one process; training and eval are divided", command->name),
        tr("run it without launch"));
  }
  constexpr const char* kOfTheLauncher[] = {"--max_restarts", "--max-restarts", "--min_ranks",
                                            "--min-ranks",    "--hostfile",     "--rdzv_timeout"};
  for (const std::string& word : words) {
    const std::string flag = word.substr(0, word.find('='));
    if (std::find(std::begin(kOfTheLauncher), std::end(kOfTheLauncher), flag) ==
        std::end(kOfTheLauncher))
      continue;
    throw UsageError(
        tr("[launch] {} behind {}: the launcher would not see it", flag, words.front()),
        tr("danlu launch {} … {} …", flag, words.front()));
  }
  if (!says_how_many(options)) {
    throw UsageError(tr("[launch] how many processes? --nproc is missing"),
                     tr("danlu launch --nproc 2 sft --model DIR --dataset FILE …"));
  }
  return launch_job(options, words);
}

namespace {

/// Ranks would come one by one to a port where nobody of theirs listens, and wait for each other.
/// Errors: CommError with one that is free.
void require_free_port(const JobPlace& place) {
  if (place.node != 0 || place.world < 2) return;
  if (const int error = doctor::try_port(place.master_port); error == EADDRINUSE) {
    throw CommError(
        tr("[launch] port {} of this machine is taken: another program, or another job, "
           "listens there",
           place.master_port),
        tr("--master_port {} is free; ss -ltnp shows who listens", free_port().value_or(0)));
  }
}

/// The place of this machine in the job's next life; waits for the other machines where they meet.
JobPlace begin_life(JobPlace place, Life& life) {
  if (place.meets()) {
    life = meet_machines(place, life);
    if (!life.missing.empty()) {
      log::warning("{}: the job goes on with {} of its {} ranks", life.missing, life.world,
                   place.world);
    }
    place.first_rank = life.first_rank;
    place.master_port = life.port;
  }
  ::setenv("DANLU_RESTARTS", std::to_string(life.number).c_str(), 1);
  ::setenv("DANLU_JOB", life.job.c_str(), 1);
  ::setenv("DANLU_JOB_RANKS", std::to_string(place.world).c_str(), 1);
  if (place.meets()) place.world = life.world;
  return place;
}

}  // namespace

int launch_job(const Options& options, const std::vector<std::string>& command) {
  const Command* launched = command.empty() ? nullptr : find_command(command.front());
  if (launched && launched->trains) log::take_pipe();
  const bool talks = launched && launched->talks && launched->talks(options_of(*launched, command));
  (void)default_thread_count();  // what is wrong with it is said once, not by every rank
  Life life{.job = new_job_name()};
  std::unique_ptr<Rendezvous> rendezvous;
  watch_interrupts();
  while (true) {
    const JobPlace given = job_place_from(options);
    if (life.number == 0) require_free_port(given);
    if (given.meets() && given.node == 0 && !rendezvous)
      rendezvous = std::make_unique<Rendezvous>(given);
    const JobPlace place = begin_life(given, life);
    const bool last = life.number >= place.max_restarts;
    std::string why = tr("[launch] the job failed (exit 7)");
    try {
      const int code = Launch(place, command, talks).run();
      if (last || code != static_cast<int>(ExitCode::kComm)) return code;
    } catch (const CommError& error) {
      if (last) throw;
      why = error.what();
    }
    if (const int signal = pending_interrupt())
      throw_interrupted(signal, tr("[launch] stopped by {}", interrupt_name(signal)));
    ++life.number;
    log::warning("{}; it begins again from its newest checkpoint: restart {} of {}", why,
                 life.number, place.max_restarts);
  }
}

}  // namespace danlu::cli
