// device/npu.h: Ascend NPUs, by a library of their own that opens CANN when one is asked for.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace danlu::device {

/// Opens this library instead of the one beside the engine: for tests, before anything else here.
void use_npu_plugin(const std::string& path);

/// Number of NPUs that this process sees; 0 where neither CANN nor its simulator is there, or has
/// none. Opens CANN where it is there.
int64_t npu_count_or_none();
/// The same where an NPU was asked for. Errors: DeviceError naming what is missing.
int64_t npu_count();
/// Starts a device; its table of kernels is there from then on. Errors: DeviceError.
void open_npu(int64_t index);
bool npu_is_open();
/// The one that was opened last. REQUIRES: npu_is_open().
int64_t npu_index();

/// "Ascend910B3"; of the simulator of tests "NPU SIMULATOR Ascend910B3". REQUIRES: npu_is_open().
std::string npu_chip();

/// Products of f16 and bf16 that the chip can do in a second, by its platform file in CANN 8.1.RC1
/// (cube cores x 4096 x 2 x clock); 0 for other types and chips, and for the simulator.
double npu_peak_flops(c10::ScalarType type);

/// How often this process has waited for an NPU so far. REQUIRES: as above.
int64_t npu_waits();

/// Members of a group of processes, one NPU each, by HCCL. Errors: CommError, DeviceError.
class NpuCommunicator {
 public:
  static constexpr size_t kRootBytes = 4108;
  /// One member makes it, and all are given it: new bytes for each group.
  static std::vector<uint8_t> new_root();
  /// Waits for all members. REQUIRES: kRootBytes.
  NpuCommunicator(const std::vector<uint8_t>& root, int64_t size, int64_t rank, int64_t device);
  ~NpuCommunicator();
  NpuCommunicator(const NpuCommunicator&) = delete;
  NpuCommunicator& operator=(const NpuCommunicator&) = delete;

  /// Contiguous memory of the device to or from a peer, each with its other side there.
  struct Transfer {
    void* memory;
    uint64_t bytes;
    uint32_t peer;
    bool sends;
  };
  /// In the order of the calling thread's current stream; the host does not wait.
  void exchange(const std::vector<Transfer>& transfers);

  struct Progress {
    int64_t begun = 0, over = 0;  ///< of the exchanges: how many the NPU has come to, and done
    std::string failure;          ///< what HCCL says of the links, with the card; empty: nothing
  };
  /// May be called from any thread.
  Progress progress() const;

 private:
  void* own_;
};

/// Gives the NPUs back at the end of a program, if any was opened: nothing on them may be used any
/// more.
void close_npus();

}  // namespace danlu::device
