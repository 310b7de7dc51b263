// npu/kept_plans.h: plans of operators that run again where arguments of the same types, shapes and
// numbers come again, as in every step of a training and for every token: their tensors are told
// where their memory is now.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "npu/acl.h"

namespace danlu::npu {

/// How many results an operator's last tensors are whose plans are kept; 0: they are not. Such an
/// operator takes tensors and plain numbers alone, changes none of its operands, and copies nothing
/// from the host.
struct Repeats {
  size_t results = 0;
};

struct KeptPlan {
  aclOpExecutor* executor = nullptr;
  uint64_t bytes = 0;                    ///< of memory to work in
  std::vector<aclTensor*> tensors = {};  ///< in order; live as long as the executor
};

/// Whether plans are kept: DANLU_NPU_KEEP_PLANS=1 asks for it, CANN has the functions, and has
/// refused none so far.
bool keeps_plans();
/// Makes an executor one that runs several times; false if CANN does not say that it does.
bool may_repeat(aclOpExecutor* executor);
/// Tells the plan's tensors where their memory is, of all in order; the last `results` are results.
/// Gives CANN's code.
int place_tensors(const KeptPlan& plan, const std::vector<void*>& memory, size_t results);
/// After CANN has refused a plan of this operator: no thread keeps any from now on, which is said
/// once, and this thread's are destroyed.
void give_up_plans(const char* name, int code);
/// This thread's plan of that key, or null.
const KeptPlan* kept_plan(const std::string& key);
/// A thread keeps so many plans; then it waits for the device once and begins anew.
inline constexpr size_t kMostPlans = 8192;
void keep_plan(std::string key, KeptPlan plan);
/// Destroys those of all threads, none of which runs an operator now.
void forget_plans();

[[noreturn]] void throw_unkeyed();

}  // namespace danlu::npu
