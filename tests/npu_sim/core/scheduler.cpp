#include "core/scheduler.h"

#include <unistd.h>

#include <algorithm>

#include "core/machine.h"
#include "core/report.h"

namespace npu_sim {
namespace {

using std::chrono::milliseconds;
constexpr size_t kMostPast = 4096;    // hazards farther back are not looked for
constexpr size_t kLazyLimit = 20000;  // a lazy stream runs when that many tasks wait

thread_local Stream* this_stream = nullptr;

bool may_run(const Stream* s) {
  if (config().schedule != Schedule::kLazy || s->closing) return true;
  return s->queue.front()->sequence <= s->demanded || s->queue.size() > kLazyLimit;
}

void delay(Stream* s, bool was_idle) {
  if (config().schedule != Schedule::kRandom || config().delay_us <= 0) return;
  if (s->random() % (was_idle ? 4 : 16) != 0) return;
  usleep(static_cast<useconds_t>(s->random() % static_cast<uint64_t>(config().delay_us)));
}

std::string shown(const TaskError& error, const Task& task, const Context* context) {
  if (error.code < 507000) return error.text;
  return "EZ9999: Inner Error! The error from device(" + std::to_string(context->card) +
         "), there is an exception of an operator, fault kernel_name=" + task.name + ": " +
         error.text + " [NPU SIMULATOR]";
}

void note_error(Stream* s, const Task& task, const TaskError& error) {
  Context* context = s->context;
  std::lock_guard hold(machine().lock);
  count("task_errors");
  if (s->stop_on_failure) context->stopped = true;
  if (context->error) return;
  context->error = error.code;
  context->error_text = shown(error, task, context);
}

/// Longer than its peers wait for it.
[[noreturn]] void hang(aclError code) {
  const auto end = std::chrono::steady_clock::now() + milliseconds(2 * collective_timeout());
  while (!task_is_cancelled() && std::chrono::steady_clock::now() < end) usleep(2000);
  throw TaskError{code,
                  "EI0002: The wait execution of the Notify register times out. [NPU SIMULATOR]"};
}

/// With the lock released.
void run_work(Stream* s, const Task& task) {
  const int card = config().cards[static_cast<size_t>(s->context->card)];
  try {
    const TaskFault fault = planted_task_fault(task.name, card);
    if (fault.kind == TaskFault::kFail) throw TaskError{fault.code, "planted failure"};
    if (fault.kind == TaskFault::kLink && task.lose_link) task.lose_link();
    if (fault.kind == TaskFault::kHang || fault.kind == TaskFault::kLink) hang(fault.code);
    if (fault.kind == TaskFault::kDead) {
      card_is_dead(s->context->card, fault.code);
      throw TaskError{fault.code, "the card is lost"};
    }
    task.work();
  } catch (const TaskError& error) {
    note_error(s, task, error);
  }
}

/// With the lock held, which is released meanwhile.
void await(Stream* s, const Task& task, std::unique_lock<std::mutex>& hold) {
  Machine& m = machine();
  demand(task.await->stream, task.await->sequence);
  const auto over = [&] { return task.await->done || s->aborting; };
  if (m.wait_timeout_ms == 0) {
    m.changed.wait(hold, over);
  } else if (!m.changed.wait_for(hold, milliseconds(m.wait_timeout_ms), over)) {
    hold.unlock();
    note_error(s, task, {107019, "EE9999: wait for an event times out [NPU SIMULATOR]"});
    hold.lock();
  }
}

bool overlap(const Range& a, const Range& b) {
  return (a.write || b.write) && a.begin < b.end && b.begin < a.end;
}

/// What another stream does with the same bytes, unordered. With the lock held.
std::string race_of(const Stream* stream, const Task& task) {
  for (const Past& past : machine().past) {
    if (past.stream == stream->id) continue;
    const auto known = task.clock.find(past.stream);
    if (known != task.clock.end() && past.sequence <= known->second) continue;
    for (const Range& mine : task.ranges) {
      for (const Range& other : past.ranges) {
        if (!overlap(mine, other)) continue;
        return task.name + " on stream " + std::to_string(stream->id) + " and " + past.name +
               " on stream " + std::to_string(past.stream) + " use the same memory (" +
               (mine.write ? "writes" : "reads") + ", " + (other.write ? "writes" : "reads") +
               ") and no event orders them";
      }
    }
  }
  return "";
}

aclError wait_until(const std::function<bool()>& over, std::unique_lock<std::mutex>& hold,
                    int64_t timeout_ms) {
  Machine& m = machine();
  m.changed.notify_all();
  if (timeout_ms < 0) {
    m.changed.wait(hold, over);
    return 0;
  }
  return m.changed.wait_for(hold, milliseconds(timeout_ms), over) ? 0 : 1;
}

}  // namespace

Range reads(const void* p, size_t bytes) {
  return {reinterpret_cast<uintptr_t>(p), reinterpret_cast<uintptr_t>(p) + bytes, false};
}

Range writes(const void* p, size_t bytes) {
  return {reinterpret_cast<uintptr_t>(p), reinterpret_cast<uintptr_t>(p) + bytes, true};
}

Machine& machine() {
  static Machine* the = new Machine;
  return *the;
}

void merge(Clock& into, const Clock& from) {
  for (const auto& [stream, sequence] : from) into[stream] = std::max(into[stream], sequence);
}

void host_has_seen(const Clock& clock) {
  Machine& m = machine();
  merge(m.host, clock);
  std::erase_if(m.past, [&](const Past& past) {
    const auto known = m.host.find(past.stream);
    return known != m.host.end() && past.sequence <= known->second;
  });
}

void demand(Stream* stream, uint64_t sequence) {
  if (!machine().streams.count(stream)) return;
  stream->demanded = std::max(stream->demanded, sequence);
  machine().changed.notify_all();
}

aclError context_error(Context* context) {
  const auto dead = machine().dead.find(context->card);
  if (dead != machine().dead.end()) {
    return fail(dead->second, "EE9999: the heartbeat of card " + std::to_string(context->card) +
                                  " is lost [NPU SIMULATOR]");
  }
  return context->error ? fail(context->error, context->error_text) : 0;
}

void run_stream(Stream* s) {
  this_stream = s;
  Machine& m = machine();
  std::unique_lock hold(m.lock);
  for (;;) {
    const bool was_idle = s->queue.empty();
    m.changed.wait(hold, [&] { return s->queue.empty() ? s->closing : may_run(s); });
    if (s->queue.empty()) return;
    const std::shared_ptr<Task> task = s->queue.front();
    const bool skipped = s->context->stopped || m.dead.count(s->context->card);
    hold.unlock();
    delay(s, was_idle);
    if (task->work && !skipped) run_work(s, *task);
    hold.lock();
    if (task->await) await(s, *task, hold);
    if (task->record) {
      task->record->done = true;
      task->record->when = std::chrono::steady_clock::now();
    }
    s->completed = std::max(s->completed, task->sequence);
    if (!s->queue.empty() && s->queue.front() == task) s->queue.pop_front();
    if (s->queue.empty()) s->aborting = false;
    m.changed.notify_all();
  }
}

aclError enqueue(Stream* stream, Task task) {
  Machine& m = machine();
  std::string race;
  {
    std::lock_guard hold(m.lock);
    if (const aclError error = context_error(stream->context)) return error;
    if (stream->capture) {
      if (task.record || task.await)
        return fail(207000, "EE1001: events are not captured [NPU SIMULATOR]");
      stream->capture->tasks.push_back(std::move(task));
      return 0;
    }
    task.sequence = ++stream->issued;
    merge(stream->clock, m.host);
    if (task.await) merge(stream->clock, task.await->clock);
    task.clock = stream->clock;
    stream->clock[stream->id] = task.sequence;
    if (task.record) {
      task.record->stream = stream;
      task.record->sequence = task.sequence;
      task.record->clock = stream->clock;
    }
    race = race_of(stream, task);
    if (!task.ranges.empty()) m.past.push_back({task.name, task.ranges, stream->id, task.sequence});
    if (m.past.size() > kMostPast) m.past.pop_front();
    stream->queue.push_back(std::make_shared<Task>(std::move(task)));
  }
  m.changed.notify_all();
  count("tasks");
  if (!race.empty()) violation(race);
  return 0;
}

aclError wait_for_stream(Stream* stream, int64_t timeout_ms) {
  Machine& m = machine();
  std::unique_lock hold(m.lock);
  const uint64_t target = stream->issued;
  const Clock seen = stream->clock;
  demand(stream, target);
  if (wait_until([&] { return stream->completed >= target; }, hold, timeout_ms)) {
    return fail(507046, "EE1002: Stream synchronize timeout [NPU SIMULATOR]");
  }
  host_has_seen(seen);
  return context_error(stream->context);
}

aclError wait_for_context(Context* context, int64_t timeout_ms) {
  Machine& m = machine();
  std::unique_lock hold(m.lock);
  std::vector<std::pair<Stream*, uint64_t>> targets;
  Clock seen;
  for (Stream* stream : m.streams) {
    if (stream->context->card != context->card) continue;
    targets.emplace_back(stream, stream->issued);
    merge(seen, stream->clock);
    demand(stream, stream->issued);
  }
  const auto over = [&] {
    return std::all_of(targets.begin(), targets.end(), [&](const auto& t) {
      return !m.streams.count(t.first) || t.first->completed >= t.second;
    });
  };
  if (wait_until(over, hold, timeout_ms)) {
    return fail(507046, "EE1002: Device synchronize timeout [NPU SIMULATOR]");
  }
  host_has_seen(seen);
  return context_error(context);
}

aclError wait_for_record(const std::shared_ptr<Record>& record, Context* context,
                         int64_t timeout_ms) {
  std::unique_lock hold(machine().lock);
  demand(record->stream, record->sequence);
  if (wait_until([&] { return record->done; }, hold, timeout_ms)) {
    return fail(507047, "EE1002: Event synchronize timeout [NPU SIMULATOR]");
  }
  host_has_seen(record->clock);
  return context_error(context);
}

bool stream_is_idle(Stream* stream) {
  std::lock_guard hold(machine().lock);
  demand(stream, stream->issued);
  if (stream->completed < stream->issued) return false;
  host_has_seen(stream->clock);
  return true;
}

bool record_is_done(const std::shared_ptr<Record>& record) {
  std::lock_guard hold(machine().lock);
  demand(record->stream, record->sequence);
  if (!record->done) return false;
  host_has_seen(record->clock);
  return true;
}

std::string pending_use(const void* p, size_t bytes, bool only_writes) {
  const Range mine = {reinterpret_cast<uintptr_t>(p), reinterpret_cast<uintptr_t>(p) + bytes,
                      !only_writes};
  std::lock_guard hold(machine().lock);
  for (const Past& past : machine().past) {
    for (const Range& range : past.ranges) {
      if (overlap(mine, range)) return past.name + " on stream " + std::to_string(past.stream);
    }
  }
  return "";
}

bool task_is_cancelled() {
  std::lock_guard hold(machine().lock);
  return this_stream && this_stream->aborting;
}

}  // namespace npu_sim
