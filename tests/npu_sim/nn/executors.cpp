// Executors: the second call of an operator, and those that run several times.
#include <algorithm>
#include <deque>
#include <mutex>

#include "core/config.h"
#include "core/memory.h"
#include "core/report.h"
#include "nn/objects.h"

namespace npu_sim {
namespace {

constexpr size_t kDeadExecutors = 4096;

void bury_executor(aclOpExecutor* executor) {
  static auto* graves = new std::deque<std::unique_ptr<aclOpExecutor>>;
  static std::mutex lock;
  leave_book(executor, Kind::kExecutor);
  std::lock_guard hold(lock);
  executor->work = nullptr;
  graves->emplace_back(executor);
  if (graves->size() > kDeadExecutors) graves->pop_front();
}

aclnnStatus runtime_error(const std::string& text) { return fail(361001, "EZ9903: " + text); }

/// Bytes of a slot, with the tail of 32 that kernels read behind it.
struct Bytes {
  char* begin;
  size_t size;
};

Bytes bytes_of_slot(const Slot& slot) {
  const size_t one = size_of(slot.view.dtype);
  char* begin = static_cast<char*>(slot.address) + static_cast<size_t>(slot.view.offset) * one;
  return {begin, static_cast<size_t>(slot.view.extent()) * one};
}

/// Whether what the executor was made of still lives.
bool arguments_live(const aclOpExecutor& executor) {
  for (const auto& used : executor.used) {
    if (number_in_book(used.handle, used.kind) == used.number) continue;
    violation(executor.op + ": '" + used.name + "' was destroyed before the second call");
    return false;
  }
  return true;
}

aclnnStatus check_workspace(const aclOpExecutor& executor, void* workspace, uint64_t bytes) {
  if (executor.workspace == 0) return 0;
  if (!workspace)
    return fail(161001,
                "EZ1001: AclNN_Parameter_Error: " + executor.op + ": the workspace is null");
  const std::string where = executor.op + ": the workspace ";
  if (bytes != executor.workspace) {
    violation(where + "is said to have " + std::to_string(bytes) +
              " bytes, the first call asked for " + std::to_string(executor.workspace));
    return 161002;
  }
  if (reinterpret_cast<uintptr_t>(workspace) % 64 != 0)
    violation(where + "is not aligned to 64 bytes");
  if (!block_around(workspace, bytes)) {
    violation(where + "does not lie in memory of a card, or is smaller than asked for");
    return 161002;
  }
  return 0;
}

std::vector<Range> ranges_of(const std::vector<Slot>& slots) {
  std::vector<Range> ranges;
  for (const Slot& slot : slots) {
    const Bytes bytes = bytes_of_slot(slot);
    if (slot.view.numel() > 0)
      ranges.push_back(slot.writes ? writes(bytes.begin, bytes.size)
                                   : reads(bytes.begin, bytes.size));
  }
  return ranges;
}

Task task_of(const aclOpExecutor& executor, void* workspace, Context* context) {
  static std::atomic<uint64_t> launches = 0;
  Task task;
  task.name = executor.op;
  task.ranges = ranges_of(executor.slots);
  const uint64_t work_bytes = executor.workspace;
  if (work_bytes) task.ranges.push_back(writes(workspace, work_bytes));
  task.work = [slots = executor.slots, work = executor.work, workspace, work_bytes,
               deterministic = is_deterministic(context), seed = config().seed + ++launches] {
    if (work_bytes) {
      const auto block = block_around(workspace, work_bytes);
      if (!block) throw TaskError{507035, "the workspace was freed before the operator ran"};
      std::memset(block->data() + (reinterpret_cast<uintptr_t>(workspace) - block->begin()),
                  kPoison, work_bytes);
    }
    Run run(slots, deterministic, seed);
    (*work)(run);
  };
  return task;
}

aclnnStatus set_address(aclOpExecutor* executor, const std::vector<int>& which, size_t index,
                        const aclTensor* tensor, void* address) {
  if (!executor || !tensor)
    return fail(161001, "EZ1001: AclNN_Parameter_Error: null executor or tensor");
  if (!executor->repeatable) {
    violation(executor->op + ": an address is set in an executor that is not repeatable");
    return 161002;
  }
  if (const aclError planted = planted_call_error("aclSetTensorAddr", -1))
    return fail(planted, "EZ1001: AclNN_Parameter_Error: planted");
  if (index >= which.size())
    return fail(161002, "EZ1001: AclNN_Parameter_Error: no tensor " + std::to_string(index));
  if (reinterpret_cast<uintptr_t>(address) % 32 != 0)
    violation(executor->op + ": an address is not aligned to 32 bytes");
  executor->slots[static_cast<size_t>(which[index])].address = address;
  return 0;
}

}  // namespace

Live Run::at(int slot) const {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  if (s.view.numel() == 0) return {s.view, nullptr};
  const Bytes bytes = bytes_of_slot(s);
  const auto block = block_around(bytes.begin, bytes.size);
  if (!block) {
    throw TaskError{
        507035,
        "'" + s.name + "' does not lie in memory of a card (freed, too short, or the host's)"};
  }
  const auto base = reinterpret_cast<uintptr_t>(s.address);
  return {s.view,
          block->data() + (static_cast<ptrdiff_t>(base) - static_cast<ptrdiff_t>(block->begin()))};
}

std::vector<int64_t> Run::order(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i;
  if (!deterministic_) std::shuffle(order.begin(), order.end(), random_);
  return order;
}

aclnnStatus execute(const char* op, void* workspace, uint64_t bytes, aclOpExecutor* executor,
                    aclrtStream handle) {
  Context* context = nullptr;
  if (!executor)
    return fail(161001, std::string("EZ1001: AclNN_Parameter_Error: ") + op + ": null executor");
  if (!number_in_book(executor, Kind::kExecutor)) {
    violation(std::string(op) + ": the executor was consumed before or never made");
    return 161002;
  }
  if (executor->op != op) {
    violation(std::string(op) + ": the executor is one of " + executor->op);
    return 161002;
  }
  struct Consumed {  // whatever happens, the executor is used up
    aclOpExecutor* executor;
    ~Consumed() {
      if (!executor->repeatable) bury_executor(executor);
    }
  } const consumed{executor};
  if (const aclError error = enter(op, Need::kContext, &context))
    return runtime_error("error " + std::to_string(error));
  if (!arguments_live(*executor)) return 161002;
  if (const aclnnStatus error = check_workspace(*executor, workspace, bytes)) return error;
  Stream* stream = nullptr;
  if (const aclError error = find_stream(context, handle, &stream)) {
    return runtime_error(std::string(op) + ": the stream is not in the current context (" +
                         std::to_string(error) + ")");
  }
  count("launches");
  count(std::string("launches.") + op);
  if (!*executor->work) return 0;
  if (const aclError error = enqueue(stream, task_of(*executor, workspace, context))) {
    const char* text = take_message();
    return runtime_error(std::string(op) + ": runtime error " + std::to_string(error) + ": " +
                         (text ? text : ""));
  }
  return 0;
}

}  // namespace npu_sim

