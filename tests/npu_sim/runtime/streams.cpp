// Streams, events and captured graphs.
#include <chrono>

#include "acl_api.h"
#include "core/machine.h"
#include "core/report.h"

using namespace npu_sim;

namespace {

constexpr size_t kMostEvents = 65536;

aclError null_argument(const char* function) {
  return fail(107000,
              std::string("EE1001: The argument is invalid. ") + function + ": null argument");
}

/// The context and one of its streams.
aclError enter_stream(const char* function, aclrtStream handle, Stream** stream) {
  Context* context = nullptr;
  const aclError error = enter(function, Need::kContext, &context);
  return error ? error : find_stream(context, handle, stream);
}

aclError make_event(const char* function, aclrtEvent* out, Event::Kind kind, uint32_t flags) {
  Context* context = nullptr;
  if (!out) return null_argument(function);
  if (const aclError error = enter(function, Need::kContext, &context)) return error;
  std::lock_guard hold(machine().lock);
  if (machine().events.size() >= kMostEvents)
    return fail(207005, "EE9999: no more events on this device");
  auto* event = new Event;
  event->kind = kind;
  event->flags = flags;
  event->context = context;
  machine().events.insert(event);
  *out = event;
  return 0;
}

aclError destroy_stream(const char* function, aclrtStream handle, bool force) {
  Stream* stream = nullptr;
  if (!handle) return null_argument(function);
  if (const aclError error = enter_stream(function, handle, &stream)) return error;
  if (stream == stream->context->default_stream)
    return fail(107000, "EE1001: the default stream is not destroyed");
  close_stream(stream, force);
  return 0;
}

bool can_order(const Event& event) {
  return event.kind == Event::kPlain || (event.flags & ACL_EVENT_SYNC);
}

}  // namespace

extern "C" {

aclError aclrtCreateStreamWithConfig(aclrtStream* out, uint32_t, uint32_t) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  if (!out) return null_argument("aclrtCreateStream");
  if (const aclError error = enter("aclrtCreateStream", Need::kContext, &context)) return error;
  if (const aclError error = make_stream(context, &stream)) return error;
  *out = stream;
  return 0;
}

aclError aclrtCreateStream(aclrtStream* stream) {
  return aclrtCreateStreamWithConfig(stream, 0, 0);
}
aclError aclrtDestroyStream(aclrtStream stream) {
  return destroy_stream("aclrtDestroyStream", stream, false);
}
aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return destroy_stream("aclrtDestroyStreamForce", stream, true);
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream handle, int32_t timeout_ms) {
  Stream* stream = nullptr;
  if (const aclError error = enter_stream("aclrtSynchronizeStream", handle, &stream)) return error;
  count("synchronise.stream");
  count("synchronisations");
  return wait_for_stream(stream, timeout_ms);
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return aclrtSynchronizeStreamWithTimeout(stream, -1);
}

aclError aclrtStreamQuery(aclrtStream handle, aclrtStreamStatus* status) {
  Stream* stream = nullptr;
  if (!status) return null_argument("aclrtStreamQuery");
  if (const aclError error = enter_stream("aclrtStreamQuery", handle, &stream)) return error;
  *status = stream_is_idle(stream) ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return 0;
}

aclError aclrtStreamWaitEvent(aclrtStream handle, aclrtEvent event_handle) {
  Stream* stream = nullptr;
  Event* event = nullptr;
  if (const aclError error = enter_stream("aclrtStreamWaitEvent", handle, &stream)) return error;
  if (const aclError error = find_event(event_handle, &event)) return error;
  if (!can_order(*event))
    return fail(107000, "EE1001: aclrtStreamWaitEvent: the event was made without SYNC");
  std::shared_ptr<Record> record;
  {
    std::lock_guard hold(machine().lock);
    record = event->latest;
  }
  if (!record) return 0;  // never recorded: counts as complete
  Task task;
  task.name = "aclrtStreamWaitEvent";
  task.await = record;
  return enqueue(stream, std::move(task));
}

aclError aclrtSetStreamFailureMode(aclrtStream handle, uint64_t mode) {
  Stream* stream = nullptr;
  if (const aclError error = enter_stream("aclrtSetStreamFailureMode", handle, &stream))
    return error;
  std::lock_guard hold(machine().lock);
  if (mode > ACL_STOP_ON_FAILURE)
    return fail(107000, "EE1001: The argument is invalid. unknown failure mode");
  if (stream->stop_on_failure)
    return fail(107000, "EE1001: the failure mode of a stream is set once");
  stream->stop_on_failure = mode == ACL_STOP_ON_FAILURE;
  return 0;
}

aclError aclrtStreamAbort(aclrtStream handle) {
  Stream* stream = nullptr;
  if (const aclError error = enter_stream("aclrtStreamAbort", handle, &stream)) return error;
  abort_stream(stream);
  return 0;
}

aclError aclrtCreateEvent(aclrtEvent* event) {
  return make_event("aclrtCreateEvent", event, Event::kPlain, 0);
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return make_event("aclrtCreateEventWithFlag", event, Event::kOld, flag);
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return make_event("aclrtCreateEventExWithFlag", event, Event::kEx, flag);
}

