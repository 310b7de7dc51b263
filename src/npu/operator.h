// npu/operator.h: an operator of CANN as a pair of functions that are found by name, and its call.
#pragma once
#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "npu/acl.h"
#include "npu/context.h"
#include "npu/kept_plans.h"

namespace danlu::npu {

/// aclDataType of a tensor's type. Errors: DeviceError for one that NPUs have none of.
int acl_type(at::ScalarType type);

/// A tensor of a device as operators take it, while it lives; it need not live longer than the call
/// (CANN keeps what it needs). Its device is entered. Slices are given by their offset: the address
/// is that of the memory's beginning, which is aligned.
class View {
 public:
  View(const at::Tensor& tensor);  // NOLINT(google-explicit-constructor): stands for the tensor
  /// Another view of the tensor's memory, from its first element on: sizes, strides and offset in
  /// elements of `type`.
  View(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef sizes,
       at::IntArrayRef strides, int64_t offset = 0);
  ~View();
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  operator const aclTensor*() const;  // NOLINT: see above
  /// All that CANN is told of it but where its memory is, appended.
  void add_to_key(std::string& key) const;
  void* memory() const { return memory_; }
  /// What CANN made of it, which is the caller's from now on; null: nothing was.
  const aclTensor* release() const;

 private:
  void describe(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef sizes,
                at::IntArrayRef strides, int64_t offset);

  int type_ = kAclUndefined;
  at::DimVector sizes_, strides_;
  int64_t offset_ = 0, elements_ = 0;
  void* memory_ = nullptr;
  bool is_there_ = false;
  mutable const aclTensor* tensor_ = nullptr;
};

/// A list of one tensor, which is the list's: who destroys a list of CANN's destroys what is in it.
class ViewList {
 public:
  explicit ViewList(const at::Tensor& tensor);
  ViewList(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef sizes,
           at::IntArrayRef strides, int64_t offset = 0);
  ~ViewList();
  ViewList(const ViewList&) = delete;
  ViewList& operator=(const ViewList&) = delete;
  operator aclTensorList*() const { return list_; }  // NOLINT: as View

 private:
  aclTensorList* list_;
};

class Number {
 public:
  explicit Number(double value);
  explicit Number(int64_t value);
  ~Number();
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  operator const aclScalar*() const { return scalar_; }  // NOLINT: as View

 private:
  const aclScalar* scalar_;
};

class Numbers {
 public:
  explicit Numbers(const std::vector<int64_t>& values);
  Numbers(std::initializer_list<int64_t> values) : Numbers(std::vector<int64_t>(values)) {}
  ~Numbers();
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  operator const aclIntArray*() const { return array_; }  // NOLINT: as View

 private:
  const aclIntArray* array_;
};

class Flags {
 public:
  Flags(std::initializer_list<bool> values);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;
  operator const aclBoolArray*() const { return array_; }  // NOLINT: as View

 private:
  const aclBoolArray* array_;
};

/// The two halves of an operator "Name": aclnnNameGetWorkspaceSize, which takes these arguments,
/// and aclnnName. A constant of static storage.
template <typename... Arguments>
class Operator {
 public:
  using Plan = int32_t (*)(Arguments..., uint64_t* bytes, aclOpExecutor** executor);
  using Run = int32_t (*)(void* workspace, uint64_t bytes, aclOpExecutor* executor,
                          AclStream stream);
  explicit constexpr Operator(const char* name, Repeats repeats = {})
      : name_(name), repeats_(repeats) {}

  const char* name() const { return name_; }
  bool is_there() const;
  /// Gives the operator to the current stream of the device that the last View has entered. Errors:
  /// DeviceError where this CANN has no such operator; what CANN says of its arguments.
  template <typename... Given>
  void operator()(Given&&... given) const;
  /// The same; false where the operator does not take such arguments: their types, say.
  template <typename... Given>
  bool runs(Given&&... given) const;

 private:
  const char* name_;
  Repeats repeats_;
  mutable std::atomic<Plan> plan_ = nullptr;
  mutable std::atomic<Run> run_ = nullptr;
};

// What calls of all operators share.
void* found_symbol(const char* name, bool plans);
[[noreturn]] void throw_absent(const char* name);
using RunOperator = int32_t (*)(void*, uint64_t, aclOpExecutor*, AclStream);
/// Whether the first half of a call says that the operator takes no such arguments.
bool is_refusal(int32_t code);
/// The second half of a call, with memory to work in.
void run_planned(const char* name, int32_t code, RunOperator run, uint64_t bytes,
                 aclOpExecutor* executor);

template <typename... Arguments>
bool Operator<Arguments...>::is_there() const {
  if (run_.load()) return true;
  plan_ = reinterpret_cast<Plan>(found_symbol(name_, /*plans=*/true));
  if (!plan_.load()) return false;
  run_ = reinterpret_cast<Run>(found_symbol(name_, /*plans=*/false));
  return run_.load() != nullptr;
}

// An argument's part of what a call is known by, and what of it must live as long as a plan.
inline void add_argument(std::string& key, const View& view) { view.add_to_key(key); }
inline void add_argument(std::string& key, std::nullptr_t) { key += '-'; }
template <typename Other>
void add_argument(std::string& key, const Other& other) {
  if constexpr (std::is_arithmetic_v<Other>) {
    key.append(reinterpret_cast<const char*>(&other), sizeof other);
  } else {
    throw_unkeyed();
  }
}
inline void keep_argument(KeptPlan& plan, const View& view) {
  plan.tensors.push_back(const_cast<aclTensor*>(view.release()));
}
template <typename Other>
void keep_argument(KeptPlan&, const Other&) {}
inline void add_memory(std::vector<void*>& memory, const View& view) {
  memory.push_back(view.memory());
}
template <typename Other>
void add_memory(std::vector<void*>&, const Other&) {}

template <typename... Arguments>
template <typename... Given>
void Operator<Arguments...>::operator()(Given&&... given) const {
  if (!is_there()) throw_absent(name_);
  const bool repeats = repeats_.results > 0 && keeps_plans();
  std::string key;
  if (repeats) {
    key = name_ + std::to_string(entered());
    (add_argument(key, given), ...);
    if (const KeptPlan* const known = kept_plan(key)) {
      std::vector<void*> memory;
      (add_memory(memory, given), ...);
      const int code = place_tensors(*known, memory, repeats_.results);
      if (code == kAclOk)
        return run_planned(name_, kAclOk, run_.load(), known->bytes, known->executor);
      give_up_plans(name_, code);
    }
  }
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  const int32_t code = plan_.load()(static_cast<Arguments>(given)..., &bytes, &executor);
  if (!repeats || code != kAclOk || !keeps_plans() || !may_repeat(executor))
    return run_planned(name_, code, run_.load(), bytes, executor);
  KeptPlan plan{executor, bytes, {}};
  (keep_argument(plan, given), ...);
  keep_plan(std::move(key), std::move(plan));
  run_planned(name_, code, run_.load(), bytes, executor);
}

template <typename... Arguments>
template <typename... Given>
bool Operator<Arguments...>::runs(Given&&... given) const {
  if (!is_there()) throw_absent(name_);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  const int32_t code = plan_.load()(static_cast<Arguments>(given)..., &bytes, &executor);
  if (is_refusal(code)) return false;
  run_planned(name_, code, run_.load(), bytes, executor);
  return true;
}

}  // namespace danlu::npu
