#include "parallel/comm/local.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/error.h"

namespace danlu::parallel {
namespace local_detail {

/// Whether every rank still runs; the first error.
class Fate {
 public:
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_ = true;
    changed.notify_all();
  }
  bool has_failed() const { return failed_; }
  std::exception_ptr error() const { return error_; }
  std::mutex& mutex() { return mutex_; }
  std::condition_variable changed;

 private:
  std::mutex mutex_;
  bool failed_ = false;
  std::exception_ptr error_;
};

/// Where the ranks of one group meet.
class Table {
 public:
  Table(Fate& fate, size_t size) : fate_(fate), places_(size) {}

  /// Lays `tensor` down and waits until everybody has. What lies there stays until leave().
  void meet(size_t rank, const at::Tensor& tensor) {
    places_[rank] = tensor;
    wait();
  }
  const at::Tensor& at(size_t rank) const { return places_[rank]; }
  size_t size() const { return places_.size(); }
  /// Waits until everybody has read what lies there.
  void leave() { wait(); }

 private:
  void wait() {
    std::unique_lock lock(fate_.mutex());
    const uint64_t turn = turn_;
    if (++arrived_ == places_.size()) {
      arrived_ = 0;
      ++turn_;
      fate_.changed.notify_all();
      return;
    }
    fate_.changed.wait(lock, [&] { return turn_ != turn || fate_.has_failed(); });
    if (turn_ == turn) throw CommError(tr("[local ranks] another rank has failed"));
  }

  Fate& fate_;
  std::vector<at::Tensor> places_;
  size_t arrived_ = 0;
  uint64_t turn_ = 0;
};

class LocalGroup : public Group {
 public:
  LocalGroup(std::shared_ptr<Table> table, int64_t rank) : table_(std::move(table)), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(table_->size()); }

 private:
  void do_gather(const at::Tensor& mine, at::Tensor& all) const override {
    const int64_t n = mine.size(0);
    meet(mine,
         [&](int64_t from, const at::Tensor& theirs) { all.narrow(0, from * n, n).copy_(theirs); });
  }
  void do_exchange(const at::Tensor& all, at::Tensor& theirs) const override {
    const int64_t n = all.size(0) / size();
    meet(all, [&](int64_t from, const at::Tensor& blocks) {
      theirs.narrow(0, from * n, n).copy_(blocks.narrow(0, rank_ * n, n));
    });
  }
  void do_broadcast(at::Tensor& tensor, int64_t root) const override {
    meet(tensor, [&](int64_t from, const at::Tensor& theirs) {
      if (from == root && rank_ != root) tensor.copy_(theirs);
    });
  }

  /// Calls take(rank, what it lays down) for every rank.
  template <typename Take>
  void meet(const at::Tensor& mine, const Take& take) const {
    table_->meet(static_cast<size_t>(rank_), mine);
    for (int64_t i = 0; i < size(); ++i) take(i, table_->at(static_cast<size_t>(i)));
    table_->leave();
  }

  std::shared_ptr<Table> table_;
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
    if (!notes.count(note)) throw CommError(tr("[local ranks] another rank has failed"));
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
  void wait_for(const std::string& note) override { job_.wait_for(note); }
  std::unique_ptr<Group> make_group(const std::vector<int64_t>& ranks) override {
    const size_t number = made_++;
    const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    if (mine == ranks.end()) return nullptr;
    return std::make_unique<LocalGroup>(job_.table(number, ranks.size()), mine - ranks.begin());
  }

 private:
  Job& job_;
  int64_t rank_;
  size_t made_ = 0;
};

}  // namespace local_detail

void run_local_ranks(int64_t ranks, const std::function<void(World& world)>& body,
                     int threads_per_rank) {
  using namespace local_detail;
  Job job(ranks);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(threads_per_rank);
        LocalWorld world(job, rank);
        body(world);
      } catch (...) {
        job.fate.fail(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (job.fate.error()) std::rethrow_exception(job.fate.error());
}

}  // namespace danlu::parallel
