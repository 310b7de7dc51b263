// The state behind scheduler.h; only its own sources include it.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/scheduler.h"

namespace npu_sim {

/// A task that was issued and that the host has not yet seen finished.
struct Past {
  std::string name;
  std::vector<Range> ranges;
  uint32_t stream;
  uint64_t sequence;
};

struct Machine {
  std::mutex lock;
  std::condition_variable changed;  // a task ended, came, or is wanted
  bool initialised = false, finalised = false;
  uint64_t references = 0;
  std::set<Context*> contexts;  // never deleted: handles of dead ones are recognised
  std::map<int, Context*> default_context;
  std::map<int, int> times_set;
  std::set<Stream*> streams;
  std::set<Event*> events;
  Clock host;
  std::deque<Past> past;
  std::map<int, aclError> dead;
  uint32_t next_stream = 1;
  int64_t wait_timeout_ms = 0;  // aclrtSetOpWaitTimeout; 0: never
  int64_t deterministic = 0;
  int64_t collective_timeout_ms = 0;
  uint64_t generation = 1;  // NpuSimReset raises it: contexts of threads end
};

Machine& machine();
void merge(Clock& into, const Clock& from);
/// What the host has waited for: tasks up to there are no hazard any more. With the lock held.
void host_has_seen(const Clock& clock);
/// Lets a lazy stream run up to there. With the lock held.
void demand(Stream* stream, uint64_t sequence);
/// The context's error as a result, with its text. With the lock held.
aclError context_error(Context* context);
/// The body of a stream's thread.
void run_stream(Stream* stream);

}  // namespace npu_sim
