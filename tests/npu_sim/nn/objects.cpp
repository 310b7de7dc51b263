#include "nn/objects.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "core/memory.h"
#include "core/report.h"
#include "npu_sim.h"

namespace npu_sim {
namespace {

struct Book {
  std::mutex lock;
  std::map<const void*, std::pair<Kind, uint64_t>> alive;
  uint64_t next = 1;
};

Book& book() {
  static Book* the = new Book;
  return *the;
}

constexpr size_t kGraves = 4096;

/// Keeps the last dead objects, so that their addresses are not soon given to new ones.
template <typename T>
void bury(const T* object) {
  static std::deque<std::unique_ptr<const T>>* graves = new std::deque<std::unique_ptr<const T>>;
  static std::mutex lock;
  std::lock_guard hold(lock);
  graves->emplace_back(object);
  if (graves->size() > kGraves) graves->pop_front();
}

const char* kind_name(Kind kind) {
  static const char* const kNames[] = {"tensor",      "scalar",      "array",
                                       "tensor list", "scalar list", "executor"};
  return kNames[static_cast<int>(kind)];
}

template <typename T>
T* made(T object, Kind kind) {
  T* handle = new T(std::move(object));
  enter_book(handle, kind);
  return handle;
}

template <typename T>
aclnnStatus destroyed(const T* handle, Kind kind) {
  if (!handle) return 0;
  if (!leave_book(handle, kind)) {
    violation(std::string("a ") + kind_name(kind) +
              " is destroyed that does not live (twice, or by its list?)");
    return 161001;
  }
  bury(handle);
  return 0;
}

bool storage_is_right(const View& view, int64_t storage, const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address % 32 != 0) {
    violation(
        "aclCreateTensor: the address of a tensor is not aligned to 32 bytes; use the offset");
    return false;
  }
  for (const int64_t stride : view.strides) {
    if (stride < 0) {
      violation("aclCreateTensor: a stride is negative");
      return false;
    }
  }
  if (view.offset < 0 || (view.numel() > 0 && view.offset + view.extent() > storage)) {
    violation("aclCreateTensor: the view ends at element " +
              std::to_string(view.offset + view.extent()) + ", its storage at " +
              std::to_string(storage));
    return false;
  }
  return true;
}

}  // namespace

uint64_t enter_book(const void* handle, Kind kind) {
  std::lock_guard hold(book().lock);
  const uint64_t number = book().next++;
  book().alive[handle] = {kind, number};
  return number;
}

bool leave_book(const void* handle, Kind kind) {
  std::lock_guard hold(book().lock);
  const auto found = book().alive.find(handle);
  if (found == book().alive.end() || found->second.first != kind) return false;
  book().alive.erase(found);
  return true;
}

uint64_t number_in_book(const void* handle, Kind kind) {
  std::lock_guard hold(book().lock);
  const auto found = book().alive.find(handle);
  return found == book().alive.end() || found->second.first != kind ? 0 : found->second.second;
}

int64_t alive_in_book(Kind kind) {
  std::lock_guard hold(book().lock);
  return std::count_if(book().alive.begin(), book().alive.end(),
                       [&](const auto& entry) { return entry.second.first == kind; });
}

}  // namespace npu_sim

using npu_sim::Kind;

