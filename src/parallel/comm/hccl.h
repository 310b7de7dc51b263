// parallel/comm/hccl.h: what carries tensors between processes that lie on Ascend NPUs.
#pragma once
#include <memory>

#include "parallel/comm/calls.h"
#include "parallel/comm/nccl.h"

namespace danlu::parallel {

/// As make_nccl(), for tensors on this NPU: exchanges of what all give to all, and nothing else.
/// What the NPU has to do yet, and what HCCL says of the links, is told to `calls`.
c10::intrusive_ptr<Backend> make_hccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                      int size, int64_t device, std::shared_ptr<GroupCalls> calls);

}  // namespace danlu::parallel
