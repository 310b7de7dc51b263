#include <cuda_runtime.h>
#include <ucontext.h>

#include <csetjmp>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/cuda/entries.h"

namespace emulated {
namespace {

constexpr size_t kStackBytes = size_t{96} << 10;
constexpr unsigned kLanes = 32, kMostBlocks = 0x7fffffff;

enum class State { kReady, kAtBlock, kAtWarp, kDone };

/// Jumps between stacks, since swapcontext asks the system each time.
struct Thread {
  jmp_buf place;
  std::unique_ptr<char[]> stack;  ///< null: it has never had a turn
  State state = State::kDone;
  dim3 index;
  uint64_t given[2] = {0, 0};  ///< of two exchanges one after the other
  unsigned exchanges = 0;
};

struct Machine {
  jmp_buf scheduler;
  std::vector<Thread> threads;
  size_t turn = 0;
  Place place;
  std::vector<float> memory;
  const std::function<void()>* kernel = nullptr;
  bool is_misaligned = false;
  std::mt19937 chance{1};
};
thread_local Machine machine;

Thread& own() { return machine.threads[machine.turn]; }

void wait(State at) {
  Thread& thread = own();
  thread.state = at;
  if (_setjmp(thread.place) == 0) _longjmp(machine.scheduler, 1);
}

/// What a thread's stack runs: one kernel after the other.
void body() {
  for (;;) {
    (*machine.kernel)();
    wait(State::kDone);
  }
}

void give_turn(Thread& thread) {
  if (_setjmp(machine.scheduler) != 0) return;
  if (thread.stack) _longjmp(thread.place, 1);
  thread.stack = std::make_unique<char[]>(kStackBytes);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = thread.stack.get();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, &body, 0);
  setcontext(&context);
}

void begin_block(size_t count, dim3 block) {
  if (machine.threads.size() < count) machine.threads.resize(count);
  for (size_t i = 0; i < count; ++i) {
    Thread& thread = machine.threads[i];
    thread.state = State::kReady;
    thread.exchanges = 0;
    const auto place = static_cast<unsigned>(i);
    thread.index = dim3(place % block.x, place / block.x % block.y, place / (block.x * block.y));
  }
  std::fill(machine.memory.begin(), machine.memory.end(), std::numeric_limits<float>::quiet_NaN());
}

/// Lets threads [begin, end) go on if all of them that are not done wait there.
bool release(size_t begin, size_t end, State at, bool counts_done) {
  bool any = false;
  for (size_t i = begin; i < end; ++i) {
    const State state = machine.threads[i].state;
    if (state == State::kDone && counts_done) continue;
    if (state != at) return false;
    any = true;
  }
  for (size_t i = begin; i < end; ++i)
    if (machine.threads[i].state == at) machine.threads[i].state = State::kReady;
  return any;
}

void run_block(const char* name, size_t count, dim3 block) {
  begin_block(count, block);
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  for (;;) {
    std::shuffle(order.begin(), order.end(), machine.chance);
    bool ran = false;
    for (const size_t i : order) {
      if (machine.threads[i].state != State::kReady) continue;
      machine.turn = i;
      machine.place.thread = machine.threads[i].index;
      give_turn(machine.threads[i]);
      ran = true;
    }
    bool released = false;
    for (size_t warp = 0; warp < count; warp += kLanes)
      released |= release(warp, std::min<size_t>(warp + kLanes, count), State::kAtWarp, false);
    released |= release(0, count, State::kAtBlock, true);
    if (ran || released) continue;
    for (size_t i = 0; i < count; ++i) {
      if (machine.threads[i].state != State::kDone)
        throw std::logic_error(std::string(name) + ": threads wait for others that never come");
    }
    return;
  }
}

}  // namespace

Place& here() { return machine.place; }
void* dynamic_bytes() { return machine.memory.data(); }
void wait_for_block() { wait(State::kAtBlock); }

const void* aligned_address(const void* address, size_t bytes) {
  alignas(64) static thread_local char elsewhere[64];
  if (reinterpret_cast<uintptr_t>(address) % bytes == 0) return address;
  machine.is_misaligned = true;
  return elsewhere;
}

uint64_t exchanged(uint64_t bits, int mask) {
  const unsigned turn = own().exchanges++ % 2;
  own().given[turn] = bits;
  wait(State::kAtWarp);
  return machine.threads[machine.turn ^ static_cast<size_t>(mask)].given[turn];
}

void run(const char* name, dim3 grid, dim3 block, size_t shared_bytes,
         const std::function<void()>& kernel) {
  const size_t count = size_t{block.x} * block.y * block.z;
  if (count == 0 || count > 1024 || shared_bytes > (size_t{48} << 10) || grid.x > kMostBlocks ||
      grid.y > 65535 || grid.z > 65535)
    throw std::logic_error(std::string(name) + ": a card would not start it");
  machine.kernel = &kernel;
  machine.is_misaligned = false;
  machine.memory.assign(shared_bytes / sizeof(float), 0);
  machine.place.threads = block;
  machine.place.blocks = grid;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        machine.place.block = dim3(x, y, z);
        run_block(name, count, block);
        // Not where it is found: a thread's stack ends with the thread, and nobody would catch it.
        if (machine.is_misaligned)
          throw std::logic_error(std::string(name) + ": an address is not aligned for its numbers");
      }
}

}  // namespace emulated

danlu::ops::cuda::Stream danlu::ops::cuda::current_stream(const c10::Device&) { return nullptr; }
