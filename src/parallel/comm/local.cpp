#include "parallel/comm/local.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/error.h"
#include "device/stream.h"

namespace danlu::parallel {
namespace {

/// What a rank sees of another's error, or of its own that is yet to be told.
class OtherFailed : public CommError {
 public:
  explicit OtherFailed(const std::string& what = tr("[local ranks] another rank has failed"))
      : CommError(what) {}
};

/// Whether every rank still runs; the first error that is a rank's own.
class Fate {
 public:
  void fail(std::exception_ptr error, bool is_own) {
    const std::lock_guard lock(mutex_);
    if (!error_ || (is_own && !is_own_)) {
      error_ = std::move(error);
      is_own_ = is_own;
    }
    failed_ = true;
    changed.notify_all();
  }
  bool has_failed() const { return failed_; }
  std::exception_ptr error() const { return error_; }
  std::mutex& mutex() { return mutex_; }
  std::condition_variable changed;

 private:
  std::mutex mutex_;
  bool failed_ = false, is_own_ = false;
  std::exception_ptr error_;
};

/// What a rank lays down in a round.
struct Laid {
  const char* what = "";  ///< the exchange that it takes for this one
  Group::Tensors sends;
  device::Event ready;  ///< in its stream: it has made them
};

/// Where the ranks of one group meet.
class Table {
 public:
  Table(Fate& fate, size_t size)
      : fate_(fate), places_(size), read_(size), came_(size), is_aborted_(size) {}

  /// Lays down what `rank` sends, which came at a moment of its clock, and waits until everybody
  /// has. It stays there until leave().
  void meet(size_t rank, Laid laid, double came) {
    places_[rank] = std::move(laid);
    came_[rank] = came;
    wait(rank);
  }
  const Laid& at(size_t rank) const { return places_[rank]; }
  const std::vector<double>& came() const { return came_; }
  size_t size() const { return places_.size(); }
  /// Waits until everybody has read what lies there, or has had its stream do it until `read`.
  void leave(size_t rank, const device::Event& read) {
    read_[rank] = read;
    wait(rank);
  }
  /// After leave(), until the next meet().
  const device::Event& read_by(size_t rank) const { return read_[rank]; }
  /// `rank` waits here no more; the others do, as long as it lives.
  void abort(size_t rank) {
    const std::lock_guard lock(fate_.mutex());
    is_aborted_[rank] = true;
    fate_.changed.notify_all();
  }

 private:
  void wait(size_t rank) {
    std::unique_lock lock(fate_.mutex());
    require_not_aborted(rank);
    const uint64_t turn = turn_;
    if (++arrived_ == places_.size()) {
      arrived_ = 0;
      ++turn_;
      fate_.changed.notify_all();
      return;
    }
    fate_.changed.wait(lock,
                       [&] { return turn_ != turn || fate_.has_failed() || is_aborted_[rank]; });
    require_not_aborted(rank);
    if (turn_ == turn) throw OtherFailed();
  }
  void require_not_aborted(size_t rank) const {
    if (is_aborted_[rank]) throw OtherFailed(tr("[ranks] given up"));
  }

  Fate& fate_;
  std::vector<Laid> places_;
  std::vector<device::Event> read_;
  std::vector<double> came_;
  std::vector<bool> is_aborted_;  ///< of each rank
  size_t arrived_ = 0;
  uint64_t turn_ = 0;
};

/// Times the rounds of an exchange by this thread's clock, where it has one. Copying between
/// threads is left out.
class RoundWatch {
 public:
  /// When this rank lays down what it sends in a round.
  double begin() {
    if (clock_) now_ = clock_->now();
    return came_;
  }
  const VirtualClock* clock() const { return clock_; }
  void end(const RoundTimes& round) {
    if (!clock_) return;
    clock_->go_on_from(now_);
    clock_->wait_for(round);
    // The next may be on its way already while what came is summed, not the one after it.
    came_ = std::max(round.left, summed_);
  }
  void end_sum() {
    if (clock_) summed_ = clock_->now();
  }

 private:
  VirtualClock* clock_ = VirtualClock::of_thread();
  double now_ = clock_ ? clock_->now() : 0, came_ = now_, summed_ = now_;
};

class LocalGroup : public Group {
 public:
  LocalGroup(std::shared_ptr<Table> table, const std::vector<int64_t>& ranks, int64_t rank)
      : table_(std::move(table)), ranks_(ranks), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(table_->size()); }
  void abort() const override { table_->abort(static_cast<size_t>(rank_)); }

