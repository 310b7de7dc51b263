#include "parallel/group.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "device/dtype.h"
#include "ops/pointwise.h"

namespace danlu::parallel {
namespace group_detail {

class AloneGroup : public Group {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }

 private:
  void do_rounds(const char*, const std::vector<Round>&) const override {}
};

/// Blocks along `dim` become blocks along dimension 0, contiguous.
at::Tensor blocks_first(const at::Tensor& tensor, int64_t dim, int64_t blocks) {
  if (dim == 0) return tensor.contiguous();
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[static_cast<size_t>(dim)] /= blocks;
  shape.insert(shape.begin() + dim, blocks);
  return tensor.reshape(shape).movedim(dim, 0).contiguous();
}

at::ScalarType sum_type(const at::Tensor& tensor) {
  return tensor.is_floating_point() ? device::wide_type(tensor.scalar_type())
                                    : tensor.scalar_type();
}

/// Elements of a piece, of which each rank reduces its part: few enough to stay in a cache from
/// their arrival to their sum, and to take no fresh memory.
int64_t piece_elements(const at::Tensor& tensor, int64_t ranks) {
  constexpr int64_t kPieceBytes = int64_t{4} << 20;
  return std::max<int64_t>(1, kPieceBytes / (tensor.element_size() * ranks)) * ranks;
}

/// `to`: the sum or maximum of the rows, in their order; one of which it may be.
void reduce_rows(const Group::Tensors& rows, bool sums, at::Tensor to) {
  const at::ScalarType wide = sum_type(to);
  const bool is_later_row = std::any_of(rows.begin() + 2, rows.end(), [&](const at::Tensor& row) {
    return row.data_ptr() == to.data_ptr();
  });
  at::Tensor total = to.scalar_type() == wide && !is_later_row
                         ? to
                         : at::empty(to.sizes(), to.options().dtype(wide));
  const auto add = [&](const at::Tensor& first, const at::Tensor& second) {
    if (sums) {
      ops::add_into(total, first, second);
    } else {
      ops::larger_into(total, first, second);
    }
  };
  add(rows[0].to(wide), rows[1].to(wide));
  for (size_t r = 2; r < rows.size(); ++r) add(total, rows[r].to(wide));
  if (!total.is_same(to)) to.copy_(total);
}

Group::Tensors rows_of(const at::Tensor& tensor_RN) { return tensor_RN.unbind(0); }

}  // namespace group_detail

void Group::count(int64_t bytes) const {
  ++traffic_.calls;
  traffic_.bytes += bytes;
}

Group::Round Group::reducing(const at::Tensor& all_RN, bool sums, const at::Tensor& theirs_RN,
                             const at::Tensor& mine_N) const {
  Round round{group_detail::rows_of(all_RN), group_detail::rows_of(theirs_RN), {}};
  Tensors rows = round.receives;
  rows[static_cast<size_t>(rank())] = round.sends[static_cast<size_t>(rank())];
  round.then = [rows = std::move(rows), sums, mine_N] {
    group_detail::reduce_rows(rows, sums, mine_N);
  };
  return round;
}

Group::Round Group::gathering(const at::Tensor& mine, const at::Tensor& all_RN) const {
  Round round{Tensors(static_cast<size_t>(size()), mine), group_detail::rows_of(all_RN), {}};
  round.then = [own = round.receives[static_cast<size_t>(rank())], mine] {
    if (own.data_ptr() != mine.data_ptr()) own.copy_(mine);
  };
  return round;
}

void Group::reduce(at::Tensor& tensor, bool sums) const {
  if (is_alone()) return;
  const at::NoGradGuard no_grad;
  const char* what = sums ? "all-reduce" : "all-reduce (max)";
  const at::Tensor flat = tensor.detach().contiguous().view({-1});
  if (sums && sums_as_transport(flat)) {
    if (!flat.is_alias_of(tensor)) tensor.copy_(flat.view(tensor.sizes()));
    return;
  }
  const int64_t ranks = size(), tail = flat.numel() % ranks;
  // Few numbers go to everybody at once, as do all of two ranks, which sends no more bytes than
  // halves do; else each rank reduces its part for all.
  constexpr int64_t kFew = 64;
  if (flat.numel() <= kFew || ranks == 2) {
    reduce_at_once(what, flat, sums);
  } else if (tail > 0) {
    at::Tensor whole = at::constant_pad_nd(flat, {0, ranks - tail});
    reduce_in_parts(what, whole, sums);
    flat.copy_(whole.narrow(0, 0, flat.numel()));
  } else {
    reduce_in_parts(what, flat, sums);
  }
  if (!flat.is_alias_of(tensor)) tensor.copy_(flat.view(tensor.sizes()));
}

bool Group::do_sum(const char*, const at::Tensor&) const { return false; }

