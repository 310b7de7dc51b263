// A simulated card for tests: arrays on it, calls of operators, and programs that tests start as
// other processes.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "aclnn_ops.h"
#include "npu_sim.h"

namespace npu_sim_test {

using Dims = std::vector<int64_t>;
using Numbers = std::vector<double>;

/// Memory of the card with a type and a shape.
struct Array {
  void* data = nullptr;
  Dims dims;
  aclDataType type = ACL_FLOAT;
  int64_t numel() const;
};

/// How a float is stored; written here anew, so that it checks the simulator's.
uint16_t to_bf16(double value);
double rounded(double value, aclDataType type);  // what reading a stored value gives

class Card : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Array empty(const Dims& dims, aclDataType type = ACL_FLOAT);
  Array put(const Dims& dims, const Numbers& values, aclDataType type = ACL_FLOAT);
  /// Waits for the stream, then reads.
  Numbers get(const Array& array);
  /// Copies now, without waiting for anybody.
  Numbers read_now(const Array& array);
  /// Random values in (-1, 1), rounded to the type that they will be stored in.
  Numbers noise(int64_t count, aclDataType type = ACL_FLOAT);

  /// Descriptors live until the end of the test.
  aclTensor* of(const Array& array);
  aclTensor* view(const Array& array, const Dims& dims, const Dims& strides, int64_t offset = 0);
  aclScalar* scalar(double value);
  aclIntArray* ints(const Dims& values);
  aclTensorList* list(const std::vector<Array>& arrays);

  template <typename One, typename... Args>
  aclnnStatus launch(One one, aclnnStatus (*two)(void*, uint64_t, aclOpExecutor*, aclrtStream),
                     aclrtStream on, Args... args) {
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    const aclnnStatus status = one(args..., &bytes, &executor);
    if (status != 0) return status;
    void* workspace = nullptr;
    if (bytes > 0) {
      const aclError error = aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST);
      if (error != 0) return error;
    }
    return two(workspace, bytes, executor, on);
  }

  aclrtStream stream_ = nullptr;

 private:
  std::vector<aclTensor*> tensors_;
  std::vector<aclTensorList*> lists_;
  std::vector<aclScalar*> scalars_;
  std::vector<aclIntArray*> arrays_;
  std::mt19937 random_{7};
};

/// The two calls of an operator on the test's stream.
#define RUN(op, ...) launch(op##GetWorkspaceSize, op, stream_, __VA_ARGS__)

void expect_near(const Numbers& got, const Numbers& wanted, double tolerance);

/// A function that runs in a process of its own; returns its exit status.
using Program = std::function<int()>;
bool add_program(const std::string& name, Program program);
int run_program_named(const std::string& name);
/// A running program; `wait` gives its exit status, or minus the signal that ended it.
struct Child {
  int process = -1;
  int wait() const;
};
Child start_program(const std::string& name, const std::vector<std::string>& environment);

}  // namespace npu_sim_test
