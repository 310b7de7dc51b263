// npu/operator.h: an operator of CANN as a pair of functions that are found by name, and its call.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "npu/acl.h"

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
  operator const aclTensor*() const { return tensor_; }  // NOLINT: see above

 private:
  const aclTensor* tensor_;
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

/// The two halves of an operator "Name": aclnnNameGetWorkspaceSize, which takes these arguments,
/// and aclnnName. A constant of static storage.
template <typename... Arguments>
class Operator {
 public:
  using Plan = int32_t (*)(Arguments..., uint64_t* bytes, aclOpExecutor** executor);
  using Run = int32_t (*)(void* workspace, uint64_t bytes, aclOpExecutor* executor,
                          AclStream stream);
  explicit constexpr Operator(const char* name) : name_(name) {}

  const char* name() const { return name_; }
  bool is_there() const;
  /// Gives the operator to the current stream of the device that the last View has entered. Errors:
  /// DeviceError where this CANN has no such operator; what CANN says of its arguments.
  void operator()(std::type_identity_t<Arguments>... arguments) const;
  /// The same; false where the operator does not take such arguments: their types, say.
  bool runs(std::type_identity_t<Arguments>... arguments) const;

 private:
  const char* name_;
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

template <typename... Arguments>
void Operator<Arguments...>::operator()(std::type_identity_t<Arguments>... arguments) const {
  if (!is_there()) throw_absent(name_);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  const int32_t code = plan_.load()(arguments..., &bytes, &executor);
  run_planned(name_, code, run_.load(), bytes, executor);
}

template <typename... Arguments>
bool Operator<Arguments...>::runs(std::type_identity_t<Arguments>... arguments) const {
  if (!is_there()) throw_absent(name_);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  const int32_t code = plan_.load()(arguments..., &bytes, &executor);
  if (is_refusal(code)) return false;
  run_planned(name_, code, run_.load(), bytes, executor);
  return true;
}

}  // namespace danlu::npu