bool Group::sums_as_transport(const at::Tensor& flat) const {
  if (sums_ == Sums::kInRankOrder || !flat.is_floating_point()) return false;
  if (!do_sum("all-reduce", flat)) return false;
  count(2 * (size() - 1) * static_cast<int64_t>(flat.nbytes()) / size());
  return true;
}

double Group::sum_tolerance(at::ScalarType type, int64_t ranks) {
  const double rounding = type == at::kBFloat16 ? std::ldexp(1.0, -8)
                          : type == at::kHalf   ? std::ldexp(1.0, -11)
                          : type == at::kDouble ? std::ldexp(1.0, -53)
                                                : std::ldexp(1.0, -24);
  // Each of the additions of either sum rounds what is at most the sum of absolute values.
  return 2 * static_cast<double>(ranks - 1) * rounding;
}

void Group::reduce_at_once(const char* what, const at::Tensor& flat, bool sums) const {
  const int64_t most = std::min(group_detail::piece_elements(flat, size()), flat.numel());
  const at::Tensor theirs = at::empty({2, size(), most}, flat.options());
  std::vector<Round> rounds;
  for (int64_t at = 0; at < flat.numel(); at += most) {
    const int64_t n = std::min(most, flat.numel() - at);
    const at::Tensor piece = flat.narrow(0, at, n);
    rounds.push_back(
        reducing(piece.expand({size(), n}), sums, theirs[at / most % 2].narrow(1, 0, n), piece));
  }
  do_rounds(what, rounds);
  count((size() - 1) * static_cast<int64_t>(flat.nbytes()));
}

void Group::reduce_in_parts(const char* what, const at::Tensor& flat, bool sums) const {
  const int64_t most = std::min(group_detail::piece_elements(flat, size()), flat.numel());
  // Two pieces are under way at a time.
  const at::Tensor theirs = at::empty({2, most}, flat.options());
  const at::Tensor sums_2N = at::empty({2, most / size()}, flat.options());
  std::vector<Round> reduced, gathered;
  for (int64_t at = 0; at < flat.numel(); at += most) {
    const int64_t n = std::min(most, flat.numel() - at), room = at / most % 2;
    const at::Tensor piece_RN = flat.narrow(0, at, n).view({size(), -1});
    const at::Tensor mine_N = sums_2N[room].narrow(0, 0, n / size());
    const at::Tensor theirs_RN = theirs[room].narrow(0, 0, n).view({size(), -1});
    reduced.push_back(reducing(piece_RN, sums, theirs_RN, mine_N));
    gathered.push_back(gathering(mine_N, piece_RN));
  }
  // A part is gathered two rounds after it came.
  reduced.emplace_back();
  std::vector<Round> rounds = {std::move(reduced.front())};
  for (size_t piece = 0; piece < gathered.size(); ++piece) {
    rounds.push_back(std::move(reduced[piece + 1]));
    rounds.push_back(std::move(gathered[piece]));
  }
  do_rounds(what, rounds);
  count(2 * (size() - 1) * static_cast<int64_t>(flat.nbytes()) / size());
}

void Group::all_reduce_sum(at::Tensor& tensor) const { reduce(tensor, true); }
void Group::all_reduce_max(at::Tensor& tensor) const { reduce(tensor, false); }

at::Tensor Group::all_gather(const at::Tensor& tensor, int64_t dim) const {
  if (is_alone()) return tensor;
  const at::NoGradGuard no_grad;
  const at::Tensor mine = tensor.detach().contiguous();
  std::vector<int64_t> shape = mine.sizes().vec();
  shape.insert(shape.begin(), size());
  at::Tensor all = at::empty(shape, mine.options());
  do_rounds("all-gather", {gathering(mine.view({-1}), all.view({size(), -1}))});
  count((size() - 1) * static_cast<int64_t>(mine.nbytes()));
  shape.erase(shape.begin());
  shape[static_cast<size_t>(dim)] *= size();
  return dim == 0 ? all.view(shape) : all.movedim(0, dim).reshape(shape);
}

at::Tensor Group::gather(const at::Tensor& tensor, int64_t root) const {
  const at::NoGradGuard no_grad;
  const at::Tensor mine = tensor.detach().contiguous().view({-1});
  if (is_alone()) return mine.view({1, -1});
  Round round{Tensors(static_cast<size_t>(size())), Tensors(static_cast<size_t>(size())), {}};
  at::Tensor all_RN;
  if (rank() == root) {
    all_RN = at::empty({size(), mine.numel()}, mine.options());
    all_RN[root].copy_(mine);
    round.receives = group_detail::rows_of(all_RN);
  } else {
    round.sends[static_cast<size_t>(root)] = mine;
  }
  do_rounds("gather", {round});
  count(rank() == root ? 0 : static_cast<int64_t>(mine.nbytes()));
  return all_RN;
}