extern "C" {

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                           const int64_t* stride, int64_t offset, aclFormat format,
                           const int64_t* storageDims, uint64_t storageDimsNum, void* tensorData) {
  if ((!viewDims && viewDimsNum > 0) || (!storageDims && storageDimsNum > 0)) {
    npu_sim::fail(161001, "EZ1001: AclNN_Parameter_Error: aclCreateTensor: dims are null");
    return nullptr;
  }
  if (npu_sim::size_of(dataType) == 0 || viewDimsNum > 8) {
    npu_sim::fail(161002, "EZ1001: AclNN_Parameter_Error: aclCreateTensor: type " +
                              std::to_string(dataType) + " or more than 8 dimensions");
    return nullptr;
  }
  aclTensor tensor;
  tensor.view.dims.assign(viewDims, viewDims + viewDimsNum);
  tensor.view.strides = npu_sim::contiguous_strides(tensor.view.dims);
  if (stride) tensor.view.strides.assign(stride, stride + viewDimsNum);
  tensor.view.offset = offset;
  tensor.view.dtype = dataType;
  tensor.format = format;
  tensor.storage_dims.assign(storageDims, storageDims + storageDimsNum);
  tensor.storage = 1;
  for (const int64_t d : tensor.storage_dims) tensor.storage *= d;
  tensor.data = tensorData;
  if (!npu_sim::storage_is_right(tensor.view, tensor.storage, tensorData)) return nullptr;
  return npu_sim::made(std::move(tensor), Kind::kTensor);
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  if (!value || npu_sim::size_of(dataType) == 0) {
    npu_sim::fail(161001, "EZ1001: AclNN_Parameter_Error: aclCreateScalar: null or without a type");
    return nullptr;
  }
  if (npu_sim::planted_call_error("aclCreateScalar", -1) != 0) return nullptr;
  npu_sim::Live live{{{}, {}, 0, dataType}, static_cast<char*>(value)};
  return npu_sim::made(
      aclScalar{npu_sim::load<double>(live, 0), npu_sim::load<int64_t>(live, 0), dataType},
      Kind::kScalar);
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  if (!value && size > 0) return nullptr;
  if (npu_sim::planted_call_error("aclCreateIntArray", -1) != 0) return nullptr;
  return npu_sim::made(aclIntArray{std::vector<int64_t>(value, value + size)}, Kind::kArray);
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  if (!value && size > 0) return nullptr;
  return npu_sim::made(aclFloatArray{std::vector<float>(value, value + size)}, Kind::kArray);
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  if (!value && size > 0) return nullptr;
  return npu_sim::made(aclBoolArray{std::vector<bool>(value, value + size)}, Kind::kArray);
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  if (!value && size > 0) return nullptr;
  for (uint64_t i = 0; i < size; ++i) {
    if (value[i] && !npu_sim::number_in_book(value[i], Kind::kTensor)) {
      npu_sim::violation("aclCreateTensorList: tensor " + std::to_string(i) + " does not live");
      return nullptr;
    }
  }
  return npu_sim::made(aclTensorList{std::vector<const aclTensor*>(value, value + size)},
                       Kind::kTensorList);
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  if (!value && size > 0) return nullptr;
  return npu_sim::made(aclScalarList{std::vector<const aclScalar*>(value, value + size)},
                       Kind::kScalarList);
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  return npu_sim::destroyed(tensor, Kind::kTensor);
}
aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  return npu_sim::destroyed(scalar, Kind::kScalar);
}
aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  return npu_sim::destroyed(array, Kind::kArray);
}
aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
  return npu_sim::destroyed(array, Kind::kArray);
}
aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
  return npu_sim::destroyed(array, Kind::kArray);
}

aclnnStatus aclDestroyTensorList(const aclTensorList* list) {
  if (list && npu_sim::number_in_book(list, Kind::kTensorList)) {
    for (const aclTensor* tensor : list->tensors) aclDestroyTensor(tensor);
  }
  return npu_sim::destroyed(list, Kind::kTensorList);
}

aclnnStatus aclDestroyScalarList(const aclScalarList* list) {
  if (list && npu_sim::number_in_book(list, Kind::kScalarList)) {
    for (const aclScalar* scalar : list->scalars) aclDestroyScalar(scalar);
  }
  return npu_sim::destroyed(list, Kind::kScalarList);
}

static aclnnStatus numbers_of(const std::vector<int64_t>& from, int64_t** to, uint64_t* count) {
  *count = from.size();
  *to = new int64_t[from.size()];
  std::copy(from.begin(), from.end(), *to);
  return 0;
}

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** dims, uint64_t* count) {
  return tensor && dims && count ? numbers_of(tensor->view.dims, dims, count) : 161001;
}
aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** dims, uint64_t* count) {
  return tensor && dims && count ? numbers_of(tensor->storage_dims, dims, count) : 161001;
}
aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** strides, uint64_t* count) {
  return tensor && strides && count ? numbers_of(tensor->view.strides, strides, count) : 161001;
}

aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  if (!tensor || !offset) return 161001;
  *offset = tensor->view.offset;
  return 0;
}

aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  if (!tensor || !format) return 161001;
  *format = tensor->format;
  return 0;
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  if (!tensor || !dataType) return 161001;
  *dataType = tensor->view.dtype;
  return 0;
}

aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr) {
  if (!tensor) return 161001;
  tensor->data = addr;
  return 0;
}

aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** addr) {
  if (!tensor || !addr) return 161001;
  *addr = tensor->data;
  return 0;
}

int64_t NpuSimAlive(const char* kind) {
  const std::string name = kind;
  if (name == "tensors") return npu_sim::alive_in_book(Kind::kTensor);
  if (name == "scalars") return npu_sim::alive_in_book(Kind::kScalar);
  if (name == "arrays") return npu_sim::alive_in_book(Kind::kArray);
  if (name == "lists")
    return npu_sim::alive_in_book(Kind::kTensorList) + npu_sim::alive_in_book(Kind::kScalarList);
  if (name == "executors") return npu_sim::alive_in_book(Kind::kExecutor);
  if (name == "streams") return npu_sim::live_streams();
  if (name == "events") return npu_sim::live_events();
  if (name == "blocks") return npu_sim::live_blocks();
  return -1;
}
}

namespace npu_sim {
namespace {
const bool kCountsObjects = (set_alive_counter(NpuSimAlive), true);
}  // namespace
}  // namespace npu_sim
