#include "npu/kept_plans.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "npu/context.h"
#include "npu/library.h"
#include "npu/status.h"

namespace danlu::npu {
namespace {

using Plans = std::unordered_map<std::string, KeptPlan>;

/// The plans of each thread. Threads end before or after the device does, so it is never freed.
struct AllPlans {
  std::mutex mutex;
  std::vector<Plans*> of_threads;
};
AllPlans& all_plans() {
  static auto* const all = new AllPlans;
  return *all;
}

Plans& own_plans() {
  thread_local Plans* const own = [] {
    auto* const made = new Plans;
    AllPlans& all = all_plans();
    const std::lock_guard lock(all.mutex);
    all.of_threads.push_back(made);
    return made;
  }();
  return *own;
}

void destroy_all(Plans& plans) {
  for (auto& [key, plan] : plans) {
    acl().aclDestroyAclOpExecutor(plan.executor);
    for (aclTensor* const tensor : plan.tensors) acl().aclDestroyTensor(tensor);
  }
  plans.clear();
}

/// Whether CANN has refused a plan of any thread.
std::atomic<bool>& gave_up() {
  static std::atomic<bool> refused = false;
  return refused;
}

}  // namespace

bool keeps_plans() {
  static const bool is_asked_for = [] {
    const char* const value = std::getenv("DANLU_NPU_KEEP_PLANS");
    return value && std::string(value) == "1" && acl().aclSetAclOpExecutorRepeatable &&
           acl().aclDestroyAclOpExecutor && acl().aclSetInputTensorAddr &&
           acl().aclSetOutputTensorAddr;
  }();
  return is_asked_for && !gave_up();
}

bool may_repeat(aclOpExecutor* executor) {
  return executor && acl().aclSetAclOpExecutorRepeatable(executor) == kAclOk;
}

int place_tensors(const KeptPlan& plan, const std::vector<void*>& memory, size_t results) {
  const size_t operands = plan.tensors.size() - results;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const bool is_result = i >= operands;
    const auto place = is_result ? acl().aclSetOutputTensorAddr : acl().aclSetInputTensorAddr;
    const int code = place(plan.executor, is_result ? i - operands : i, plan.tensors[i], memory[i]);
    if (code != kAclOk) return code;
  }
  return kAclOk;
}

void give_up_plans(const char* name, int code) {
  acl().aclGetRecentErrMsg();  // it would stand in the next error's text
  if (!gave_up().exchange(true)) {
    log::notice(
        "[npu] aclnn{}: CANN does not take a kept plan again (code {}): each operator is "
        "planned anew from now on",
        name, code);
  }
  synchronize(entered());
  destroy_all(own_plans());
}

const KeptPlan* kept_plan(const std::string& key) {
  const Plans& plans = own_plans();
  const auto found = plans.find(key);
  return found == plans.end() ? nullptr : &found->second;
}

void keep_plan(std::string key, KeptPlan plan) {
  Plans& plans = own_plans();
  if (plans.size() >= kMostPlans) {
    synchronize(entered());
    destroy_all(plans);
  }
  plans.emplace(std::move(key), std::move(plan));
}

void forget_plans() {
  AllPlans& all = all_plans();
  const std::lock_guard lock(all.mutex);
  for (Plans* const plans : all.of_threads) destroy_all(*plans);
}

void throw_unkeyed() {
  throw InternalError("[npu] an operator whose plans are kept was given what has no key");
}

}  // namespace danlu::npu
