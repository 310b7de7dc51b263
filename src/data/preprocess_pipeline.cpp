#include "data/preprocess_pipeline.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "base/interrupt.h"
#include "base/threads.h"

namespace danlu::data {
namespace {

constexpr size_t kBatchBytes = 128 << 10;
/// Rows waiting or being encoded; one batch may be larger by itself.
constexpr size_t kMaxBytesInFlight = 64 << 20;
constexpr auto kSignalInterval = std::chrono::milliseconds(100);

/// A batch on its way: rows until a worker took it, tokens once it is done.
struct Job {
  std::vector<RawRow> rows;
  size_t bytes = 0;  ///< of the rows
  EncodedBatch result;
  std::exception_ptr error;
  bool taken = false, done = false;
};

}  // namespace

struct EncodePipeline::State {
  State(const Dataset& dataset, const RowEncoder& encoder, size_t num_workers, int64_t skip_rows)
      : dataset(dataset), encoder(encoder), skip_rows(skip_rows), max_jobs(4 * num_workers + 4) {}

  void read_all();
  bool push(std::vector<RawRow> rows, size_t bytes);
  void work();

  const Dataset& dataset;
  const RowEncoder& encoder;
  const int64_t skip_rows;
  const size_t max_jobs;
  std::atomic<uint64_t> bytes_read{0};

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Job>> jobs;  ///< in row order
  size_t bytes_in_flight = 0;
  bool reading_done = false;
  std::atomic<bool> stopping{false};
  std::exception_ptr read_error;
  ThreadGroup threads;  // last: they use all of the above

  void stop() {
    std::lock_guard lock(mutex);
    stopping = true;
    changed.notify_all();
  }
};

bool EncodePipeline::State::push(std::vector<RawRow> rows, size_t bytes) {
  auto job = std::make_shared<Job>();
  job->rows = std::move(rows);
  job->bytes = bytes;
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] {
    if (stopping || jobs.empty()) return true;
    return jobs.size() < max_jobs && bytes_in_flight + bytes <= kMaxBytesInFlight;
  });
  if (stopping) return false;
  bytes_in_flight += bytes;
  jobs.push_back(std::move(job));
  changed.notify_all();
  return true;
}

void EncodePipeline::State::read_all() {
  try {
    RowReader reader(dataset);
    std::vector<RawRow> block, rows;
    size_t bytes = 0;
    int64_t to_skip = skip_rows;
    bool open = true;
    while (open && reader.next_block(&block)) {
      bytes_read = reader.bytes_read();
      for (RawRow& row : block) {
        if (to_skip > 0) {
          --to_skip;
          continue;
        }
        bytes += row.text.size() + 64;
        rows.push_back(std::move(row));
        if (bytes < kBatchBytes) continue;
        open = push(std::exchange(rows, {}), std::exchange(bytes, 0));
        if (!open) break;
      }
      block.clear();
      std::lock_guard lock(mutex);
      open = open && !stopping;
    }
    if (open && !rows.empty()) push(std::move(rows), bytes);
  } catch (...) {
    std::lock_guard lock(mutex);
    read_error = std::current_exception();
  }
  std::lock_guard lock(mutex);
  reading_done = true;
  changed.notify_all();
}

void EncodePipeline::State::work() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] {
        if (stopping) return true;
        for (const auto& candidate : jobs) {
          if (!candidate->taken) {
            job = candidate;
            return true;
          }
        }
        return reading_done;
      });
      if (stopping || !job) return;
      job->taken = true;
    }
    try {
      for (const RawRow& row : job->rows) {
        if (stopping) return;
        encoder.encode(dataset, row, &job->result);
      }
    } catch (...) {
      job->error = std::current_exception();
    }
    job->rows.clear();
    std::lock_guard lock(mutex);
    job->done = true;
    changed.notify_all();
  }
}

EncodePipeline::EncodePipeline(const Dataset& dataset, const RowEncoder& encoder,
                               size_t num_workers, int64_t skip_rows)
    : state_(std::make_unique<State>(dataset, encoder, num_workers, skip_rows)) {
  State* const state = state_.get();
  try {
    state->threads.start([state] { state->read_all(); });
    for (size_t i = 0; i < std::max<size_t>(1, num_workers); ++i) {
      state->threads.start([state] { state->work(); });
    }
  } catch (...) {
    state->stop();
    throw;
  }
}

EncodePipeline::~EncodePipeline() { state_->stop(); }

bool EncodePipeline::next(EncodedBatch* batch) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  const auto has_news = [&] { return s.jobs.empty() ? s.reading_done : s.jobs.front()->done; };
  while (!s.changed.wait_for(lock, kSignalInterval, has_news)) {
    if (pending_interrupt() == 0) continue;
    *batch = {};
    return true;
  }
  if (s.jobs.empty()) {
    if (s.read_error) std::rethrow_exception(s.read_error);
    return false;
  }
  const std::shared_ptr<Job> job = s.jobs.front();
  s.jobs.pop_front();
  s.bytes_in_flight -= job->bytes;
  s.changed.notify_all();
  lock.unlock();
  if (job->error) std::rethrow_exception(job->error);
  *batch = std::move(job->result);
  return true;
}

uint64_t EncodePipeline::bytes_read() const { return state_->bytes_read; }

}  // namespace danlu::data
