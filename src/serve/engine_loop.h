// serve/engine_loop.h: the one thread that touches the engine: requests in, outputs out.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "serve/metrics.h"
#include "serve/step_engine.h"

namespace danlu::serve {

/// Names a group of requests that were submitted together; never given twice.
using Ticket = uint64_t;

/// What a receiver says to an output.
enum class Heard {
  kMore,  ///< go on
  kAll,   ///< the request is to end here, as its answer is complete
  kGone,  ///< the same, as nobody is there any more
};

/// Whose fault it is that a request is not answered: kEnd is nobody's, the server ends.
enum class Blame { kClient, kServer, kEnd };

/// Hears of one group. Called on the engine's thread, in order; nothing may wait there. What it
/// throws ends its group, and no other.
class Receiver {
 public:
  virtual ~Receiver() = default;
  /// All of them are in the queue.
  virtual void on_accepted() = 0;
  /// Unless it hears more, nothing of the request `index` follows.
  virtual Heard on_output(size_t index, const infer::EngineOutput& output) = 0;
  /// No request of the group is answered any further.
  virtual void on_failed(const Error& why, Blame blame) = 0;
};

struct EngineLoopSettings {
  /// Groups that wait, with one of their requests or all. While there are as many, or sixteen times
  /// as many requests, more are turned away.
  size_t max_queue = 1024;
};

class EngineLoop {
 public:
  /// make: the engine, now and again after one that failed.
  EngineLoop(MakeStepEngine make, EngineLoopSettings settings);
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  /// Answers until end() is called, on the thread that calls it: libraries know their threads by
  /// the one that uses them. Whoever still waits then hears that it failed, Blame::kEnd.
  void run();

  // From any thread.
  void end();
  /// Returns once all have heard of the end. REQUIRES: end() was called, and run() is or was under
  /// way.
  void await_end();
  /// Groups that are not submitted yet, but will be, have places in the queue: their pictures are
  /// being read, say. `more` of them than before; negative: fewer.
  void count_elsewhere(int64_t more);
  /// Whether as many groups wait as may.
  bool is_full() const;
  /// Nothing if the queue is full, or the engine is dead.
  std::optional<Ticket> submit(std::vector<infer::EngineRequest> requests,
                               std::shared_ptr<Receiver> receiver);
  /// Its receiver hears nothing more, within a step. One that is over: nothing.
  void cancel(Ticket ticket);
  bool is_dead() const { return why_dead() != nullptr; }
  /// What kept the last engine from being made again; null: one is there.
  std::exception_ptr why_dead() const;
  infer::EngineCounts counts() const;
  const infer::EngineSettings& settings() const { return settings_of_engine_; }
  size_t max_queue() const { return settings_.max_queue; }
  Metrics& metrics() { return metrics_; }

 private:
  struct Submission {
    Ticket ticket;
    std::vector<infer::EngineRequest> requests;
    std::shared_ptr<Receiver> receiver;
    double submitted_s;
  };
  struct Group {
    std::shared_ptr<Receiver> receiver;
    std::vector<infer::RequestHandle> open = {};  ///< not over yet
    size_t num_begun = 0;                         ///< over or not
    size_t size = 0;
  };
  struct Running {
    Ticket ticket;
    size_t index;
    RequestTimes times;
    bool has_begun = false;
  };
  void turn(std::vector<Submission> submitted, const std::vector<Ticket>& cancelled);
  void take_in(Submission submission);
  void refuse(const std::vector<Submission>& came_while_it_died);
  void tell_the_end();
  void note_begun(Running& running);
  // REQUIRES of these: the mutex is held.
  size_t num_waiting() const;
  bool has_no_place() const;
  void drop(Ticket ticket);
  void hand_out(const infer::EngineOutput& output);
  void end_request(infer::RequestHandle handle);
  /// Ends what is open of one group, and tells its receiver.
  void fail(Ticket ticket, const Error& why);
  void fail_all(const Error& why);

  const EngineLoopSettings settings_;
  const MakeStepEngine make_;
  std::unique_ptr<StepEngine> engine_;
  const infer::EngineSettings settings_of_engine_;
  Metrics metrics_;

  mutable std::mutex mutex_;
  std::condition_variable wakes_;
  std::vector<Submission> submitted_;  ///< these by the mutex
  std::vector<Ticket> cancelled_;
  infer::EngineCounts counts_;
  Ticket next_ticket_ = 1;
  size_t num_submitted_ = 0;  ///< requests in submitted_, and those that are being taken in
  size_t num_new_groups_ = 0, num_waiting_groups_ = 0;  ///< the same; those that were taken in
  int64_t num_elsewhere_ = 0;
  std::exception_ptr why_dead_;
  bool is_ending_ = false, has_ended_ = false;

  std::map<Ticket, Group> groups_;  ///< these of the thread
  std::map<infer::RequestHandle, Running> running_;
};

}  // namespace danlu::serve
