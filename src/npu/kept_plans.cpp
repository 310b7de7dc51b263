#include "npu/kept_plans.h"

#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
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

}  // namespace

bool keeps_plans() {
  static const bool keeps = [] {
    const char* const value = std::getenv("DANLU_NPU_KEEP_PLANS");
    const bool is_off = value && std::string(value) == "0";
    return !is_off && acl().aclSetAclOpExecutorRepeatable && acl().aclDestroyAclOpExecutor &&
           acl().aclSetInputTensorAddr && acl().aclSetOutputTensorAddr;
  }();
  return keeps;
}

bool may_repeat(aclOpExecutor* executor) {
  return executor && acl().aclSetAclOpExecutorRepeatable(executor) == kAclOk;
}

void place_tensors(const KeptPlan& plan, const std::vector<void*>& memory, size_t results) {
  const size_t operands = plan.tensors.size() - results;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const bool is_result = i >= operands;
    const auto place = is_result ? acl().aclSetOutputTensorAddr : acl().aclSetInputTensorAddr;
    check(place(plan.executor, is_result ? i - operands : i, plan.tensors[i], memory[i]),
          is_result ? "aclSetOutputTensorAddr" : "aclSetInputTensorAddr");
  }
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
