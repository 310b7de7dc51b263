// parallel/group.h: ranks that exchange tensors.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

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
  using Tensors = std::vector<at::Tensor>;
  virtual ~Group() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  /// How all_reduce_sum makes sums of floating numbers.
  enum class Sums {
    kInRankOrder,  ///< as promised above
    /// In the transport's own exchange, where it has one for the tensors: not in rank order, and
    /// perhaps rounded at each addition. Every rank gets the same bits; they are others than those
    /// of kInRankOrder, by sum_tolerance at most, and may be others in a repetition.
    kAsTheTransportDoes,
  };
  /// At first in rank order. Of all ranks alike, while none is in a collective.
  void make_sums(Sums how) { sums_ = how; }
  /// The most by which a sum over `ranks` of kAsTheTransportDoes differs from the other one, for
  /// each unit of the sum of the ranks' absolute values.
  static double sum_tolerance(at::ScalarType type, int64_t ranks);

  /// In place: the sum over ranks, or the largest element.
  void all_reduce_sum(at::Tensor& tensor) const;
  void all_reduce_max(at::Tensor& tensor) const;
  /// The tensors of all ranks in rank order, joined along `dim`.
  at::Tensor all_gather(const at::Tensor& tensor, int64_t dim) const;
  /// Row r: rank r's tensor, flat; undefined on others than `root`.
  at::Tensor gather(const at::Tensor& tensor, int64_t root) const;
  /// This rank's block (along `dim`, equal blocks) of the sum over ranks.
  at::Tensor reduce_scatter_sum(const at::Tensor& tensor, int64_t dim) const;
  /// all_gather of flat tensors: `all` [size · n] from everybody's `mine` [n], which may be this
  /// rank's part of it.
  void all_gather_into(const at::Tensor& mine, at::Tensor& all) const;
  /// `mine` [n]: this rank's part of the sum of `all` [size · n], of which it may be that part.
  /// Takes no more than 16 MiB of further memory.
  void reduce_scatter_into(const at::Tensor& all, at::Tensor& mine) const;
  /// Rank `from`'s values in rank `to`'s tensor; the others give and get nothing.
  void pass_on(at::Tensor& tensor, int64_t from, int64_t to) const;
  /// sends[r] goes to rank r, which gave a tensor of that size and dtype to receive it in as
  /// receives[this rank]; own to own too. Flat and contiguous; undefined: nothing.
  void all_to_all(const Tensors& sends, const Tensors& receives) const;
  /// In place: rank `root`'s values everywhere.
  void broadcast(at::Tensor& tensor, int64_t root) const;
  void barrier() const;

  /// From another thread than the one that waits in a collective: it throws CommError, as do all
  /// further calls of this rank.
  virtual void abort() const {}

  bool is_alone() const { return size() == 1; }
  const Traffic& traffic() const { return traffic_; }

  /// The group of one rank: every collective is the identity.
  static const Group& alone();

 protected:
  /// sends[r] goes to rank r, receives[r] is filled by it; an undefined one is of nobody, and this
  /// rank's own are left alone. Flat contiguous tensors without gradient. Then `then` is called.
  struct Round {
    Tensors sends, receives;
    std::function<void()> then;
  };

 private:
  /// All that a transport does: the rounds in their order, of which the next may begin while one is
  /// under way, not the one after it. `what` is a literal: the collective, for whoever watches.
  /// Never called in a group of one.
  virtual void do_rounds(const char* what, const std::vector<Round>& rounds) const = 0;

  /// The transport's own sum over ranks, in place, of a flat contiguous tensor; false: it has none
  /// for this type or device, and nothing was done. Never called in a group of one.
  virtual bool do_sum(const char* what, const at::Tensor& flat) const;
  bool sums_as_transport(const at::Tensor& flat) const;
  void reduce(at::Tensor& tensor, bool sums) const;
  void reduce_at_once(const char* what, const at::Tensor& flat, bool sums) const;
  void reduce_in_parts(const char* what, const at::Tensor& flat, bool sums) const;
  Round gathering(const at::Tensor& mine, const at::Tensor& all_RN) const;
  /// This rank's row of the sum (or maximum) of all_RN into mine_N, which it may be; theirs_RN is
  /// room for what comes.
  Round reducing(const at::Tensor& all_RN, bool sums, const at::Tensor& theirs_RN,
                 const at::Tensor& mine_N) const;
  void count(int64_t bytes) const;
  Sums sums_ = Sums::kInRankOrder;
  mutable Traffic traffic_;
};

}  // namespace danlu::parallel