aclError aclrtDestroyEvent(aclrtEvent handle) {
  if (const aclError error = enter("aclrtDestroyEvent", Need::kContext)) return error;
  std::lock_guard hold(machine().lock);
  // Its record lives on in the streams that wait for it.
  if (machine().events.erase(static_cast<Event*>(handle)) == 0) {
    return fail(107000, "EE1001: aclrtDestroyEvent: no such event (destroyed twice?)");
  }
  delete static_cast<Event*>(handle);
  return 0;
}

aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream_handle) {
  Stream* stream = nullptr;
  Event* event = nullptr;
  if (const aclError error = enter_stream("aclrtRecordEvent", stream_handle, &stream)) return error;
  if (const aclError error = find_event(handle, &event)) return error;
  if (event->context != stream->context)
    return fail(107003, "EE1001: the event is not of the stream's context");
  if (event->kind == Event::kOld && (event->flags & ACL_EVENT_SYNC) && event->needs_reset) {
    violation(
        "aclrtRecordEvent: an event of the old kind is recorded again without aclrtResetEvent");
    return 107000;
  }
  auto record = std::make_shared<Record>();
  Task task;
  task.name = "aclrtRecordEvent";
  task.record = record;
  if (const aclError error = enqueue(stream, std::move(task))) return error;
  std::lock_guard hold(machine().lock);
  event->latest = record;
  event->needs_reset = true;
  return 0;
}

aclError aclrtResetEvent(aclrtEvent handle, aclrtStream stream_handle) {
  Stream* stream = nullptr;
  Event* event = nullptr;
  if (const aclError error = enter_stream("aclrtResetEvent", stream_handle, &stream)) return error;
  if (const aclError error = find_event(handle, &event)) return error;
  if (event->kind == Event::kEx)
    return fail(207000, "EE9999: aclrtResetEvent is not for events of this kind");
  std::lock_guard hold(machine().lock);
  event->needs_reset = false;
  return 0;
}

aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus* status) {
  Event* event = nullptr;
  if (!status) return null_argument("aclrtQueryEventStatus");
  if (const aclError error = enter("aclrtQueryEventStatus", Need::kContext)) return error;
  if (const aclError error = find_event(handle, &event)) return error;
  const bool done = !event->latest || record_is_done(event->latest);
  *status = done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return 0;
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent handle, int32_t timeout_ms) {
  Event* event = nullptr;
  if (const aclError error = enter("aclrtSynchronizeEvent", Need::kContext)) return error;
  if (const aclError error = find_event(handle, &event)) return error;
  count("synchronise.event");
  count("synchronisations");
  return event->latest ? wait_for_record(event->latest, event->context, timeout_ms) : 0;
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return aclrtSynchronizeEventWithTimeout(event, -1);
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent start, aclrtEvent end) {
  Event *from = nullptr, *to = nullptr;
  if (!ms) return null_argument("aclrtEventElapsedTime");
  if (const aclError error = enter("aclrtEventElapsedTime", Need::kContext)) return error;
  if (const aclError error = find_event(start, &from)) return error;
  if (const aclError error = find_event(end, &to)) return error;
  for (const Event* event : {from, to}) {
    if (event->kind != Event::kPlain && !(event->flags & ACL_EVENT_TIME_LINE)) {
      return fail(107000, "EE1001: aclrtEventElapsedTime: an event was made without TIME_LINE");
    }
    if (!event->latest || !record_is_done(event->latest)) {
      return fail(107000, "EE1001: aclrtEventElapsedTime: an event is not complete");
    }
  }
  *ms = std::chrono::duration<float, std::milli>(to->latest->when - from->latest->when).count();
  return 0;
}

aclError aclmdlRICaptureBegin(aclrtStream handle, aclmdlRICaptureMode) {
  Stream* stream = nullptr;
  if (const aclError error = enter_stream("aclmdlRICaptureBegin", handle, &stream)) return error;
  if (config().chip.family == Family::k910A) return fail(207000, "EE9999: this chip has no graphs");
  std::lock_guard hold(machine().lock);
  if (!handle || stream->capture)
    return fail(107000, "EE1001: aclmdlRICaptureBegin: default stream, or captured already");
  stream->capture = new Graph;
  return 0;
}

aclError aclmdlRICaptureEnd(aclrtStream handle, aclmdlRI* model) {
  Stream* stream = nullptr;
  if (!model) return null_argument("aclmdlRICaptureEnd");
  if (const aclError error = enter_stream("aclmdlRICaptureEnd", handle, &stream)) return error;
  std::lock_guard hold(machine().lock);
  if (!stream->capture)
    return fail(107000, "EE1001: aclmdlRICaptureEnd: the stream is not captured");
  *model = stream->capture;
  stream->capture = nullptr;
  return 0;
}

aclError aclmdlRIExecuteAsync(aclmdlRI model, aclrtStream handle) {
  Stream* stream = nullptr;
  if (!model) return null_argument("aclmdlRIExecuteAsync");
  if (const aclError error = enter_stream("aclmdlRIExecuteAsync", handle, &stream)) return error;
  for (const Task& task : static_cast<Graph*>(model)->tasks) {
    if (const aclError error = enqueue(stream, task)) return error;
  }
  return 0;
}

aclError aclmdlRIDestroy(aclmdlRI model) {
  delete static_cast<Graph*>(model);
  return 0;
}
}
