#include "parallel/comm/hccl.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/npu.h"

namespace danlu::parallel {
namespace {

/// What the device does in its stream's order is done for whoever goes on in that order.
class GivenToStream : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  void abort() override {}
};

class HcclBackend : public Backend {
 public:
  HcclBackend(int rank, int size, std::unique_ptr<device::NpuCommunicator> communicator,
              std::shared_ptr<GroupCalls> calls)
      : Backend(rank, size), communicator_(std::move(communicator)), calls_(std::move(calls)) {
    calls_->watch_card([communicator = communicator_.get()] {
      device::NpuCommunicator::Progress progress = communicator->progress();
      return CardProgress{progress.begun, progress.over, std::move(progress.failure)};
    });
  }
  ~HcclBackend() override { calls_->watch_card({}); }
  const std::string getBackendName() const override { return "hccl"; }

  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& receives,
                                          std::vector<at::Tensor>& sends,
                                          const c10d::AllToAllOptions&) override {
    std::vector<device::NpuCommunicator::Transfer> transfers;
    const auto add = [&](const std::vector<at::Tensor>& tensors, bool are_sent) {
      for (size_t peer = 0; peer < tensors.size(); ++peer) {
        if (tensors[peer].numel() == 0) continue;
        transfers.push_back({tensors[peer].data_ptr(), tensors[peer].nbytes(),
                             static_cast<uint32_t>(peer), are_sent});
      }
    };
    add(sends, true);
    add(receives, false);
    if (!transfers.empty()) {
      communicator_->exchange(transfers);
      calls_->note_given();
    }
    return c10::make_intrusive<GivenToStream>();
  }

 private:
  std::unique_ptr<device::NpuCommunicator> communicator_;
  std::shared_ptr<GroupCalls> calls_;
};

}  // namespace

c10::intrusive_ptr<Backend> make_hccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                      int size, int64_t device, std::shared_ptr<GroupCalls> calls) {
  const std::string key = "root";
  if (rank == 0) store->set(key, device::NpuCommunicator::new_root());
  const std::vector<uint8_t> root = store->get(key);
  if (root.size() != device::NpuCommunicator::kRootBytes)
    throw InternalError("[ranks] rank 0 of a group gave no root of HCCL");
  return c10::make_intrusive<HcclBackend>(
      rank, size, std::make_unique<device::NpuCommunicator>(root, size, rank, device),
      std::move(calls));
}

}  // namespace danlu::parallel
