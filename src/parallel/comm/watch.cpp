#include "parallel/comm/watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/failure.h"
#include "base/log.h"

namespace danlu::parallel {
namespace {

constexpr double kPulseSeconds = 0.5;
constexpr double kLinger = 2 * kPulseSeconds;  ///< in which every rank has seen a verdict
/// In which a rank ends by itself, with its own words, when another has failed.
constexpr double kOwnEnd = 2;
constexpr const char* kVerdict = "watch/verdict";

std::string key_of(int64_t rank) { return fmt::format("watch/{}", rank); }

std::vector<uint8_t> note_bytes(const std::string& text) { return {text.begin(), text.end()}; }

[[noreturn]] void end_process(const Verdict& verdict) {
  write_failure(verdict.code, verdict.what, verdict.hint);
  // Threads that hang in an exchange cannot be joined.
  ::_exit(static_cast<int>(verdict.code));
}

}  // namespace

/// Shared with the threads, which may hang in the store when the watch goes.
struct Watch::State {
  WatchSettings settings;
  OpenStore open_store;
  std::shared_ptr<const RankCalls> calls;

  std::mutex mutex;
  std::condition_variable changed;
  int64_t step = 0;
  std::optional<Verdict> own;  ///< to be posted
  bool leaving = false, failing = false;
  bool gave_up = false;  ///< the verdict is waited for
  std::string lost;      ///< why it gave up
  double broken_s = 0;   ///< since when a card's links are said to be broken
  bool met = false;      ///< every rank has been there
  bool done = false;     ///< the pulse has stopped
  bool ended = false;    ///< settings.end was called
  int64_t rounds = 0;    ///< that the store has answered

  std::mutex telling;
  std::function<void()> tell;  ///< by `telling`

  bool is_first() const { return settings.rank == 0; }
  void wait(std::unique_lock<std::mutex>& lock, double seconds) {
    changed.wait_for(lock, std::chrono::duration<double>(seconds));
  }
  /// True once the condition holds.
  template <typename Condition>
  bool wait_until(double seconds, const Condition& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::duration<double>(seconds), condition);
  }

  void beat();
  void beat_until_left();
  void watch_first();
  RankReport report(int64_t beat, bool left);
  void post(c10d::Store& store, const Verdict& verdict);
  /// Rank 0: hears all; posts a verdict, and lets it be seen.
  void judge(c10d::Store& store, Judge& judge, const RankReport& own_report, double seconds);
  void obey(c10d::Store& store);
  /// Ends this rank, and so the others, once its card's links have been broken for a while.
  void look_at_links(c10d::Store& store, const RankReport& own_report, double seconds);
  /// The verdict stays for all to see, while this process says what it has to say.
  void linger();
  void say_the_last();
  void end(const Verdict& verdict);
  bool may_leave(const Judge& judge, double leaving_s);
};

RankReport Watch::State::report(int64_t beat, bool left) {
  static const std::string host = host_name();
  const std::lock_guard lock(mutex);
  return {beat, host, ::getpid(), step, left, calls->report(), lost};
}

void Watch::State::post(c10d::Store& store, const Verdict& verdict) {
  if (!store.check({kVerdict})) store.set(kVerdict, note_bytes(verdict.text()));
}

void Watch::State::end(const Verdict& verdict) {
  {
    const std::lock_guard lock(mutex);
    if (ended) return;
    ended = true;
  }
  changed.notify_all();
  say_the_last();
  settings.end ? settings.end(verdict) : end_process(verdict);
}

void Watch::State::linger() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(kLinger);
  say_the_last();
  std::this_thread::sleep_until(until);
}

void Watch::State::say_the_last() {
  const std::lock_guard lock(telling);
  if (const auto once = std::exchange(tell, {})) once();
}

void Watch::State::obey(c10d::Store& store) {
  if (!store.check({kVerdict})) return;
  const std::vector<uint8_t> bytes = store.get(kVerdict);
  const Verdict verdict = Verdict::from_text({bytes.begin(), bytes.end()});
  if (verdict.rank == settings.rank) return;
  if (verdict.rank >= 0) {
    wait_until(kOwnEnd, [&] { return leaving || gave_up; });
    const std::lock_guard lock(mutex);
    if (leaving) return;
  }
  end(verdict);
}

void Watch::State::judge(c10d::Store& store, Judge& judge, const RankReport& own_report,
                         double seconds) {
  judge.hear(0, own_report);
  for (int64_t rank = 1; rank < settings.size; ++rank) {
    if (!store.check({key_of(rank)})) continue;
    const std::vector<uint8_t> bytes = store.get(key_of(rank));
    judge.hear(rank, RankReport::from_text({bytes.begin(), bytes.end()}));
  }
  {
    const std::lock_guard lock(mutex);
    if (ended) return;
    if (met) judge.expect_all();
  }
  const auto verdict = judge.judge(seconds);
  if (!verdict) return;
  post(store, *verdict);
  linger();
  end(*verdict);
}

void Watch::State::look_at_links(c10d::Store& store, const RankReport& own_report, double seconds) {
  const auto broken = std::find_if(own_report.calls.begin(), own_report.calls.end(),
                                   [](const CallReport& call) { return !call.failure.empty(); });
  broken_s = broken == own_report.calls.end() ? 0 : broken_s + seconds;
  // A rank that is gone breaks them, too: its silence, which names it, is noticed first.
  if (broken_s <= settings.silence_s + kLinger) return;
  const Verdict verdict{
      .what = tr("[ranks] rank {} on {}, {} among {}: {}", settings.rank, host_name(),
                 broken->what.empty() ? tr("between exchanges") : broken->what,
                 ranks_text(broken->ranks), broken->failure),
      .hint =
          tr("a link between cards failed or a rank ended: look at the ranks' logs, at `hccn_tool "
             "-i N -link -g`, HCCL_SOCKET_IFNAME and firewalls"),
      .rank = settings.rank};
  post(store, verdict);
  linger();
  end(verdict);
}

