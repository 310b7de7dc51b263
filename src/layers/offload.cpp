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
struct LeavingLayer::Piece {
  std::shared_ptr<Elsewhere> elsewhere;
  at::Tensor here;     ///< all its elements, contiguous
  at::Tensor in_host;  ///< the same there
  std::optional<device::ScratchFile::Place> in_file;
  device::Event come;  ///< since when `here` holds them
  at::TensorOptions options;
  int64_t elements = 0;

  ~Piece() {
    if (in_file) elsewhere->file->give_back(*in_file);
  }
  int64_t bytes() const { return elements * static_cast<int64_t>(options.dtype().itemsize()); }
};

struct LeavingLayer::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::weak_ptr<Piece>> pieces;  ///< in the order in which they were saved
  /// While the forward is under way, when every piece is here and addresses tell them apart.
  std::map<const void*, std::weak_ptr<Piece>> by_storage;
  std::set<const void*> staying;
  bool is_asked_back = false;
};

namespace offload_detail {

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace offload_detail

LeavingLayer::LeavingLayer(std::shared_ptr<Elsewhere> elsewhere, parallel::Background& thread,
                           const at::Device& device)
    : elsewhere_(std::move(elsewhere)),
      thread_(thread),
      device_(device),
      state_(new State, [](State* state) { delete state; }) {}

void LeavingLayer::stay(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) state_->staying.insert(offload_detail::storage_of(tensor));
  }
}

std::unique_ptr<SavedTensors> LeavingLayer::scope() {
  return std::make_unique<SavedTensors>([this](const at::Tensor& tensor) { return take(tensor); });
}

Restore LeavingLayer::take(const at::Tensor& tensor) {
  constexpr int64_t kSmall = 512;  // bytes: a transfer costs more than they do
  if (!tensor.defined() || !tensor.has_storage() || tensor.device() != device_) return {};
  const void* const storage = offload_detail::storage_of(tensor);
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const auto width = static_cast<int64_t>(tensor.element_size());
  if (bytes < kSmall || bytes % width != 0 || state_->staying.count(storage)) return {};
  const std::lock_guard lock(state_->mutex);
  std::weak_ptr<Piece>& known = state_->by_storage[storage];
  std::shared_ptr<Piece> piece = known.lock();
  if (piece && piece->options.dtype() != tensor.dtype()) return {};
  if (!piece) {
    const at::NoGradGuard no_grad;
    piece = std::make_shared<Piece>();
    piece->elsewhere = elsewhere_;
    piece->options = tensor.options();
    piece->elements = bytes / width;
    piece->here = tensor.detach().as_strided({piece->elements}, {1}, 0);
    known = piece;
    state_->pieces.push_back(piece);
  }
  return [layer = shared_from_this(), piece, sizes = tensor.sizes().vec(),
          strides = tensor.strides().vec(), offset = tensor.storage_offset()] {
    return layer->get(*piece).as_strided(sizes, strides, offset);
  };
}

at::Tensor LeavingLayer::get(Piece& piece) {
  come_back();
  std::unique_lock lock(state_->mutex);
  std::exception_ptr failed;
  state_->changed.wait(lock,
                       [&] { return piece.here.defined() || (failed = elsewhere_->failure()); });
  if (!piece.here.defined()) std::rethrow_exception(failed);
  const auto stream = device::Stream::current(device_);
  stream.wait_for(piece.come);
  stream.hold(piece.here);
  return piece.here;
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
  for (size_t i = 0; i < state_->pieces.size(); ++i) {
    const std::shared_ptr<Piece> piece = state_->pieces[i].lock();
    if (!piece) continue;
    at::Tensor here, in_host;
    std::optional<device::ScratchFile::Place> in_file;
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->is_asked_back) return;
      here = piece->here;
    }
    try {
      if (elsewhere_->file) {
        in_file = elsewhere_->file->take(piece->bytes());
        elsewhere_->file->write(here, *in_file);
      } else {
        in_host = at::empty({piece->elements}, piece->options.device(at::kCPU));
        in_host.copy_(here);
      }
    } catch (...) {
      if (in_file) elsewhere_->file->give_back(*in_file);
      elsewhere_->fail();
      return;
    }
    elsewhere_->bytes_out += piece->bytes();
    const std::lock_guard lock(state_->mutex);
    piece->in_host = std::move(in_host);
    piece->in_file = in_file;
    if (!state_->is_asked_back) piece->here = at::Tensor();
  }
}

void LeavingLayer::fetch() {
  // Backward needs last what was saved first.
  for (size_t i = state_->pieces.size(); i-- > 0;) {
    const std::shared_ptr<Piece> piece = state_->pieces[i].lock();
    if (!piece || piece->here.defined()) continue;
    try {
      if (const std::exception_ptr failed = elsewhere_->failure()) std::rethrow_exception(failed);
      at::Tensor here = at::empty({piece->elements}, piece->options);
      if (piece->in_file) {
        elsewhere_->file->read(here, *piece->in_file);
      } else {
        here.copy_(piece->in_host);
      }
      elsewhere_->bytes_back += piece->bytes();
      const std::lock_guard lock(state_->mutex);
      piece->come = device::Stream::current(device_).record();
      piece->here = std::move(here);
      piece->in_host = at::Tensor();
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
  if (leaving_.valid()) leaving_.get();
  if (const std::exception_ptr failed = elsewhere_->failure()) std::rethrow_exception(failed);
  leaving_ = thread_.run([layer] { layer->leave(); }, device_);
}

int64_t Offload::bytes_out() const {
  if (leaving_.valid()) leaving_.get();
  return elsewhere_->bytes_out;
}
int64_t Offload::bytes_back() const { return elsewhere_->bytes_back; }

}  // namespace danlu::layers
