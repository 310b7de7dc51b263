// Contexts of cards and threads, and the streams in them.
#include <algorithm>
#include <cstdlib>

#include "core/config.h"
#include "core/machine.h"
#include "core/memory.h"
#include "core/report.h"
#include "npu_sim.h"

namespace npu_sim {
namespace {

struct ThreadContext {
  Context* context = nullptr;
  uint64_t generation = 0;
};
thread_local ThreadContext thread_context;

/// With the lock held.
Stream* new_stream(Context* context) {
  Machine& m = machine();
  auto* stream = new Stream;
  stream->id = m.next_stream++;
  stream->context = context;
  stream->random.seed(config().seed * 7919 + stream->id);
  m.streams.insert(stream);
  stream->worker = std::thread(run_stream, stream);
  return stream;
}

/// With the lock held.
Context* new_context(int card) {
  auto* context = new Context;
  context->card = card;
  context->default_stream = new_stream(context);
  machine().contexts.insert(context);
  return context;
}

void close_context(Context* context, bool force) {
  std::vector<Stream*> streams;
  {
    std::lock_guard hold(machine().lock);
    context->alive = false;
    for (Stream* stream : machine().streams) {
      if (stream->context == context) streams.push_back(stream);
    }
  }
  for (Stream* stream : streams) close_stream(stream, force);
}

/// With the lock held: the tasks that wait are forgotten, and who waits for them goes on.
void drop_tasks(Stream* stream) {
  if (!stream->queue.empty()) stream->aborting = true;
  for (const auto& task : stream->queue) {
    if (task->record) {
      task->record->done = true;
      task->record->when = std::chrono::steady_clock::now();
    }
  }
  stream->queue.clear();
  stream->completed = stream->issued;
}

}  // namespace

Context* current_context() {
  std::lock_guard hold(machine().lock);
  const ThreadContext& mine = thread_context;
  return mine.context && mine.generation == machine().generation && mine.context->alive
             ? mine.context
             : nullptr;
}

aclError enter(const char* function, Need need, Context** context) {
  Machine& m = machine();
  Context* mine = current_context();
  if (need != Need::kNothing) {
    std::lock_guard hold(m.lock);
    if (!m.initialised || m.finalised) {
      return fail(100001, std::string("EH0001: ") + function +
                              (m.finalised ? " after aclFinalize" : " before aclInit"));
    }
    if (need == Need::kContext && !mine) {
      return fail(107002, std::string("EE1001: The argument is invalid. ") + function +
                              ": this thread has no current context: call aclrtSetDevice in it");
    }
  }
  const int card = mine ? config().cards[static_cast<size_t>(mine->card)] : -1;
  if (const aclError planted = planted_call_error(function, card)) {
    return fail(planted,
                std::string("EE9999: planted failure of ") + function + " [NPU SIMULATOR]");
  }
  if (need == Need::kContext) {
    std::lock_guard hold(m.lock);
    if (m.dead.count(mine->card)) return context_error(mine);
  }
  if (context) *context = mine;
  return 0;
}

aclError find_stream(Context* context, aclrtStream handle, Stream** out) {
  std::lock_guard hold(machine().lock);
  if (!handle) {
    *out = context->default_stream;
    return 0;
  }
  auto* stream = static_cast<Stream*>(handle);
  if (!machine().streams.count(stream) || stream->context != context) {
    return fail(107003,
                "EE1001: The argument is invalid. The stream is not in the current context");
  }
  *out = stream;
  return 0;
}

aclError find_event(aclrtEvent handle, Event** out) {
  std::lock_guard hold(machine().lock);
  auto* event = static_cast<Event*>(handle);
  if (!machine().events.count(event))
    return fail(107000, "EE1001: The argument is invalid. There is no such event");
  *out = event;
  return 0;
}

aclError set_device(int card) {
  Machine& m = machine();
  if (card < 0 || static_cast<size_t>(card) >= config().cards.size()) {
    return fail(107001, "EE1001: The argument is invalid. Device " + std::to_string(card) + " of " +
                            std::to_string(config().cards.size()));
  }
  std::lock_guard hold(m.lock);
  Context*& context = m.default_context[card];
  if (!context || !context->alive) {
    context = new_context(card);
    context->is_default = true;
  }
  ++m.times_set[card];
  thread_context = {context, m.generation};
  return 0;
}

aclError reset_device(int card, bool force) {
  Machine& m = machine();
  std::vector<Context*> all;
  {
    std::lock_guard hold(m.lock);
    const auto found = m.default_context.find(card);
    if (found == m.default_context.end() || !found->second->alive) {
      return fail(107001, "EE1001: The argument is invalid. Device " + std::to_string(card) +
                              " is not set");
    }
    if (--m.times_set[card] > 0 && !force) return 0;
    m.times_set[card] = 0;
    for (Context* one : m.contexts) {
      if (one->alive && one->card == card) all.push_back(one);
    }
  }
  for (Context* one : all) close_context(one, force || one->error);
  release_card(card);
  std::lock_guard hold(m.lock);
  if (force) m.dead.erase(card);
  m.default_context.erase(card);
  return 0;
}

aclError create_context(int card, aclrtContext* out) {
  std::lock_guard hold(machine().lock);
  Context* context = new_context(card);
  thread_context = {context, machine().generation};
  *out = context;
  return 0;
}

aclError destroy_context(aclrtContext handle) {
  auto* context = static_cast<Context*>(handle);
  {
    std::lock_guard hold(machine().lock);
    if (!machine().contexts.count(context) || !context->alive || context->is_default) {
      return fail(107000,
                  "EE1001: The argument is invalid. no context that aclrtCreateContext made");
    }
  }
  close_context(context, false);
  return 0;
}

aclError set_current_context(aclrtContext handle) {
  auto* context = static_cast<Context*>(handle);
  std::lock_guard hold(machine().lock);
  if (!machine().contexts.count(context) || !context->alive) {
    return fail(107002, "EE1001: The argument is invalid. the context does not live");
  }
  thread_context = {context, machine().generation};
  return 0;
}

aclError make_stream(Context* context, Stream** out) {
  Machine& m = machine();
  std::lock_guard hold(m.lock);
  int64_t of_card = 0;
  for (const Stream* stream : m.streams) of_card += stream->context->card == context->card;
  if (of_card >= config().chip.max_streams)
    return fail(207008, "EE9999: no more streams on this device");
  *out = new_stream(context);
  return 0;
}

void close_stream(Stream* stream, bool force) {
  Machine& m = machine();
  {
    std::lock_guard hold(m.lock);
    if (force || stream->context->stopped) drop_tasks(stream);
    stream->closing = true;
    m.changed.notify_all();
  }
  if (stream->worker.joinable()) stream->worker.join();
  std::lock_guard hold(m.lock);
  host_has_seen(stream->clock);
  m.streams.erase(stream);
  m.changed.notify_all();
  // Records of it may still be asked about: the handle stays, as a dead one.
}

void abort_stream(Stream* stream) {
  std::lock_guard hold(machine().lock);
  drop_tasks(stream);
  machine().changed.notify_all();
}

int64_t live_streams() {
  std::lock_guard hold(machine().lock);
  int64_t own = 0;
  for (const Stream* stream : machine().streams) own += stream->context->default_stream != stream;
  return own;
}

int64_t live_events() {
  std::lock_guard hold(machine().lock);
  return static_cast<int64_t>(machine().events.size());
}

void set_schedule(int schedule) {
  std::lock_guard hold(machine().lock);
  config().schedule = static_cast<Schedule>(schedule);
  machine().changed.notify_all();
}

bool is_deterministic(Context* context) {
  std::lock_guard hold(machine().lock);
  return machine().deterministic != 0 || (context && context->deterministic != 0);
}

void set_deterministic(int64_t value) {
  std::lock_guard hold(machine().lock);
  machine().deterministic = value;
}

void set_collective_timeout(int64_t ms) {
  std::lock_guard hold(machine().lock);
  machine().collective_timeout_ms = ms;
}

int64_t collective_timeout() {
  {
    std::lock_guard hold(machine().lock);
    if (machine().collective_timeout_ms > 0) return machine().collective_timeout_ms;
  }
  static const int64_t own = number_from_environment("NPU_SIM_EXEC_TIMEOUT_MS", 0);
  if (own > 0) return own;
  const int64_t seconds = number_from_environment("HCCL_EXEC_TIMEOUT", 1836);
  return seconds > 0 ? seconds * 1000 : int64_t{1} << 40;
}

void card_is_dead(int card, aclError code) {
  std::lock_guard hold(machine().lock);
  machine().dead[card] = code;
}

}  // namespace npu_sim

extern "C" {

int NpuSimSchedule(const char* schedule) {
  const std::string name = schedule;
  if (name != "random" && name != "lazy" && name != "eager") return 1;
  npu_sim::set_schedule(name == "random" ? 0 : name == "lazy" ? 1 : 2);
  return 0;
}

void NpuSimCollectiveTimeout(int64_t ms) { npu_sim::set_collective_timeout(ms); }

void NpuSimReset() {
  using namespace npu_sim;
  Machine& m = machine();
  std::vector<int> cards;
  for (const auto& [card, context] : m.default_context) cards.push_back(card);
  for (const int card : cards) reset_device(card, true);
  std::lock_guard hold(m.lock);
  m.initialised = m.finalised = false;
  m.events.clear();
  m.past.clear();
  m.dead.clear();
  m.deterministic = 0;
  m.wait_timeout_ms = 0;
  ++m.generation;
}
}