bool Watch::State::may_leave(const Judge& judge, double leaving_s) {
  if (!leaving) return false;
  if (!is_first() || ended) return true;
  return failing ? leaving_s > kLinger : judge.are_others_gone();
}

void Watch::State::beat() {
  const std::shared_ptr<c10d::Store> store = open_store();
  Judge all(settings.size, settings.silence_s, settings.timeout_s);
  double last = steady_now_s(), leaving_s = 0;
  for (int64_t number = 1;; ++number) {
    const double now = steady_now_s();
    // A judge that was not running itself has not seen the others silent.
    const double passed = std::min(now - last, 2 * kPulseSeconds);
    last = now;
    std::optional<Verdict> own_error;
    bool left = false;
    {
      const std::lock_guard lock(mutex);
      std::swap(own_error, own);
      leaving_s += leaving ? passed : 0;
      left = may_leave(all, leaving_s);
    }
    const RankReport own_report = report(number, left);
    store->set(key_of(settings.rank), note_bytes(own_report.text()));
    if (own_error) post(*store, *own_error);
    if (left) return;
    if (is_first()) judge(*store, all, own_report, passed);
    obey(*store);
    look_at_links(*store, own_report, passed);
    std::unique_lock lock(mutex);
    ++rounds;
    if (!own && !(leaving && !is_first())) wait(lock, leaving ? 0.05 : kPulseSeconds);
  }
}

void Watch::State::beat_until_left() {
  try {
    beat();
  } catch (const std::exception& error) {
    const auto is_leaving = [&] { return leaving; };
    const bool expected = wait_until(kPulseSeconds, is_leaving);
    if (is_first() && !expected)
      log::warning("[ranks] nobody watches over the ranks any more: {}", error.what());
    if (!is_first() && !expected) {
      end({.what = tr("[ranks] rank 0 is gone: rank {} reaches it no more", settings.rank),
           .hint = tr("was it killed or stopped, or is its machine or network down? Where a "
                      "checkpoint or answers were saved the same command goes on from them")});
    }
  }
  const std::lock_guard lock(mutex);
  done = true;
  changed.notify_all();
}

/// A thread in the store cannot tell that nothing comes.
void Watch::State::watch_first() {
  double silent_s = 0, last = steady_now_s();
  int64_t seen = -1;
  std::unique_lock lock(mutex);
  while (!done && !ended) {
    wait(lock, kPulseSeconds);
    const double now = steady_now_s();
    silent_s = rounds == seen ? silent_s + std::min(now - last, 2 * kPulseSeconds) : 0;
    seen = rounds;
    last = now;
    if (silent_s <= settings.silence_s || leaving) continue;
    lock.unlock();
    end({.what = tr("[ranks] rank 0 is gone: rank {} has not heard of it for {:g} s", settings.rank,
                    settings.silence_s),
         .hint = tr("was it killed or stopped, or is its machine or network down? Where a "
                    "checkpoint or answers were saved the same command goes on from them")});
    lock.lock();
  }
}

void Watch::before_end(std::function<void()> tell) {
  const std::lock_guard lock(state_->telling);
  state_->tell = std::move(tell);
}

Watch::Watch(const WatchSettings& settings, OpenStore open_store,
             std::shared_ptr<const RankCalls> calls)
    : state_(std::make_shared<State>()) {
  state_->settings = settings;
  state_->open_store = std::move(open_store);
  state_->calls = std::move(calls);
  std::thread([state = state_] { state->beat_until_left(); }).detach();
  if (!state_->is_first()) std::thread([state = state_] { state->watch_first(); }).detach();
}

Watch::~Watch() {
  std::unique_lock lock(state_->mutex);
  state_->leaving = true;
  state_->failing = state_->failing || std::uncaught_exceptions() > 0;
  state_->changed.notify_all();
  // A rank that still works is waited for; one that is lost ends the process.
  const auto is_done = [&] { return state_->done; };
  if (state_->is_first() && !state_->failing) {
    state_->changed.wait(lock, is_done);
  } else {
    const double longest = state_->failing ? 2 * kLinger : state_->settings.silence_s;
    state_->changed.wait_for(lock, std::chrono::duration<double>(longest), is_done);
  }
}

void Watch::note_step(int64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->step = step;
}

void Watch::all_are_there() {
  const std::lock_guard lock(state_->mutex);
  state_->met = true;
}

void Watch::give_up(ExitCode code, const std::string& what, const std::string& hint) {
  std::unique_lock lock(state_->mutex);
  if (code == ExitCode::kComm) {
    state_->gave_up = true;
    state_->lost = what;
    state_->changed.notify_all();
    // The others' silence is noticed, then told.
    const std::chrono::duration<double> longest(2 * state_->settings.silence_s + kLinger);
    state_->changed.wait_for(lock, longest, [&] { return state_->ended; });
  }
  state_->failing = true;
  const int64_t rank = state_->settings.rank;
  state_->own =
      Verdict{code,
              is_stop(code) ? tr("[ranks] rank {} on {}: {}", rank, host_name(), what)
                            : tr("[ranks] rank {} on {} failed: {}", rank, host_name(), what),
              hint, rank};
  state_->changed.notify_all();
}

}  // namespace danlu::parallel
