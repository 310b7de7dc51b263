// `danlu launch --nproc N -- COMMAND`: the same command in several processes that train together.
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
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/free_port.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/commands/commands.h"

namespace danlu::cli {

OptionTable launch_options() {
  return OptionTable("launch", "run a training command in several processes that share its work",
                     "danlu launch --nproc N [--master_port PORT] COMMAND --flag value …",
                     {{.name = "nproc",
                       .type = OptionType::kInt,
                       .help = "processes on this machine",
                       .aliases = {"nproc_per_node"},
                       .range = at_least(1).up_to(1024),
                       .group = "Launch",
                       .environment = "NPROC_PER_NODE"},
                      {.name = "nnodes",
                       .type = OptionType::kInt,
                       .default_text = "1",
                       .help = "machines; the command is launched on each",
                       .range = at_least(1).up_to(10000),
                       .group = "Launch",
                       .environment = "NNODES"},
                      {.name = "node_rank",
                       .type = OptionType::kInt,
                       .default_text = "0",
                       .help = "number of this machine",
                       .range = at_least(0),
                       .group = "Launch",
                       .environment = "NODE_RANK"},
                      {.name = "master_addr",
                       .default_text = "127.0.0.1",
                       .help = "address of machine 0",
                       .group = "Launch",
                       .environment = "MASTER_ADDR"},
                      {.name = "master_port",
                       .type = OptionType::kInt,
                       .help = "a free port of machine 0 (default with one machine: any)",
                       .range = at_least(1).up_to(65535),
                       .group = "Launch",
                       .environment = "MASTER_PORT"}});
}

namespace {

struct Place {
  int64_t nproc, nnodes, node_rank, master_port;
  std::string master_address;
};

/// One rank of this machine.
struct Rank {
  pid_t pid = -1;
  int64_t number = 0;
  int output = -1;   ///< reads what it says; rank 0 has the terminal
  std::string said;  ///< the end of it
  bool ended = false;
  int stopped_by = 0;  ///< a signal that holds it up
  int status = 0;
};

Place place_from(const Options& options) {
  Place place;
  if (!options.has_value("nproc")) {
    throw UsageError(tr("[launch] how many processes? --nproc is missing"),
                     tr("danlu launch --nproc 2 sft --model DIR --dataset FILE …"));
  }
  place.nproc = options.get_int("nproc");
  place.nnodes = options.get_int("nnodes");
  place.node_rank = options.get_int("node_rank");
  if (place.node_rank >= place.nnodes) {
    throw UsageError(tr("[launch] {} {}: machines are counted from 0, and --nnodes is {}",
                        options.given_as("node_rank"), place.node_rank, place.nnodes));
  }
  place.master_address = options.get_string("master_addr");
  // A variable that another job left is not this machine's address.
  if (place.nnodes == 1 && options.source("master_addr") == OptionSource::kEnvironment)
    place.master_address = "127.0.0.1";
  if (!options.has_value("master_port") && place.nnodes > 1) {
    throw UsageError(tr("[launch] several machines must agree on a port: --master_port"),
                     tr("a port that is free on machine 0, the same in every machine's line"));
  }
  if (place.nnodes > 1 && options.source("master_addr") == OptionSource::kDefault) {
    throw UsageError(tr("[launch] several machines must know machine 0: --master_addr"),
                     tr("an address of machine 0 that the others reach"));
  }
  std::optional<int64_t> port;
  if (options.has_value("master_port")) port = options.get_int("master_port");
  if (!port) port = free_port();
  if (!port) throw IoError(tr("[launch] there is no free port: {}", std::strerror(errno)));
  place.master_port = *port;
  return place;
}

/// In the child, between fork and exec.
[[noreturn]] void become_rank(const Place& place, int64_t local_rank, int output, pid_t launcher,
                              std::vector<char*>& words) {
  const auto set = [](const char* name, int64_t value, bool overwrite = true) {
    ::setenv(name, std::to_string(value).c_str(), overwrite);
  };
  set("RANK", place.node_rank * place.nproc + local_rank);
  set("WORLD_SIZE", place.nproc * place.nnodes);
  set("LOCAL_RANK", local_rank);
  set("LOCAL_WORLD_SIZE", place.nproc);
  set("MASTER_PORT", place.master_port);
  ::setenv("MASTER_ADDR", place.master_address.c_str(), 1);
  set("OMP_NUM_THREADS",
      std::max<int64_t>(1, static_cast<int64_t>(default_thread_count()) / place.nproc), false);
  // The launcher's end, whatever ends it, is the ranks' end.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != launcher) ::_exit(127);
  ::setpgid(0, 0);
  // A group in the background may write to the terminal, and is not stopped for it.
  ::signal(SIGTTOU, SIG_IGN);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  if (output >= 0) {
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
  }
  ::execv("/proc/self/exe", words.data());
  ::_exit(127);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : std::to_string(signal);
}

class Launch {
 public:
  Launch(const Place& place, const std::vector<std::string>& command) : place_(place) {
    words_.push_back("danlu");
    words_.insert(words_.end(), command.begin(), command.end());
    for (std::string& word : words_) arguments_.push_back(word.data());
    arguments_.push_back(nullptr);
  }

