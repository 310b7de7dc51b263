#include "board/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "board/answers.h"
#include "board/runs.h"

namespace danlu::board {
namespace {

constexpr double kBeat_s = 15;  // a comment, so that nothing on the way takes it for dead
constexpr double kSearchEvery_s = 3;
constexpr double kAttentive_s = 30;  // after a request
constexpr auto kOften = std::chrono::seconds(1), kSeldom = std::chrono::seconds(10);
constexpr size_t kMostListeners = 64;
constexpr size_t kUnread = size_t{4} << 20;

std::string event_text(const char* name, const Json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, dump_text(data));
}

/// A whole number of a query. Missing: `fallback`.
template <typename Number>
Number number_of(const http::Request& request, std::string_view name, Number fallback) {
  const std::string_view text = request.query_value(name);
  if (text.empty()) return fallback;
  Number number{};
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || at != text.data() + text.size())
    throw BadQuery(fmt::format("{} must be a whole number", name));
  return number;
}

CurveQuery curve_query(const http::Request& request) {
  CurveQuery query;
  for (const auto& [name, value] : request.query) {
    if (name == "name") query.names.push_back(value);
  }
  query.generation = number_of(request, "generation", query.generation);
  query.after = number_of(request, "after", query.after);
  query.from = number_of(request, "from", query.from);
  query.to = number_of(request, "to", query.to);
  query.most_points =
      std::clamp<size_t>(number_of(request, "points", query.most_points), 2, 20'000);
  return query;
}

}  // namespace

