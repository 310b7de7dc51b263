#include "base/interrupt.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/log.h"

namespace danlu {
namespace {

std::atomic<int> pending{0}, allowed{1};
// Of the parent process, which may pass on what it got, and of everybody else.
std::atomic<int> from_parent{0}, from_others{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not take a lock");

struct LastWords {
  std::string of_interrupt, of_termination;
  int file = -1;
  bool on_terminal = true;
};
std::atomic<const LastWords*> last_words{nullptr};
static_assert(std::atomic<const LastWords*>::is_always_lock_free);

void say_last_words(int signal_number) {
  const LastWords* const words = last_words;
  if (!words) return;
  const std::string& text = signal_number == SIGTERM ? words->of_termination : words->of_interrupt;
  // Nothing can be done where they cannot be written.
  [[maybe_unused]] ssize_t put = 0;
  if (words->on_terminal) put = ::write(STDERR_FILENO, text.data(), text.size());
  if (words->file >= 0) put = ::write(words->file, text.data(), text.size());
}

void on_signal(int signal_number, siginfo_t* info, void* /*context*/) {
  pending = signal_number;
  const bool is_parents = info->si_code == SI_USER && info->si_pid == ::getppid();
  if (++(is_parents ? from_parent : from_others) <= allowed) return;
  say_last_words(signal_number);
  ::_exit(128 + signal_number);
}

void on_hangup(int signal_number, siginfo_t* /*info*/, void* /*context*/) {
  int none = 0;
  pending.compare_exchange_strong(none, signal_number);
  ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

void watch_interrupts() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO;
    ::sigemptyset(&action.sa_mask);
    // No SA_RESTART: a blocked read (the chat prompt) returns, so that its loop sees the flag.
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    struct sigaction before{};
    ::sigaction(SIGHUP, nullptr, &before);
    action.sa_sigaction = on_hangup;
    if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
  });
}

void allow_second_interrupt() { allowed = 2; }
int interrupts_received() { return std::max(from_parent.load(), from_others.load()); }

void set_last_words(const std::string& text, int file) {
  const std::string line = text.empty() ? "" : text + "\n";
  const auto with_end = [&](int signal) {
    return fmt::format("{}STOPPED (exit {})\n", line, 128 + signal);
  };
  // Those before may be read at this moment: they stay.
  static std::mutex mutex;
  static auto& all = *new std::vector<std::unique_ptr<const LastWords>>;
  const std::lock_guard lock(mutex);
  all.emplace_back(
      new LastWords{with_end(SIGINT), with_end(SIGTERM), file, log::level() < log::Level::kOff});
  last_words = all.back().get();
}

int pending_interrupt() { return pending.load(); }
void clear_interrupt() {
  pending.store(0);
  from_parent.store(0);
  from_others.store(0);
}

const char* interrupt_name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGHUP ? "SIGHUP" : "SIGINT";
}

void throw_interrupted(int signal, const std::string& message, const std::string& hint) {
  if (signal == SIGTERM) throw TerminatedError(message, hint);
  if (signal == SIGHUP) throw HungUpError(message, hint);
  throw InterruptedError(message, hint);
}

}  // namespace danlu
