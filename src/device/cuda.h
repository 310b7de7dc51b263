// device/cuda.h: what only a program with CUDA's libraries can ask of a GPU.
#pragma once
#include "device/memory.h"

namespace danlu::device {

/// What libtorch's allocator counts on a GPU. Empty in a program that was built without CUDA.
MemoryCounter cuda_memory_counter();

}  // namespace danlu::device
