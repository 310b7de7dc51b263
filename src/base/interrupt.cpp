#include "base/interrupt.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace danlu {
namespace {

std::atomic<int> pending{0}, allowed{1};
// Signals from the parent process, which may pass on what it got, and from everybody else.
std::atomic<int> from_parent{0}, from_others{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not take a lock");

struct LastWords {
  std::string of_interrupt, of_termination;
  int file = -1;
  bool on_terminal = true;
};
std::atomic<const LastWords*> last_words{nullptr};
std::atomic<bool> line_is_open{false};
static_assert(std::atomic<bool>::is_always_lock_free);
static_assert(std::atomic<const LastWords*>::is_always_lock_free);

/// Nothing can be done where it cannot be written; nobody waits for a reader that does not read.
void write_now(int file, std::string_view text) {
  pollfd ready{.fd = file, .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, /*timeout=*/0) != 1 || !(ready.revents & POLLOUT)) return;
  [[maybe_unused]] const ssize_t put = ::write(file, text.data(), text.size());
}

std::string words_of_stop(int signal_number) {
  return tr("STOPPED (exit {})", 128 + signal_number) + "\n";
}

/// Made before a handler needs them.
const std::array<std::string, 3>& stopped_lines() {
  static const auto& lines = *new std::array<std::string, 3>{
      words_of_stop(SIGHUP), words_of_stop(SIGTERM), words_of_stop(SIGINT)};
  return lines;
}

std::string_view stopped_line(int signal_number) {
  return stopped_lines()[signal_number == SIGHUP ? 0 : signal_number == SIGTERM ? 1 : 2];
}

void say_on_terminal(std::string_view text) {
  if (line_is_open) write_now(STDERR_FILENO, "\n");
  write_now(STDERR_FILENO, text);
}

void say_stopped(int signal_number, const LastWords* words) {
  if (log::level() < log::Level::kOff) say_on_terminal(stopped_line(signal_number));
  if (words && words->file >= 0) write_now(words->file, stopped_line(signal_number));
}

void say_last_words(int signal_number) {
  const LastWords* const words = last_words;
  if (!words) return say_stopped(signal_number, nullptr);
  const std::string& text = signal_number == SIGTERM ? words->of_termination : words->of_interrupt;
  if (words->on_terminal) say_on_terminal(text);
  if (words->file >= 0) write_now(words->file, text);
}

/// The signal itself ends the process, so that a shell's loop over commands ends with it.
void on_signal_unwatched(int signal_number) {
  ::signal(SIGPIPE, SIG_IGN);  // the exit is that of the signal, whoever reads
  say_stopped(signal_number, last_words);
  ::signal(signal_number, SIG_DFL);
  sigset_t itself;
  ::sigemptyset(&itself);
  ::sigaddset(&itself, signal_number);
  ::raise(signal_number);
  ::pthread_sigmask(SIG_UNBLOCK, &itself, nullptr);
  ::_exit(128 + signal_number);  // the first process of a container dies of no signal
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

void name_interrupts() {
  (void)log::level();  // a handler may not be the first to ask
  (void)stopped_lines();
  constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};  // one line, whichever come
  struct sigaction action{}, before{};
  action.sa_handler = on_signal_unwatched;
  ::sigemptyset(&action.sa_mask);
  for (const int signal_number : kSignals) ::sigaddset(&action.sa_mask, signal_number);
  for (const int signal_number : kSignals) {
    ::sigaction(signal_number, nullptr, &before);
    if (before.sa_handler == SIG_DFL) ::sigaction(signal_number, &action, nullptr);
  }
}

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
  const auto with_end = [&](int signal) { return line + words_of_stop(signal); };
  // Earlier words may be read at this moment: they stay.
  static std::mutex mutex;
  static auto& all = *new std::vector<std::unique_ptr<const LastWords>>;
  const std::lock_guard lock(mutex);
  all.emplace_back(
      new LastWords{with_end(SIGINT), with_end(SIGTERM), file, log::level() < log::Level::kOff});
  last_words = all.back().get();
}

void set_line_open(bool is_open) { line_is_open = is_open; }

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
