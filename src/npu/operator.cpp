#include "npu/operator.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "npu/context.h"
#include "npu/library.h"
#include "npu/memory.h"
#include "npu/status.h"
#include "npu/streams.h"

namespace danlu::npu {
namespace {

/// What CANN made. Errors: what CANN says where it made nothing.
template <typename T>
T* made(T* object, const char* how) {
  if (!object) throw_as_kind(error_of(-1, how));
  return object;
}

/// Where a tensor begins in its memory, in elements of `type`.
int64_t offset_in(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.storage_offset() * static_cast<int64_t>(tensor.element_size()) /
         static_cast<int64_t>(c10::elementSize(type));
}

/// An operator that meets the late error of one before it says that the runtime failed: a wait
/// says how.
int cause_of(int code, AclStream stream) {
  constexpr int kRuntimeFailed = 361001;
  if (code != kRuntimeFailed) return code;
  const int late = acl().aclrtSynchronizeStream(stream);
  return late == kAclOk ? code : late;
}

}  // namespace

int acl_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return kAclFloat;
    case at::kHalf:
      return kAclFloat16;
    case at::kBFloat16:
      return kAclBf16;
    case at::kChar:
      return kAclInt8;
    case at::kByte:
      return kAclUint8;
    case at::kShort:
      return kAclInt16;
    case at::kInt:
      return kAclInt32;
    case at::kLong:
      return kAclInt64;
    case at::kDouble:
      return kAclDouble;
    case at::kBool:
      return kAclBool;
    default:
      throw DeviceError(tr("[npu] NPUs have no tensors of {}", c10::toString(type)));
  }
}

View::View(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  describe(tensor, tensor.scalar_type(), tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

View::View(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef sizes,
           at::IntArrayRef strides, int64_t offset) {
  describe(tensor, type, sizes, strides, offset_in(tensor, type) + offset);
}

void View::describe(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef sizes,
                    at::IntArrayRef strides, int64_t offset) {
  enter(tensor.device().index());
  const auto& storage = tensor.storage();
  type_ = acl_type(type);
  sizes_.assign(sizes.begin(), sizes.end());
  strides_.assign(strides.begin(), strides.end());
  offset_ = offset;
  elements_ = static_cast<int64_t>(storage.nbytes()) / static_cast<int64_t>(c10::elementSize(type));
  memory_ = storage.data_ptr().get();
  if (elements_ > 0 && !memory_)
    throw InternalError("[npu] an operator was given a tensor without memory");
  is_there_ = true;
}

View::operator const aclTensor*() const {
  if (is_there_ && !tensor_) {
    tensor_ = made(acl().aclCreateTensor(sizes_.data(), sizes_.size(), type_, strides_.data(),
                                         offset_, kAclFormatNd, &elements_, 1, memory_),
                   "aclCreateTensor");
  }
  return tensor_;
}

View::~View() {
  if (tensor_) acl().aclDestroyTensor(tensor_);
}

const aclTensor* View::release() const { return std::exchange(tensor_, nullptr); }

void View::add_to_key(std::string& key) const {
  const auto add = [&](const auto& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  key += is_there_ ? '+' : '-';
  if (!is_there_) return;
  add(type_);
  add(sizes_.size());
  for (const int64_t size : sizes_) add(size);
  for (const int64_t stride : strides_) add(stride);
  add(offset_);
  add(elements_);
}

ViewList::ViewList(const at::Tensor& tensor)
    : ViewList(tensor, tensor.scalar_type(), tensor.sizes(), tensor.strides()) {}
ViewList::ViewList(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef sizes,
                   at::IntArrayRef strides, int64_t offset) {
  const View view(tensor, type, sizes, strides, offset);
  const aclTensor* const one = view;
  list_ = acl().aclCreateTensorList(&one, 1);
  if (!list_) throw_as_kind(error_of(-1, "aclCreateTensorList"));
  view.release();
}
ViewList::~ViewList() { acl().aclDestroyTensorList(list_); }

Number::Number(double value) {
  auto rounded = static_cast<float>(value);
  scalar_ = made(acl().aclCreateScalar(&rounded, kAclFloat), "aclCreateScalar");
}
Number::Number(int64_t value)
    : scalar_(made(acl().aclCreateScalar(&value, kAclInt64), "aclCreateScalar")) {}
Number::~Number() { acl().aclDestroyScalar(scalar_); }

Numbers::Numbers(const std::vector<int64_t>& values)
    : array_(acl().aclCreateIntArray(values.data(), values.size())) {
  if (!values.empty()) made(array_, "aclCreateIntArray");  // of none it may be none
}
Numbers::~Numbers() {
  if (array_) acl().aclDestroyIntArray(array_);
}

Flags::Flags(std::initializer_list<bool> values)
    : array_(made(acl().aclCreateBoolArray(values.begin(), values.size()), "aclCreateBoolArray")) {}
Flags::~Flags() { acl().aclDestroyBoolArray(array_); }

void* found_symbol(const char* name, bool plans) {
  return operator_symbol(("aclnn" + std::string(name) + (plans ? "GetWorkspaceSize" : "")).c_str());
}

void throw_absent(const char* name) {
  throw DeviceError(tr("[npu] this CANN has no operator {}", name),
                    tr("a newer CANN may have it; --device cpu needs none"));
}

bool is_refusal(int32_t code) {
  constexpr int32_t kParametersAreInvalid = 161002;
  if (code != kParametersAreInvalid) return false;
  acl().aclGetRecentErrMsg();  // it would stand in the next error's text
  return true;
}

void run_planned(const char* name, int32_t code, RunOperator run, uint64_t bytes,
                 aclOpExecutor* executor) {
  const int device = entered();
  const c10::StreamId id = current_stream(device);
  if (code != kAclOk)
    throw_as_kind(error_of(cause_of(code, stream_of(device, id)), std::string("aclnn") + name));
  const AclStream stream = stream_of(device, id);
  note_launch(name);
  void* const workspace = bytes > 0 ? take(device, id, bytes) : nullptr;
  const int32_t result = run(workspace, bytes, executor, stream);
  // Later work of this stream alone may take it again.
  if (workspace) give_back(workspace);
  if (result != kAclOk)
    throw_as_kind(error_of(cause_of(result, stream), std::string("aclnn") + name));
  if (launches_block()) {
    const int32_t late = acl().aclrtSynchronizeStream(stream);
    if (late != kAclOk) throw_as_kind(error_of(late, std::string("aclnn") + name));
  }
}

}  // namespace danlu::npu
