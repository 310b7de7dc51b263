// tests/support/pretend_streams.h: streams of the pretend device, which do what they are given as
// late as they may.
#pragma once
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace danlu::test {

/// Operations of one stream of one device, done in their order by whichever thread waits for them:
/// none before a wait (of the host, or of another stream that has to go on) asks for it, or chance
/// does, or kMost are waiting. Chance comes from DANLU_PRETEND_SEED (0), so that streams that do
/// not wait for each other meet in ever other orders.
class PretendQueue;

/// A place in a queue: what it had been given when this was taken.
struct PretendPlace {
  PretendQueue* queue = nullptr;
  uint64_t number = 0;
  bool is_reached() const;
};

/// Memory of a device. Who uses it later names it: its bytes stay until then, and are NaN from the
/// moment at which the streams that it was handed back to have come to that.
struct PretendBlock {
  PretendBlock(void* memory, size_t bytes, c10::Device device, PretendQueue& home)
      : memory(memory), bytes(bytes), device(device), homes{&home} {}
  ~PretendBlock();
  PretendBlock(const PretendBlock&) = delete;
  PretendBlock& operator=(const PretendBlock&) = delete;

  void* memory;
  size_t bytes;
  c10::Device device;
  std::vector<PretendQueue*> homes;  ///< which all come to its end; the first took it
  std::atomic<bool> is_handed_back = false;
};
using PretendBlocks = std::vector<std::shared_ptr<PretendBlock>>;

/// The queue of a device's stream; stream 0 is its default.
PretendQueue& pretend_queue(const c10::Stream& stream);

/// The queue does `work`, which only touches these blocks, later. `what` is a literal.
void give(PretendQueue& queue, const char* what, PretendBlocks blocks, std::function<void()> work);
PretendPlace place_in(PretendQueue& queue);
/// From here on the queue waits until the place is reached.
void wait_for(PretendQueue& queue, const PretendPlace& place);
/// Does what there is up to the place, and of other queues what that waits for. Errors: the first
/// of an operation on the device, once: c10::Error for one that used memory which was handed back.
void do_until(const PretendPlace& place);
/// As chance has it; whether the place is reached then.
bool ask_for(const PretendPlace& place);
/// All queues of a device, to their ends.
void do_all(const c10::Device& device);
/// Nobody has the block any more but what is under way.
void hand_back(const std::shared_ptr<PretendBlock>& block);
/// The queue's work, too, will have been done before the block is anybody else's.
void hold(PretendBlock& block, PretendQueue& queue);

}  // namespace danlu::test
