#include "layers/offload.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "device/host_memory.h"
#include "device/scratch_file.h"
#include "device/stream.h"

namespace danlu::layers {

struct Elsewhere {
  std::optional<device::ScratchFile> file;  ///< none: host memory
  std::atomic<int64_t> bytes_out{0}, bytes_back{0};
  std::mutex mutex;
  std::exception_ptr failed;  ///< the first failure: nothing moves any more

  void fail() {
    const std::lock_guard lock(mutex);
    if (!failed) failed = std::current_exception();
  }
  std::exception_ptr failure() {
    const std::lock_guard lock(mutex);
    return failed;
  }
};

/// The memory that some saved tensors share. Here, or elsewhere, or on its way.
struct LeavingLayer::SavedMemory {
  std::shared_ptr<Elsewhere> elsewhere;
  at::Tensor here;     ///< all its elements, contiguous
  at::Tensor in_host;  ///< the same there
  std::optional<device::ScratchFile::Place> in_file;
  device::Event come;  ///< since when `here` holds them
  at::TensorOptions options;
  int64_t elements = 0;

  ~SavedMemory() {
    if (in_file) elsewhere->file->give_back(*in_file);
  }
  int64_t bytes() const { return elements * static_cast<int64_t>(options.dtype().itemsize()); }
};

struct LeavingLayer::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::weak_ptr<SavedMemory>> memories;  ///< in the order in which they were saved
  /// While the forward is under way, when all of them are here and addresses tell them apart.
  std::map<const void*, std::weak_ptr<SavedMemory>> by_storage;
  std::set<const void*> staying;
  bool is_asked_back = false;
};

namespace {

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace

LeavingLayer::LeavingLayer(std::shared_ptr<Elsewhere> elsewhere, parallel::Background& thread,
                           const at::Device& device)
    : elsewhere_(std::move(elsewhere)),
      thread_(thread),
      device_(device),
      state_(new State, [](State* state) { delete state; }) {}

void LeavingLayer::stay(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) state_->staying.insert(storage_of(tensor));
  }
}

std::unique_ptr<SavedTensors> LeavingLayer::scope() {
  return std::make_unique<SavedTensors>([this](const at::Tensor& tensor) { return take(tensor); });
}

Restore LeavingLayer::take(const at::Tensor& tensor) {
  constexpr int64_t kSmall = 512;  // bytes: a transfer costs more than they do
  if (!tensor.defined() || !tensor.has_storage() || tensor.device() != device_) return {};
  const void* const storage = storage_of(tensor);
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const auto width = static_cast<int64_t>(tensor.element_size());
  if (bytes < kSmall || bytes % width != 0 || state_->staying.count(storage)) return {};
  const std::lock_guard lock(state_->mutex);
  std::weak_ptr<SavedMemory>& known = state_->by_storage[storage];
  std::shared_ptr<SavedMemory> memory = known.lock();
  if (memory && memory->options.dtype() != tensor.dtype()) return {};
  if (!memory) {
    const at::NoGradGuard no_grad;
    memory = std::make_shared<SavedMemory>();
    memory->elsewhere = elsewhere_;
    memory->options = tensor.options();
    memory->elements = bytes / width;
    memory->here = tensor.detach().as_strided({memory->elements}, {1}, 0);
    known = memory;
    state_->memories.push_back(memory);
  }
  return [layer = shared_from_this(), memory, sizes = tensor.sizes().vec(),
          strides = tensor.strides().vec(), offset = tensor.storage_offset()] {
    return layer->get(*memory).as_strided(sizes, strides, offset);
  };
}

at::Tensor LeavingLayer::get(SavedMemory& memory) {
  come_back();
  std::unique_lock lock(state_->mutex);
  std::exception_ptr failed;
  state_->changed.wait(lock,
                       [&] { return memory.here.defined() || (failed = elsewhere_->failure()); });
  if (!memory.here.defined()) std::rethrow_exception(failed);
  const auto stream = device::Stream::current(device_);
  stream.wait_for(memory.come);
  stream.hold(memory.here);
  return memory.here;
}

void LeavingLayer::come_back() {
  {
    const std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->is_asked_back, true)) return;
  }
  thread_.run([layer = shared_from_this()] { layer->fetch(); }, device_);
}

void LeavingLayer::leave() {
  if (elsewhere_->failure()) return;
  for (size_t i = 0; i < state_->memories.size(); ++i) {
    const std::shared_ptr<SavedMemory> memory = state_->memories[i].lock();
    if (!memory) continue;
    at::Tensor here, in_host;
    std::optional<device::ScratchFile::Place> in_file;
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->is_asked_back) return;
      here = memory->here;
    }
    try {
      if (elsewhere_->file) {
        in_file = elsewhere_->file->take(memory->bytes());
        elsewhere_->file->write(here, *in_file);
      } else {
        in_host = device::host_memory({memory->elements}, here.scalar_type(), device_);
        in_host.copy_(here, /*non_blocking=*/true);
        // Here alone: the memory that leaves is the passes' again, and at most one layer's is late.
        device::Stream::current(device_).record().wait();
      }
    } catch (...) {
      if (in_file) elsewhere_->file->give_back(*in_file);
      elsewhere_->fail();
      return;
    }
    elsewhere_->bytes_out += memory->bytes();
    const std::lock_guard lock(state_->mutex);
    memory->in_host = std::move(in_host);
    memory->in_file = in_file;
    if (!state_->is_asked_back) memory->here = at::Tensor();
  }
}

void LeavingLayer::fetch() {
  // Backward needs last what was saved first.
  for (size_t i = state_->memories.size(); i-- > 0;) {
    const std::shared_ptr<SavedMemory> memory = state_->memories[i].lock();
    if (!memory || memory->here.defined()) continue;
    try {
      if (const std::exception_ptr failed = elsewhere_->failure()) std::rethrow_exception(failed);
      at::Tensor here = at::empty({memory->elements}, memory->options);
      if (memory->in_file) {
        elsewhere_->file->read(here, *memory->in_file);
      } else {
        here.copy_(memory->in_host, /*non_blocking=*/true);
      }
      elsewhere_->bytes_back += memory->bytes();
      const std::lock_guard lock(state_->mutex);
      memory->come = device::Stream::current(device_).record();
      memory->here = std::move(here);
      memory->in_host = at::Tensor();
    } catch (...) {
      const std::lock_guard lock(state_->mutex);  // who is about to wait hears of it
      elsewhere_->fail();
    }
    state_->changed.notify_all();
  }
}

Offload::Offload(const at::Device& device, const std::filesystem::path& directory)
    : device_(device), elsewhere_(std::make_shared<Elsewhere>()), thread_([] {}) {
  if (!directory.empty()) elsewhere_->file.emplace(directory);
}

std::shared_ptr<LeavingLayer> Offload::layer() {
  return std::make_shared<LeavingLayer>(elsewhere_, thread_, device_);
}

void Offload::leave(const std::shared_ptr<LeavingLayer>& layer) {
  layer->state_->by_storage.clear();
  wait_for_last();
  leaving_ = thread_.run([layer] { layer->leave(); }, device_);
}

void Offload::wait_for_last() const {
  if (leaving_.valid()) leaving_.get();
  if (const std::exception_ptr failed = elsewhere_->failure()) std::rethrow_exception(failed);
}

int64_t Offload::bytes_out() const {
  if (leaving_.valid()) leaving_.get();
  return elsewhere_->bytes_out;
}
int64_t Offload::bytes_back() const { return elsewhere_->bytes_back; }

}  // namespace danlu::layers
