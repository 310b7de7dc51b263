// tests/support/pretend_device.h: an accelerator that is host memory: what it holds is counted, and
// nobody else reaches it.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace danlu::test {

/// As many as a machine of several cards: ranks that are threads take one each, as processes would.
constexpr int kPretendDevices = 4;

/// A PrivateUse1 device, registered in every program that links pretend_device.cpp. Addresses of
/// its tensors are no addresses of this process: who reads or writes one past the dispatcher ends
/// by SIGSEGV. Fresh memory is NaN. aten computes on it by copies on the CPU; an operator that
/// would lose a view that way throws. The current device is a thread's own, at first 0.
///
/// What it does it does later, in the order of its streams alone (support/pretend_streams.h), and
/// memory that was handed back is NaN: who does not wait for what he reads reads that, or what was
/// there before.
c10::Device pretend_device(int index = 0);

/// Bytes of tensors on a device: now, and the most since reset_pretend_peak.
int64_t pretend_bytes(int index = 0);
int64_t pretend_peak(int index = 0);
void reset_pretend_peak(int index = 0);

/// How often the host would have waited for a card, on any of them: numbers came to the host,
/// tensors came to it or went to the device otherwise than by device/host_memory.h, or
/// aten had to know values.
int64_t pretend_waits();
/// How often tensors of the host have gone to one by another stream than its default.
int64_t pretend_copies_beside();

/// A tensor of a device as the CPU's own, in the same memory, which it does not keep: for work that
/// is given to the device.
at::Tensor pretend_memory(const at::Tensor& tensor);
/// The thread's current stream of the device does `work`, which touches these tensors, later.
void give_pretend_device(const c10::Device& device, const char* what,
                         const std::vector<at::Tensor>& uses, std::function<void()> work);
/// Until the thread's current stream of the device has done everything. Errors: as do_until has.
void wait_for_pretend_stream(const c10::Device& device);
/// Until all streams of all of them have. Errors: the first.
void wait_for_pretend_devices();
/// Whether aten computes there, as it does at first; else what would throws, naming the operator.
void set_pretend_aten(bool computes);

}  // namespace danlu::test
