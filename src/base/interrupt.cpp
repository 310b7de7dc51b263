#include "base/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

namespace danlu {
namespace {

std::atomic<int> pending{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not take a lock");

void on_signal(int signal_number) {
  const int before = pending.exchange(signal_number);
  if (before != 0 && before != SIGHUP) ::_exit(128 + signal_number);
}

void on_hangup(int signal_number) {
  int none = 0;
  pending.compare_exchange_strong(none, signal_number);
  ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

void watch_interrupts() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_handler = on_signal;
    ::sigemptyset(&action.sa_mask);
    // No SA_RESTART: a blocked read (the chat prompt) returns, so that its loop sees the flag.
    ::sigaction(SIGINT, &action, nullptr);
    ::sigaction(SIGTERM, &action, nullptr);
    struct sigaction before{};
    ::sigaction(SIGHUP, nullptr, &before);
    action.sa_handler = on_hangup;
    if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
  });
}

int pending_interrupt() { return pending.load(); }
void clear_interrupt() { pending.store(0); }

const char* interrupt_name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGHUP ? "SIGHUP" : "SIGINT";
}

void throw_interrupted(int signal, const std::string& message, const std::string& hint) {
  if (signal == SIGTERM) throw TerminatedError(message, hint);
  if (signal == SIGHUP) throw HungUpError(message, hint);
  throw InterruptedError(message, hint);
}

}  // namespace danlu
