// device/cuda_failures.h: what CUDA's libraries say of their failures, as errors of their kind.
#pragma once
#include <optional>
#include <string>

#include "base/error.h"

namespace danlu::device {

/// MemoryError of a full card, CommError of NCCL, DeviceError of other failures of CUDA, cuBLAS and
/// cuDNN; nothing of another text. first_line: as libtorch's exceptions begin.
std::optional<Error> cuda_failure(const std::string& first_line);

}  // namespace danlu::device
