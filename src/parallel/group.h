// parallel/group.h: ranks that exchange tensors.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace danlu::parallel {

/// What a rank has sent to others: payload, counted by the transport.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
};

/// Collectives of one group of ranks. Every rank calls the same ones in the same order, with
/// contiguous tensors of equal shape and dtype. Sums are made in f32 (f64 of f64, integers of
/// integers) in the order of ranks and rounded once, whatever the tensors' dtype and the transport;
/// every rank gets the same bits, and a repetition gives them again. Not thread-safe. Errors:
/// CommError (a rank is gone or failed).
class Group {
 public:
  virtual ~Group() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  /// In place: the sum over ranks, or the largest element.
  void all_reduce_sum(at::Tensor& tensor) const;
  void all_reduce_max(at::Tensor& tensor) const;
  /// The tensors of all ranks in rank order, joined along `dim`.
  at::Tensor all_gather(const at::Tensor& tensor, int64_t dim) const;
  /// This rank's block (along `dim`, equal blocks) of the sum over ranks.
  at::Tensor reduce_scatter_sum(const at::Tensor& tensor, int64_t dim) const;
  /// In place: rank `root`'s values everywhere.
  void broadcast(at::Tensor& tensor, int64_t root) const;
  void barrier() const;

  bool is_alone() const { return size() == 1; }
  const Traffic& traffic() const { return traffic_; }

  /// The group of one rank: every collective is the identity.
  static const Group& alone();

 private:
  // What a transport does. Flat contiguous tensors without gradient; never called in a group of
  // one.
  /// `all` [size · n] from everybody's `mine` [n].
  virtual void do_gather(const at::Tensor& mine, at::Tensor& all) const = 0;
  /// Everybody's block for this rank: `theirs` [size · n] from `all` [size · n], where block r goes
  /// to rank r.
  virtual void do_exchange(const at::Tensor& all, at::Tensor& theirs) const = 0;
  virtual void do_broadcast(at::Tensor& tensor, int64_t root) const = 0;

  enum class Reduction { kSum, kMax };
  void reduce(at::Tensor& tensor, Reduction how) const;
  void count(int64_t bytes) const;
  mutable Traffic traffic_;
};

}  // namespace danlu::parallel
