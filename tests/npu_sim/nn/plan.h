// The first call of an operator: checks of the arguments, then the work that its executor does.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "nn/objects.h"

namespace npu_sim {

/// An argument of an operator. Absent ones (nullptr) are false.
struct Tensor {
  View view;
  int slot = -1;
  explicit operator bool() const { return slot >= 0; }
  int64_t dim(int64_t i) const {
    return view.dims[static_cast<size_t>(i < 0 ? i + view.rank() : i)];
  }
  int64_t rank() const { return view.rank(); }
  aclDataType dtype() const { return view.dtype; }
  const std::vector<int64_t>& dims() const { return view.dims; }
};

/// Thrown by checks: the status of the first call.
struct Refused {
  aclnnStatus code;
  std::string text;
};

class Plan {
 public:
  explicit Plan(const char* op) : executor_(new aclOpExecutor) { executor_->op = op; }

  Tensor in(const aclTensor* tensor, const char* name);  // 161001 if null
  Tensor optional(const aclTensor* tensor, const char* name);
  Tensor out(const aclTensor* tensor, const char* name);
  Tensor optional_out(const aclTensor* tensor, const char* name);
  Tensor inout(const aclTensor* tensor, const char* name);
  std::vector<Tensor> in_list(const aclTensorList* list, const char* name);
  std::vector<Tensor> out_list(const aclTensorList* list, const char* name);
  /// The tensors are read and written.
  std::vector<Tensor> inout_list(const aclTensorList* list, const char* name);
  const aclScalar& scalar(const aclScalar* scalar, const char* name);
  std::vector<int64_t> ints(const aclIntArray* array, const char* name);
  std::vector<int64_t> optional_ints(const aclIntArray* array, const char* name);
  std::vector<bool> bools(const aclBoolArray* array, const char* name);

  /// 161002 with the text unless it holds.
  void require(bool holds, const std::string& text) const;
  /// The type is one of them, and the chip has it.
  void dtype(const Tensor& t, std::initializer_list<aclDataType> allowed) const;
  void same_dtype(const Tensor& a, const Tensor& b) const;
  void shape(const Tensor& t, const std::vector<int64_t>& dims) const;
  /// The operator is not built for this chip: 561003.
  void only_910b() const;
  /// `dim` counted from the front.
  int64_t axis(const Tensor& t, int64_t dim) const;

  void run(Work work) { work_ = std::move(work); }
  /// Bytes beyond the usual; the operator needs at least that much scratch.
  void scratch(uint64_t bytes) { scratch_ += bytes; }

  aclOpExecutor* take() { return executor_.release(); }
  aclOpExecutor& executor() { return *executor_; }
  Work& work() { return work_; }
  uint64_t workspace() const;

 private:
  Tensor add(const aclTensor* tensor, const char* name, bool reads, bool writes, bool may_be_null);

  std::unique_ptr<aclOpExecutor> executor_;
  Work work_;
  uint64_t scratch_ = 0;
};

/// Runs `body` for the first call of `op` and answers as the vendor's library does.
aclnnStatus plan(const char* op, uint64_t* workspaceSize, aclOpExecutor** executor,
                 const std::function<void(Plan&)>& body);

std::string shown(const std::vector<int64_t>& dims);

/// The two functions of an operator; the body of the first follows.
#define NPU_SIM_DEFINE(op, ...)                                                               \
  extern "C" aclnnStatus op(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, \
                            aclrtStream stream) {                                             \
    return npu_sim::execute(#op, workspace, workspaceSize, executor, stream);                 \
  }                                                                                           \
  extern "C" aclnnStatus op##GetWorkspaceSize(__VA_ARGS__, uint64_t* workspaceSize,           \
                                              aclOpExecutor** executor)
#define NPU_SIM_PLAN(op) return npu_sim::plan(#op, workspaceSize, executor, [&](npu_sim::Plan & p)

}  // namespace npu_sim