  ~Launch() {
    for (Rank& rank : ranks_) close_output(rank);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  int run() {
    watch_interrupts();
    ::signal(SIGCHLD, SIG_DFL);  // ignored, the system would take the ends of ranks away
    ranks_.reserve(static_cast<size_t>(place_.nproc));
    for (int64_t i = 0; i < place_.nproc; ++i) start(i);
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
  static constexpr double kGraceSeconds = 5;  ///< to end by themselves, then after SIGTERM
  static constexpr size_t kKept = 4000;       ///< bytes of what a rank says

  void start(int64_t local_rank) {
    Rank rank;
    rank.number = place_.node_rank * place_.nproc + local_rank;
    int ends[2] = {-1, -1};
    // Rank 0 of the job speaks for all.
    if (rank.number > 0 && ::pipe2(ends, O_CLOEXEC) != 0) {
      const std::string why = std::strerror(errno);
      signal_all(SIGKILL);
      throw IoError(tr("[launch] no pipe for rank {}: {}", rank.number, why));
    }
    const pid_t launcher = ::getpid();
    rank.pid = ::fork();
    if (rank.pid == 0) become_rank(place_, local_rank, ends[1], launcher, arguments_);
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
      const pid_t got = ::waitpid(rank.pid, &rank.status, WNOHANG | WUNTRACED);
      if (got == 0 || (got < 0 && errno != ECHILD)) continue;
      if (WIFSTOPPED(rank.status)) {
        // The others would wait for it without end.
        rank.stopped_by = WSTOPSIG(rank.status);
        ::kill(rank.pid, SIGKILL);
        continue;
      }
      rank.ended = true;
      if (rank.status == 0) continue;
      if (!first_failed_) failed_at_ = steady_now_s();
      // Who fails because another is gone may be seen before it.
      if (!first_failed_ || weight_of(rank) > weight_of(*first_failed_)) first_failed_ = &rank;
    }
  }

  /// How likely a rank's end is the cause of the others': what was done to it, an error of its own,
  /// one of communication.
  int weight_of(const Rank& rank) const {
    if (rank.stopped_by != 0) return 3;
    if (WIFSIGNALED(rank.status)) return sent_ == 0 ? 3 : 0;
    return WEXITSTATUS(rank.status) == static_cast<int>(ExitCode::kComm) ? 1 : 2;
  }

  void pass_on_signals() {
    const int signal = pending_interrupt();
    if (signal == 0 || signal == passed_on_) return;
    passed_on_ = signal;
    signal_all(signal);
  }

  /// A rank that failed is the end of all: the others notice by themselves, or are ended.
  void end_stragglers() {
    // After a signal ranks save, and leave together.
    if (!first_failed_ || obeyed(*first_failed_)) return;
    const double waited = steady_now_s() - failed_at_;
    const int signal = waited > 2 * kGraceSeconds ? SIGKILL : waited > kGraceSeconds ? SIGTERM : 0;
    if (signal == 0 || signal == sent_) return;
    sent_ = signal;
    signal_all(signal);
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
      throw CommError(tr("[launch] rank {} (process {}) was stopped by {}; all ranks are ended",
                         rank.number, rank.pid, signal_name(rank.stopped_by)),
                      tr("where a checkpoint was saved the same command goes on from it"));
    }
    if (WIFSIGNALED(rank.status)) {
      throw CommError(tr("[launch] rank {} (process {}) was ended by {}", rank.number, rank.pid,
                         signal_name(WTERMSIG(rank.status))),
                      WTERMSIG(rank.status) == SIGKILL
                          ? tr("the system does so for want of memory; where a checkpoint was "
                               "saved the same command goes on from it")
                          : tr("where a checkpoint was saved the same command goes on from it"));
    }
    const int code = WEXITSTATUS(rank.status);
    // Rank 0 has said what there is to say.
    if (rank.number > 0) {
      log::write(log::Level::kInfo, tr("rank {} failed first; it said:\n{}", rank.number,
                                       rank.said.empty() ? "-" : rank.said));
    }
    return code;
  }

  Place place_;
  std::vector<std::string> words_;
  std::vector<char*> arguments_;
  std::vector<Rank> ranks_;
  const Rank* first_failed_ = nullptr;
  double failed_at_ = 0;
  int passed_on_ = 0, sent_ = 0;
};

}  // namespace

int run_launch(const Options& options) {
  const std::vector<std::string>& words = options.positional();
  const Command* command = words.empty() ? nullptr : find_command(words.front());
  if (!command) {
    throw UsageError(words.empty() ? tr("[launch] which command? none is named")
                                   : tr("[launch] danlu has no command '{}'", words.front()),
                     tr("danlu launch --nproc 2 sft --model DIR --dataset FILE …"));
  }
  if (!command->trains) {
    throw UsageError(
        tr("[launch] danlu {} is one process; only training is divided", command->name),
        tr("run it without launch"));
  }
  return Launch(place_from(options), words).run();
}

}  // namespace danlu::cli