at::Tensor Group::reduce_scatter_sum(const at::Tensor& tensor, int64_t dim) const {
  if (is_alone()) return tensor;
  if (tensor.size(dim) % size() != 0) {
    throw InternalError("[group] " + std::to_string(tensor.size(dim)) + " do not divide over " +
                        std::to_string(size()) + " ranks");
  }
  const at::NoGradGuard no_grad;
  const at::Tensor all = group_detail::blocks_first(tensor.detach(), dim, size());
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[static_cast<size_t>(dim)] /= size();
  at::Tensor mine = at::empty(shape, all.options());
  at::Tensor flat = mine.view({-1});
  reduce_scatter_into(all.view({-1}), flat);
  return mine;
}

void Group::all_gather_into(const at::Tensor& mine, at::Tensor& all) const {
  if (is_alone()) {
    if (mine.data_ptr() != all.data_ptr()) all.copy_(mine);
    return;
  }
  const at::NoGradGuard no_grad;
  do_rounds("all-gather", {gathering(mine, all.view({size(), -1}))});
  count((size() - 1) * static_cast<int64_t>(mine.nbytes()));
}

void Group::reduce_scatter_into(const at::Tensor& all, at::Tensor& mine) const {
  if (is_alone()) {
    if (mine.data_ptr() != all.data_ptr()) mine.copy_(all);
    return;
  }
  const at::NoGradGuard no_grad;
  const int64_t elements = mine.numel();
  const int64_t most = std::min(elements, group_detail::piece_elements(all, size()) / size());
  const at::Tensor theirs = at::empty({2, most * size()}, all.options());
  const at::Tensor blocks_RN = all.view({size(), -1});
  std::vector<Round> rounds;
  for (int64_t at = 0; at < elements; at += most) {
    const int64_t n = std::min(most, elements - at), room = at / most % 2;
    rounds.push_back(reducing(blocks_RN.narrow(1, at, n), true,
                              theirs[room].narrow(0, 0, n * size()).view({size(), n}),
                              mine.narrow(0, at, n)));
  }
  do_rounds("reduce-scatter", rounds);
  count((size() - 1) * static_cast<int64_t>(mine.nbytes()));
}

void Group::broadcast(at::Tensor& tensor, int64_t root) const {
  if (is_alone()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor flat = tensor.detach().contiguous().view({-1});
  Round round{Tensors(static_cast<size_t>(size())), Tensors(static_cast<size_t>(size())), [] {}};
  if (rank() == root) {
    round.sends.assign(round.sends.size(), flat);
  } else {
    round.receives[static_cast<size_t>(root)] = flat;
  }
  do_rounds("broadcast", {round});
  count(rank() == root ? (size() - 1) * static_cast<int64_t>(flat.nbytes()) : 0);
  if (rank() != root && !flat.is_alias_of(tensor)) tensor.copy_(flat.view(tensor.sizes()));
}

void Group::all_to_all(const Tensors& sends, const Tensors& receives) const {
  const at::NoGradGuard no_grad;
  const auto mine = static_cast<size_t>(rank());
  if (sends[mine].defined()) at::Tensor(receives[mine]).copy_(sends[mine]);
  if (is_alone()) return;
  Round round{sends, receives, [] {}};
  round.sends[mine] = round.receives[mine] = at::Tensor();
  do_rounds("all-to-all", {round});
  int64_t bytes = 0;
  for (const at::Tensor& part : round.sends)
    bytes += part.defined() ? static_cast<int64_t>(part.nbytes()) : 0;
  count(bytes);
}

void Group::pass_on(at::Tensor& tensor, int64_t from, int64_t to) const {
  if (from == to) return;
  const at::NoGradGuard no_grad;
  Round round{Tensors(static_cast<size_t>(size())), Tensors(static_cast<size_t>(size())), [] {}};
  at::Tensor flat;
  if (rank() == from) {
    flat = tensor.detach().contiguous().view({-1});
    round.sends[static_cast<size_t>(to)] = flat;
  } else if (rank() == to) {
    flat = tensor.detach().contiguous().view({-1});
    round.receives[static_cast<size_t>(from)] = flat;
  }
  do_rounds("pass on", {round});
  count(rank() == from ? static_cast<int64_t>(flat.nbytes()) : 0);
  if (rank() == to && !flat.is_alias_of(tensor)) tensor.copy_(flat.view(tensor.sizes()));
}

void Group::barrier() const {
  if (is_alone()) return;
  at::Tensor nothing = at::zeros({1}, at::kLong);
  reduce(nothing, true);
}

const Group& Group::alone() {
  static const group_detail::AloneGroup group;
  return group;
}

}  // namespace danlu::parallel
