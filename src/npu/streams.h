// npu/streams.h: streams of NPUs by the numbers that libtorch gives them, and events in them.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "npu/acl.h"

namespace danlu::npu {

/// Number 0 is a device's default stream, on which passes run; beside() gives the others in turn.
inline constexpr c10::StreamId kStreamsBeside = 8;

/// Made when it is first asked for. Enters the device.
AclStream stream_of(int device, c10::StreamId id);

/// The calling thread's current stream of a device: its default one, until another is put in force.
c10::StreamId current_stream(int device);
c10::StreamId exchange_stream(int device, c10::StreamId id);
c10::StreamId next_beside();

/// Events can be recorded again and again. Destroying one that is not over is allowed.
AclEvent new_event();
void record(AclEvent event, AclStream stream);
bool is_over(AclEvent event);
void destroy(AclEvent event) noexcept;
/// The stream's later work begins when the event is over.
void wait_for_event(AclStream stream, AclEvent event);

/// Errors: those of what the stream had to do.
void synchronize(AclStream stream);
bool query(AclStream stream);  ///< whether it has done everything
/// How often a thread of the host has waited for a device.
int64_t waits_so_far();

/// At the end: after it nothing of the device may be used.
void destroy_streams(int device);

}  // namespace danlu::npu