extern "C" {

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  if (!executor || !npu_sim::number_in_book(executor, npu_sim::Kind::kExecutor)) {
    return npu_sim::fail(161001, "EZ1001: AclNN_Parameter_Error: no such executor");
  }
  executor->repeatable = true;
  return 0;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  if (!executor) return npu_sim::fail(161001, "EZ1001: AclNN_Parameter_Error: null executor");
  if (!npu_sim::number_in_book(executor, npu_sim::Kind::kExecutor)) {
    npu_sim::violation("aclDestroyAclOpExecutor: the executor does not live");
    return 161002;
  }
  npu_sim::bury_executor(executor);
  return 0;
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                  void* addr) {
  return npu_sim::set_address(executor, executor ? executor->inputs : std::vector<int>{}, index,
                              tensor, addr);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                   void* addr) {
  return npu_sim::set_address(executor, executor ? executor->outputs : std::vector<int>{}, index,
                              tensor, addr);
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                             void* addr) {
  std::vector<int> all;
  if (executor) {
    all = executor->inputs;
    all.insert(all.end(), executor->outputs.begin(), executor->outputs.end());
  }
  return npu_sim::set_address(executor, all, index, tensor, addr);
}

aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                         const size_t relativeIndex, aclTensorList* tensors,
                                         void* addr) {
  if (!tensors || relativeIndex >= tensors->tensors.size())
    return npu_sim::fail(161001, "EZ1001: no such tensor");
  return npu_sim::set_address(executor, executor ? executor->inputs : std::vector<int>{},
                              irIndex + relativeIndex, tensors->tensors[relativeIndex], addr);
}

aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                          const size_t relativeIndex, aclTensorList* tensors,
                                          void* addr) {
  if (!tensors || relativeIndex >= tensors->tensors.size())
    return npu_sim::fail(161001, "EZ1001: no such tensor");
  return npu_sim::set_address(executor, executor ? executor->outputs : std::vector<int>{},
                              irIndex + relativeIndex, tensors->tensors[relativeIndex], addr);
}

aclnnStatus aclnnInit(const char* configPath) {
  const aclError error = aclInit(configPath);
  return error == 100002 ? 0 : error;
}

aclnnStatus aclnnFinalize() { return 0; }

int InitHugeMemThreadLocal(void*, bool) { return 0; }
void UnInitHugeMemThreadLocal(void*, bool) {}
void ReleaseHugeMem(void*, bool) {}
}
