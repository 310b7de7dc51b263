// parallel/comm/nccl.h: what carries tensors between processes that lie on cards. CMake takes
// nccl.cpp or nccl_absent.cpp, whichever libtorch allows.
#pragma once
#include <torch/version.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

namespace danlu::parallel {

#if TORCH_VERSION_MAJOR >= 2
using Backend = c10d::Backend;
#else
using Backend = c10d::ProcessGroup;
#endif

/// Member `rank` of `size`; those of a group share a store that others do not. Errors: DeviceError
/// where the program has no NCCL.
c10::intrusive_ptr<Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                      int size, std::chrono::milliseconds timeout);

}  // namespace danlu::parallel
