// Contexts, streams and events: what runs when, and what is ordered before what.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "acl_api.h"

namespace npu_sim {

struct Stream;

/// For each stream (by number) up to which of its tasks something is ordered behind.
using Clock = std::map<uint32_t, uint64_t>;

/// Bytes that a task reads or writes, by address of the card or of pinned memory.
struct Range {
  uintptr_t begin = 0, end = 0;
  bool write = false;
};
Range reads(const void* p, size_t bytes);
Range writes(const void* p, size_t bytes);

/// Thrown by a task: the stream's error from then on.
struct TaskError {
  aclError code;
  std::string text;
};

/// One moment of a stream that an event marked.
struct Record {
  bool done = false;
  Stream* stream = nullptr;
  uint64_t sequence = 0;
  Clock clock;
  std::chrono::steady_clock::time_point when;
};

struct Task {
  std::string name;
  std::vector<Range> ranges;
  std::function<void()> work;             // may throw TaskError
  std::function<void()> lose_link = {};   // of a collective: what a broken link leaves behind
  std::shared_ptr<Record> record, await;  // of an event's task
  uint64_t sequence = 0;
  Clock clock;  // what is ordered before it
};

struct Context {
  int card = 0;  // as the program counts them
  bool alive = true;
  bool is_default = false;
  Stream* default_stream = nullptr;
  aclError error = 0;  // of the first task that failed
  std::string error_text;
  bool stopped = false;  // STOP_ON_FAILURE took effect
  int64_t deterministic = 0;
};

struct Graph;

struct Stream {
  uint32_t id = 0;
  Context* context = nullptr;
  bool stop_on_failure = false;
  std::deque<std::shared_ptr<Task>> queue;
  uint64_t issued = 0, completed = 0, demanded = 0;
  bool closing = false, aborting = false;
  Clock clock;
  std::thread worker;
  std::mt19937_64 random;
  Graph* capture = nullptr;
};

/// What aclmdlRICapture made of a stream's calls.
struct Graph {
  std::vector<Task> tasks;
};

struct Event {
  enum Kind { kPlain, kOld, kEx } kind = kPlain;
  uint32_t flags = 0;
  Context* context = nullptr;
  std::shared_ptr<Record> latest;
  bool needs_reset = false;
};

enum class Need { kNothing, kInit, kContext };
/// What every function of the interface does first: the order of calls, planted errors, the
/// thread's context.
aclError enter(const char* function, Need need, Context** context = nullptr);

/// The stream behind a handle in this context: 107003 with a text if it is not one of its streams.
aclError find_stream(Context* context, aclrtStream handle, Stream** out);
aclError find_event(aclrtEvent handle, Event** out);

/// Appends a task. Errors of earlier tasks of the context are returned instead.
aclError enqueue(Stream* stream, Task task);
/// Waits until the stream has done what it has now; 507046 after `timeout_ms` (negative: never).
/// The context's error is returned.
aclError wait_for_stream(Stream* stream, int64_t timeout_ms);
aclError wait_for_context(Context* context, int64_t timeout_ms);
aclError wait_for_record(const std::shared_ptr<Record>& record, Context* context,
                         int64_t timeout_ms);
/// Whether all is done; if so the host knows it from now on.
bool stream_is_idle(Stream* stream);
bool record_is_done(const std::shared_ptr<Record>& record);

/// Tasks that may still run as far as the host has seen, and touch the range. `only_writes`: tasks
/// that write it. Empty: none; otherwise the name of the first.
std::string pending_use(const void* p, size_t bytes, bool only_writes);
/// In a stream's thread: whether its task should give up waiting.
bool task_is_cancelled();

/// The machine's state, for the files of the runtime.
aclError set_device(int card);
aclError reset_device(int card, bool force);
Context* current_context();
aclError create_context(int card, aclrtContext* out);
aclError destroy_context(aclrtContext handle);
aclError set_current_context(aclrtContext handle);
aclError make_stream(Context* context, Stream** out);
void close_stream(Stream* stream, bool force);
void abort_stream(Stream* stream);
int64_t live_streams();
int64_t live_events();
void set_schedule(int schedule);
bool is_deterministic(Context* context);
void set_deterministic(int64_t value);
void set_collective_timeout(int64_t ms);
/// Milliseconds a collective waits.
int64_t collective_timeout();
void card_is_dead(int card, aclError code);

}  // namespace npu_sim
