// parallel/group.h: ranks that exchange tensors.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::parallel {

/// Collectives of one group of ranks. Every rank calls the same ones in the same order; tensors are
/// contiguous and of equal shape on all ranks. Not thread-safe.
class Group {
 public:
  virtual ~Group() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// In place: the sum over ranks. Errors: CommError (peer lost, timed out).
  virtual void all_reduce_sum(at::Tensor& tensor) const = 0;
  /// The tensors of all ranks in rank order, joined along `dim`.
  virtual at::Tensor all_gather(const at::Tensor& tensor, int64_t dim) const = 0;
  /// This rank's block (along `dim`, equal blocks) of the sum over ranks.
  virtual at::Tensor reduce_scatter_sum(const at::Tensor& tensor, int64_t dim) const = 0;
  /// In place: rank `root`'s values everywhere.
  virtual void broadcast(at::Tensor& tensor, int64_t root) const = 0;
  virtual void barrier() const = 0;

  /// The group of one rank: every collective is the identity.
  static const Group& alone();
};

}  // namespace danlu::parallel
