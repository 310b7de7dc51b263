// parallel/comm/hccl.h: what carries tensors between processes that lie on Ascend NPUs.
#pragma once
#include <memory>

#include "parallel/comm/calls.h"
#include "parallel/comm/nccl.h"

namespace danlu::parallel {

/// Like make_nccl(), for tensors on this NPU. It only does exchanges in which all give to all.
/// `calls` is told what the NPU still has to do, and what HCCL says of the links.
c10::intrusive_ptr<Backend> make_hccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                      int size, int64_t device, std::shared_ptr<GroupCalls> calls);

}  // namespace danlu::parallel
