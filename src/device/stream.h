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

/// A point in a stream: all that the stream had been given when it was recorded. The host's, and
/// one that was never recorded, is always over. Copies are the same event. Safe between threads.
/// Errors: c10::Error of what failed in the stream.
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

/// Does what it is given one after the other, beside the host and beside other streams. A thread
/// gives its work to its current stream of a device, at first the device's default stream. The
/// host's stream has done everything as soon as it is given, and costs nothing. Other devices have
/// theirs through c10's guard (c10/core/impl/DeviceGuardImplInterface.h), which CUDA's libraries
/// and those of PrivateUse1 implement.
///
/// Memory goes back to the stream in which it was taken, whose later work may take it again. Hence
/// the two rules of whoever uses two streams: the second waits for an event of the first before it
/// touches what the first made, and hold()s what was taken in the first.
class Stream {
 public:
  /// The calling thread's.
  static Stream current(const at::Device& device);
  /// One of the device's others, which it may have given to others too: work is then slower, not
  /// wrong.
  static Stream beside(const at::Device& device);

  Event record() const;
  /// What the stream is given from now on begins when the event is over. The host does not wait.
  void wait_for(const Event& event) const;
  /// The calling thread waits until everything given is done. Errors: c10::Error of what failed.
  void synchronize() const;
  /// The tensor's memory, once nobody has it, is used again only when what this stream has been
  /// given until then is done.
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
  std::optional<c10::Stream> stream_;  ///< none: the host's
};

}  // namespace danlu::device