/// The thread that looks, and those who listen.
class Board::Watch {
 public:
  explicit Watch(std::vector<std::filesystem::path> directories) : runs_(std::move(directories)) {
    runs_.take(Runs::search(runs_.roots()));
    runs_.read_on();
    thread_ = std::thread([this] { go_on_looking(); });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      if (is_over_) return;
      is_over_ = true;
      for (Listener& listener : listeners_) listener.exchange->end();
      listeners_.clear();
    }
    wake_.notify_all();
    thread_.join();
  }

  /// What `ask` gives of the runs as they are now.
  http::Response answer(const std::function<std::optional<Json>(const Runs&)>& ask) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return error_answer(503, "the server is ending");
    see_that_somebody_asks();
    const auto json = ask(runs_);
    return json ? json_answer(*json) : error_answer(404, "there is no such run or file");
  }

  void listen(const http::ExchangePtr& exchange) {
    const std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [](const Listener& one) { return !one.exchange->is_open(); });
    if (is_over_ || listeners_.size() >= kMostListeners)
      return exchange->respond(error_answer(503, "too many listen already"));
    see_that_somebody_asks();
    exchange->begin_stream(200, {{"Content-Type", "text/event-stream"},
                                 {"Cache-Control", "no-store"},
                                 {"X-Accel-Buffering", "no"}});
    Listener listener{exchange, runs_.newest_change()};
    exchange->write(event_text("runs", runs_.list()));
    listeners_.push_back(std::move(listener));
  }

 private:
  struct Listener {
    http::ExchangePtr exchange;
    uint64_t change = 0;  ///< that it was told
  };

  /// REQUIRES: the mutex is held.
  void see_that_somebody_asks() {
    const bool slept = steady_now_s() >= attentive_until_s_;
    attentive_until_s_ = steady_now_s() + kAttentive_s;
    if (!slept) return;
    runs_.read_on();  // nobody has looked for long
    wake_.notify_all();
  }

  /// REQUIRES: the mutex is held.
  void tell_listeners(bool with_beat) {
    std::map<uint64_t, std::string> texts;  // most were told the same before
    std::vector<Listener> still_there;
    for (Listener& listener : listeners_) {
      if (!listener.exchange->is_open()) continue;
      if (listener.exchange->pending_bytes() < kUnread) {
        auto found = texts.find(listener.change);
        if (found == texts.end()) {
          const auto changes = runs_.changes(listener.change);
          found =
              texts.emplace(listener.change, changes ? event_text("changes", *changes) : "").first;
        }
        const std::string text = found->second.empty() && with_beat ? ":\n\n" : found->second;
        if (!text.empty() && !listener.exchange->write(text)) continue;
        listener.change = runs_.newest_change();
      }
      still_there.push_back(std::move(listener));
    }
    listeners_ = std::move(still_there);
  }

  /// A tree that takes long to walk is walked seldom, and meanwhile who asks is answered.
  void search() {
    const double begun = steady_now_s();
    const Runs::Places places = Runs::search(runs_.roots());
    next_search_s_ = steady_now_s() + std::max(kSearchEvery_s, 20 * (steady_now_s() - begun));
    const std::lock_guard lock(mutex_);
    runs_.take(places);
  }

  void go_on_looking() {
    double next_beat_s = steady_now_s() + kBeat_s;
    for (;;) {
      if (steady_now_s() >= next_search_s_) search();
      std::unique_lock lock(mutex_);
      if (is_over_) return;
      const bool has_more = runs_.read_on();
      const bool with_beat = steady_now_s() >= next_beat_s;
      if (with_beat) next_beat_s = steady_now_s() + kBeat_s;
      tell_listeners(with_beat);
      const bool attentive = !listeners_.empty() || steady_now_s() < attentive_until_s_;
      if (has_more) {
        lock.unlock();  // who asks comes in between
        std::this_thread::yield();
        continue;
      }
      wake_.wait_for(lock, attentive ? kOften : kSeldom);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  Runs runs_;
  std::vector<Listener> listeners_;
  double attentive_until_s_ = 0;
  double next_search_s_ = 0;  ///< of the thread alone
  bool is_over_ = false;
  std::thread thread_;
};

Board::Board(std::vector<std::filesystem::path> directories)
    : watch_(std::make_shared<Watch>(std::move(directories))) {}

Board::~Board() { end(); }

void Board::end() { watch_->stop(); }

void Board::add_routes(http::Router& router) const {
  const auto add = [&](const char* pattern, auto ask) {
    router.add(
        "GET", pattern,
        [watch = watch_, ask](const http::ExchangePtr& exchange) {
          const http::Request& request = exchange->request();
          exchange->respond(answer_or_error(
              [&] { return watch->answer([&](const Runs& runs) { return ask(runs, request); }); }));
        },
        http::Pace::kSlow);
  };
  router.add(
      "GET", "/api/runs/events",
      [watch = watch_](const http::ExchangePtr& exchange) { watch->listen(exchange); },
      http::Pace::kSlow);
  using Answer = std::optional<Json>;
  add("/api/runs", [](const Runs& runs, const http::Request&) -> Answer { return runs.list(); });
  add("/api/runs/{}", [](const Runs& runs, const http::Request& request) -> Answer {
    return runs.run(request.places[0]);
  });
  add("/api/runs/{}/curves", [](const Runs& runs, const http::Request& request) -> Answer {
    return runs.curves(request.places[0], curve_query(request));
  });
  add("/api/runs/{}/settings", [](const Runs& runs, const http::Request& request) -> Answer {
    return runs.settings(request.places[0]);
  });
  add("/api/runs/{}/log", [](const Runs& runs, const http::Request& request) -> Answer {
    const std::string name(request.query_value("name"));
    const auto bytes = number_of<size_t>(request, "bytes", size_t{64} << 10);
    return runs.log(request.places[0], name.empty() ? "train.log" : name,
                    std::min<size_t>(bytes, size_t{4} << 20));
  });
  add("/api/runs/{}/samples", [](const Runs& runs, const http::Request& request) -> Answer {
    return runs.samples(request.places[0], number_of<uint64_t>(request, "before", 0),
                        std::min<size_t>(number_of<size_t>(request, "count", 50), 500));
  });
}

}  // namespace danlu::board
