#include "device/cuda_failures.h"

#include <algorithm>
#include <initializer_list>

namespace danlu::device {
namespace {

bool has_one_of(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != text.npos; });
}

}  // namespace

std::optional<Error> cuda_failure(const std::string& first_line) {
  if (has_one_of(first_line, {"NCCL error", "NCCL Error"})) {
    return CommError(tr("[nccl] {}", first_line),
                     tr("the other ranks may say why; NCCL_DEBUG=INFO tells what NCCL was doing"));
  }
  if (has_one_of(first_line, {"CUDA out of memory", "CUDA error: out of memory",
                              "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"})) {
    // The rest is advice about variables, and a link.
    const std::string what = first_line.substr(0, first_line.find(" If reserved but"));
    return MemoryError(tr("out of memory: {}", what));
  }
  if (has_one_of(first_line, {"CUDA error", "CUDA driver", "CUBLAS_STATUS_", "CUDNN_STATUS_",
                              "cuDNN error", "CUSPARSE_STATUS_", "CUSOLVER_STATUS_"})) {
    return DeviceError(
        tr("[cuda] {}", first_line),
        tr("CUDA_LAUNCH_BLOCKING=1 lets the error name the operator; dmesg has what the driver met "
           "(Xid); danlu doctor --only cuda looks at the card"));
  }
  return std::nullopt;
}

}  // namespace danlu::device
