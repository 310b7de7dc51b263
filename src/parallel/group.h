// parallel/group.h: ranks that exchange tensors.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace danlu::parallel {

/// The payload that a rank has sent to others, as the transport counts it.
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
  using Tensors = std::vector<at::Tensor>;
  virtual ~Group() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  /// In place: the sum over ranks, or the largest element.
  void all_reduce_sum(at::Tensor& tensor) const;
  void all_reduce_max(at::Tensor& tensor) const;
  /// The tensors of all ranks in rank order, joined along `dim`.
  at::Tensor all_gather(const at::Tensor& tensor, int64_t dim) const;
  /// On `root` a matrix whose row r is rank r's tensor, flat; undefined on other ranks.
  at::Tensor gather(const at::Tensor& tensor, int64_t root) const;
  /// This rank's block (along `dim`, equal blocks) of the sum over ranks.
  at::Tensor reduce_scatter_sum(const at::Tensor& tensor, int64_t dim) const;
  /// all_gather of flat tensors into `all` [size · n]. `mine` [n] may be this rank's part of `all`.
  void all_gather_into(const at::Tensor& mine, at::Tensor& all) const;
  /// Makes `mine` [n] this rank's part of the sum of `all` [size · n]. `mine` may be that part of
  /// `all`. It takes no more than 16 MiB of further memory.
  void reduce_scatter_into(const at::Tensor& all, at::Tensor& mine) const;
  /// Copies rank `from`'s values into rank `to`'s tensor; the other ranks give and get nothing.
  void pass_on(at::Tensor& tensor, int64_t from, int64_t to) const;
  /// sends[r] goes to rank r, whose receives[this rank] has the same size and dtype; this rank
  /// sends to itself too. Tensors are flat and contiguous; an undefined one stands for nothing.
  void all_to_all(const Tensors& sends, const Tensors& receives) const;
  /// In place: gives every rank the values of rank `root`.
  void broadcast(at::Tensor& tensor, int64_t root) const;
  void barrier() const;

  /// Called from another thread while this rank waits in a collective: makes that call, and all
  /// later ones of this rank, throw CommError.
  virtual void abort() const {}

  bool is_alone() const { return size() == 1; }
  const Traffic& traffic() const { return traffic_; }

  /// The group of one rank: every collective is the identity.
  static const Group& alone();

 protected:
  /// One exchange. sends[r] goes to rank r, and rank r fills receives[r]. Undefined tensors, and
  /// this rank's own, are left alone. Tensors are flat and contiguous, without gradient. `then` is
  /// called at the end.
  struct Round {
    Tensors sends, receives;
    std::function<void()> then;
  };

 private:
  /// All that a transport has to do: the rounds, in their order. A round may begin while the one
  /// before it is under way, but not the one before that. `what` is a literal that names the
  /// collective for the watch. Never called in a group of one.
  virtual void do_rounds(const char* what, const std::vector<Round>& rounds) const = 0;

  void reduce(at::Tensor& tensor, bool sums) const;
  void reduce_at_once(const char* what, const at::Tensor& flat, bool sums) const;
  void reduce_in_parts(const char* what, const at::Tensor& flat, bool sums) const;
  Round gathering(const at::Tensor& mine, const at::Tensor& all_RN) const;
  /// Makes mine_N this rank's row of the sum (or maximum) of all_RN, which mine_N may lie in. What
  /// comes is received in theirs_RN.
  Round reducing(const at::Tensor& all_RN, bool sums, const at::Tensor& theirs_RN,
                 const at::Tensor& mine_N) const;
  void count(int64_t bytes) const;
  mutable Traffic traffic_;
};

}  // namespace danlu::parallel
