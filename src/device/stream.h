// device/stream.h: the order of what a device does: streams, and events in them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>

namespace c10 {
struct Event;
}

namespace danlu::device {

/// A point in a stream. It is over when everything is done that the stream had been given when the
/// event was recorded. The host's events, and one that was never recorded, are always over. A copy
/// is the same event. Safe between threads. Errors: c10::Error for work that failed in the stream.
class Event {
 public:
  Event() = default;
  bool is_over() const;
  /// The calling thread waits.
  void wait() const;

 private:
  friend class Stream;
  explicit Event(std::shared_ptr<c10::Event> event) : event_(std::move(event)) {}
  std::shared_ptr<c10::Event> event_;
};

/// Does its work in the order in which it is given, beside the host and other streams. A thread
/// gives work to its current stream of a device, which begins as the device's default stream. The
/// host's stream does everything at once and costs nothing. Other devices have streams through
/// c10's guard (c10/core/impl/DeviceGuardImplInterface.h), which CUDA's libraries and those of
/// PrivateUse1 implement.
///
/// Freed memory goes back to the stream that took it, and later work of that stream may take it
/// again. Two rules follow for code that uses two streams. The second stream waits for an event of
/// the first before it touches a result of the first, and it hold()s memory that the first has
/// taken.
class Stream {
 public:
  /// The calling thread's current stream.
  static Stream current(const at::Device& device);
  /// Another stream than the default one. A device has few of them, so others may get the same one;
  /// then work is slower, but not wrong.
  static Stream beside(const at::Device& device);

  Event record() const;
  /// Work that the stream is given from now on begins when the event is over. The host does not
  /// wait.
  void wait_for(const Event& event) const;
  /// The calling thread waits until all work of the stream is done. Errors: c10::Error for what
  /// failed.
  void synchronize() const;
  /// Keeps the tensor's memory from being used again before this stream has done the work that it
  /// has been given by the time the tensor is freed.
  void hold(const at::Tensor& tensor) const;

  /// While it lives, the stream is the calling thread's current one.
  class InForce {
   public:
    explicit InForce(const Stream& stream);
    ~InForce();
    InForce(const InForce&) = delete;
    InForce& operator=(const InForce&) = delete;

   private:
    std::optional<c10::Stream> before_;
  };

 private:
  explicit Stream(std::optional<c10::Stream> stream) : stream_(stream) {}
  std::optional<c10::Stream> stream_;  ///< empty: the host's
};

}  // namespace danlu::device