 private:
  void do_rounds(const char* what, const std::vector<Round>& rounds) const override {
    RoundWatch watch;
    for (const Round& round : rounds) {
      swap(what, round, watch);
      if (round.then) round.then();
      watch.end_sum();
    }
  }
  /// On devices streams wait for each other, and no thread for a device.
  void swap(const char* what, const Round& round, RoundWatch& watch) const {
    const auto own = static_cast<size_t>(rank_);
    const auto stream = device::Stream::current(device_of(round));
    table_->meet(own, {what, round.sends, stream.record()}, watch.begin());
    for (size_t from = 0; from < table_->size(); ++from) {
      if (from == own) continue;
      require_same(what, round, from);
      if (round.receives.empty() || !round.receives[from].defined()) continue;
      stream.wait_for(table_->at(from).ready);
      at::Tensor(round.receives[from]).copy_(table_->at(from).sends[own]);
    }
    RoundTimes times;
    if (watch.clock())
      times =
          time_round(watch.clock()->time(), ranks_, table_->came(), bytes_between_members(), own);
    table_->leave(own, stream.record());
    for (size_t to = 0; to < table_->size(); ++to) stream.wait_for(table_->read_by(to));
    watch.end(times);
  }
  static at::Device device_of(const Round& round) {
    for (const Tensors* tensors : {&round.sends, &round.receives}) {
      for (const at::Tensor& tensor : *tensors) {
        if (tensor.defined()) return tensor.device();
      }
    }
    return at::kCPU;
  }
  /// What hangs between processes, or exchanges the wrong tensors, is told here.
  void require_same(const char* what, const Round& round, size_t from) const {
    const auto own = static_cast<size_t>(rank_);
    const Laid& laid = table_->at(from);
    const at::Tensor sent = laid.sends.empty() ? at::Tensor() : laid.sends[own];
    const at::Tensor asked = round.receives.empty() ? at::Tensor() : round.receives[from];
    const bool is_same_tensor = sent.defined() == asked.defined() &&
                                (!sent.defined() || (sent.numel() == asked.numel() &&
                                                     sent.scalar_type() == asked.scalar_type()));
    if (is_same_tensor && std::strcmp(laid.what, what) == 0) return;
    const auto text = [](const at::Tensor& tensor) {
      return tensor.defined()
                 ? std::to_string(tensor.numel()) + " " + c10::toString(tensor.scalar_type())
                 : std::string("nothing");
    };
    throw InternalError("[local ranks] exchanges are not in one order: " + std::string(what) +
                        " of rank " + std::to_string(ranks_[own]) + ", which asks for " +
                        text(asked) + ", meets " + laid.what + " of rank " +
                        std::to_string(ranks_[from]) + ", which sends " + text(sent));
  }
  std::vector<std::vector<double>> bytes_between_members() const {
    std::vector<std::vector<double>> bytes(ranks_.size(), std::vector<double>(ranks_.size()));
    for (size_t from = 0; from < ranks_.size(); ++from) {
      const Tensors& sends = table_->at(from).sends;
      for (size_t to = 0; to < sends.size(); ++to) {
        if (sends[to].defined()) bytes[from][to] = static_cast<double>(sends[to].nbytes());
      }
    }
    return bytes;
  }

  std::shared_ptr<Table> table_;
  std::vector<int64_t> ranks_;
  int64_t rank_;
};

/// What the ranks of a job share.
struct Job {
  explicit Job(int64_t size) : ranks(size) {}
  /// Groups are known by the order in which they are made.
  std::shared_ptr<Table> table(size_t number, size_t size) {
    const std::lock_guard lock(fate.mutex());
    std::shared_ptr<Table>& table = tables[number];
    if (!table) table = std::make_shared<Table>(fate, size);
    return table;
  }
  void post(const std::string& note) {
    const std::lock_guard lock(fate.mutex());
    notes.insert(note);
    fate.changed.notify_all();
  }
  void wait_for(const std::string& note) {
    std::unique_lock lock(fate.mutex());
    fate.changed.wait(lock, [&] { return notes.count(note) > 0 || fate.has_failed(); });
    if (!notes.count(note)) throw OtherFailed();
  }
  void forget(const std::string& note) {
    const std::lock_guard lock(fate.mutex());
    notes.erase(note);
  }
  int64_t ranks;
  Fate fate;
  std::set<std::string> notes;
  std::map<size_t, std::shared_ptr<Table>> tables;
};

class LocalWorld : public World {
 public:
  LocalWorld(Job& job, int64_t rank) : job_(job), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return job_.ranks; }
  void post(const std::string& note) override { job_.post(note); }
  void wait_for(const std::string& note, double /*longest_pause_s*/) override {
    job_.wait_for(note);
  }
  void forget(const std::string& note) override { job_.forget(note); }
  std::unique_ptr<Group> make_group(const std::vector<int64_t>& ranks) override {
    const size_t number = made_++;
    const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    if (mine == ranks.end()) return nullptr;
    return std::make_unique<LocalGroup>(job_.table(number, ranks.size()), ranks,
                                        mine - ranks.begin());
  }

 private:
  Job& job_;
  int64_t rank_;
  size_t made_ = 0;
};

}  // namespace

void run_local_ranks(int64_t ranks, const std::function<void(World& world)>& body,
                     int threads_per_rank, const VirtualTime* time) {
  Job job(ranks);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(threads_per_rank);
        LocalWorld world(job, rank);
        std::optional<VirtualClock> clock;
        if (time) clock.emplace(*time);
        const VirtualClock::InForce in_force(time ? &*clock : nullptr);
        body(world);
      } catch (const OtherFailed&) {
        job.fate.fail(std::current_exception(), false);
      } catch (...) {
        job.fate.fail(std::current_exception(), true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (job.fate.error()) std::rethrow_exception(job.fate.error());
}

}  // namespace danlu::parallel
