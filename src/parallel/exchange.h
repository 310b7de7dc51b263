// parallel/exchange.h: rows that ranks send to one another, as many to each as they like.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/background.h"
#include "parallel/group.h"

namespace danlu::parallel {

/// The first sends[0] rows of x_RH go to rank 0 of the group, the next sends[1] to rank 1, and so
/// on; the result has receives[r] rows of rank r, in the order of ranks. Backward sends gradients
/// the other way. `group` outlives the graph. Collective, also where this rank has no rows.
/// REQUIRES: sends[r] of rank s is receives[s] of rank r, and they add up to x's rows.
at::Tensor exchange_rows(const at::Tensor& x_RH, const std::vector<int64_t>& sends,
                         const std::vector<int64_t>& receives, const Group& group);

/// The rows of all ranks of the group, those of one below those of the rank before it; rank r has
/// counts[r]. Backward sums gradients over ranks, as Group sums, and keeps the own rows'. As
/// exchange_rows else.
at::Tensor gather_rows(const at::Tensor& x_RH, const std::vector<int64_t>& counts,
                       const Group& group);
/// Its adjoint: partial sums of the rows of all ranks to the sums of this rank's.
at::Tensor scatter_rows_sum(const at::Tensor& x_RH, const std::vector<int64_t>& counts,
                            const Group& group);

/// exchange_rows in two halves, between which the rank computes: a thread of its own sends and
/// receives. Backward has the same two halves. Autograd goes through nodes in the opposite order of
/// their making, so gradients travel while it passes what was computed between begin() and end().
/// Outlives the graph. Ranks begin the same exchanges in the same order.
class AsyncExchange {
 public:
  /// What one exchange's graph shares.
  struct Trip;
  struct UnderWay {
    at::Tensor rows_RH;  ///< where rows arrive: not to be read before end()
    std::shared_ptr<Trip> trip;
  };

  /// group: nobody else uses it.
  explicit AsyncExchange(std::unique_ptr<Group> group);
  /// As exchange_rows.
  UnderWay begin(const at::Tensor& x_RH, const std::vector<int64_t>& sends,
                 const std::vector<int64_t>& receives) const;
  /// Waits for the rows. REQUIRES: once for each begin().
  at::Tensor end(const UnderWay& under_way) const;
  const Traffic& traffic() const { return group_->traffic(); }
  void abort() const { group_->abort(); }

  /// For the functions of autograd: rows leave, and `result` is filled when the job is over.
  Background::Job send(const at::Tensor& x_RH, const std::vector<int64_t>& sends,
                       const at::Tensor& result_RH, const std::vector<int64_t>& receives) const;

 private:
  std::unique_ptr<Group> group_;
  mutable Background thread_;
};

}  // namespace danlu::parallel
