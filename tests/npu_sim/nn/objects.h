// Descriptors and executors, and the book of those that live.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "aclnn_api.h"
#include "core/numbers.h"
#include "core/scheduler.h"

struct aclTensor {
  npu_sim::View view;
  std::vector<int64_t> storage_dims;
  int64_t storage = 0;  // elements
  aclFormat format = ACL_FORMAT_ND;
  void* data = nullptr;
};
struct aclScalar {
  double value = 0;
  int64_t integer = 0;
  aclDataType dtype = ACL_DT_UNDEFINED;
};
struct aclIntArray {
  std::vector<int64_t> values;
};
struct aclFloatArray {
  std::vector<float> values;
};
struct aclBoolArray {
  std::vector<bool> values;
};
struct aclTensorList {
  std::vector<const aclTensor*> tensors;
};
struct aclScalarList {
  std::vector<const aclScalar*> scalars;
};

namespace npu_sim {

enum class Kind { kTensor, kScalar, kArray, kTensorList, kScalarList, kExecutor };

/// A handle goes into the book, and gets a number that no other ever has.
uint64_t enter_book(const void* handle, Kind kind);
/// It leaves; false if it is not in the book (destroyed twice, or never made).
bool leave_book(const void* handle, Kind kind);
/// Its number; 0 if it does not live.
uint64_t number_in_book(const void* handle, Kind kind);
int64_t alive_in_book(Kind kind);

/// A tensor's place in an executor, whose address may be set anew.
struct Slot {
  View view;
  void* address = nullptr;
  bool reads = false, writes = false;
  std::string name;
};

/// What an operator's work sees when it runs.
class Run {
 public:
  Run(std::vector<Slot> slots, bool deterministic, uint64_t seed)
      : slots_(std::move(slots)), deterministic_(deterministic), random_(seed) {}
  /// The bytes of a slot. Throws TaskError 507035 if they lie in no live block.
  Live at(int slot) const;
  bool deterministic() const { return deterministic_; }
  /// 0 … n−1; in random order unless the switch for determinism is on.
  std::vector<int64_t> order(int64_t n);

 private:
  std::vector<Slot> slots_;
  bool deterministic_;
  std::mt19937_64 random_;
};

using Work = std::function<void(Run&)>;

}  // namespace npu_sim

struct aclOpExecutor {
  std::string op;
  uint64_t workspace = 0;
  bool repeatable = false;
  std::vector<npu_sim::Slot> slots;
  std::vector<int> inputs, outputs;  // slots in the order of the operator's arguments
  struct Used {
    const void* handle;
    npu_sim::Kind kind;
    uint64_t number;
    std::string name;
  };
  std::vector<Used> used;
  std::shared_ptr<npu_sim::Work> work;
  npu_sim::Context* context = nullptr;
};

namespace npu_sim {

/// The second call of an operator.
aclnnStatus execute(const char* op, void* workspace, uint64_t bytes, aclOpExecutor* executor,
                    aclrtStream stream);

}  // namespace npu_sim
