#include "optim/grad_buffer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "ops/pointwise.h"

namespace danlu::optim {
namespace {

using parallel::Unit;

/// Consecutive elements of a unit that `holders` ranks of the tensor axis hold.
struct Span {
  Range at;
  int64_t holders;
};
std::vector<Span> spans_of(const Unit& unit, size_t index) {
  std::vector<Span> spans;
  int64_t at = unit.layout.range(index).begin;
  for (const parallel::HeldRect& held : unit.parameters[index]->rects) {
    const int64_t size = held.rect.rows * held.rect.cols;
    spans.push_back({{at, at + size}, held.holders});
    at += size;
  }
  return spans;
}

/// Where the ranks of the tensor axis have parts of one sum, the sum.
void sum_over_holders(const parallel::PassGroups& groups, const Unit& unit,
                      const at::Tensor& whole) {
  // Few and small: norms, adapters, shared key heads. One exchange for each size of group.
  std::map<int64_t, std::vector<at::Tensor>> by_holders;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    if (!unit.parameters[i]->sums_over_tensor) continue;
    for (const Span& span : spans_of(unit, i)) {
      if (span.holders > 1)
        by_holders[span.holders].push_back(whole.narrow(0, span.at.begin, span.at.size()));
    }
  }
  for (auto& [holders, parts] : by_holders) {
    at::Tensor joined = ops::joined(parts, 0);
    groups.neighbours(holders).all_reduce_sum(joined);
    int64_t at = 0;
    for (at::Tensor& part : parts) {
      part.copy_(joined.narrow(0, at, part.numel()));
      at += part.numel();
    }
  }
}

/// `whole` is a unit's gradient on this rank; `share` becomes, or grows by, what the store keeps of
/// the sum over those it shares with, and, at the end of a step, over all.
void sum_over_ranks(const parallel::ParameterStore& store, const Unit& unit, at::Tensor whole,
                    at::Tensor share, bool last) {
  const parallel::PassGroups& groups = store.mesh().background();
  sum_over_holders(groups, unit, whole);
  const parallel::Group& sharers = groups.sharers(unit.copied_on);
  if (store.sharding() == parallel::Sharding::kNone) {
    groups.holders(unit.copied_on).all_reduce_sum(whole);
  } else if (store.sharding() == parallel::Sharding::kState) {
    sharers.reduce_scatter_into(whole, share);  // of which it is a part
  } else {
    at::Tensor part = whole.narrow(0, unit.share.begin, unit.share.size());
    sharers.reduce_scatter_into(whole, part);
    ops::add_to(share, part);
  }
  if (store.sharding() != parallel::Sharding::kNone && last)
    groups.replicas(unit.copied_on).all_reduce_sum(share);
}

/// The sum of squares of the share, what several ranks hold in parts.
double squares_of(const Unit& unit, const at::Tensor& share) {
  std::vector<Range> ranges;
  std::vector<int64_t> holders;
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    for (const Span& span : spans_of(unit, i)) {
      ranges.push_back(parallel::overlap_in(unit.share, span.at));
      holders.push_back(span.holders);
    }
  }
  const std::vector<Chunk> chunks = chunks_of(ranges);
  const std::vector<double> sums = ops::sums_of_squares(share, chunks);
  double total = 0;
  for (size_t i = 0; i < sums.size(); ++i)
    total += sums[i] / static_cast<double>(holders[chunks[i].index]);
  return total;
}

}  // namespace

GradBuffer::GradBuffer(parallel::ParameterStore& store) : store_(store) {
  units_.resize(store.units().size());
  for (size_t i = 0; i < units_.size(); ++i) {
    const parallel::Unit& unit = store.units()[i];
    if (!unit.trainable) continue;
    if (shares_gradients()) {
      const auto options = at::TensorOptions(at::kFloat).device(unit.flat.device());
      units_[i].share = at::zeros({unit.share.size()}, options);
      continue;
    }
    for (const parallel::Parameter* parameter : unit.parameters)
      parameter->main_grad->make = [this, i] { give_memory(i); };
  }
  store.listen(
      {[this](size_t unit) { before_unit(unit); }, [this](size_t unit) { after_unit(unit); }});
}

GradBuffer::~GradBuffer() {
  store_.listen({});
  for (size_t i = 0; i < units_.size(); ++i) {
    if (!store_.units()[i].trainable) continue;
    forget_gradients(i);
    for (const parallel::Parameter* parameter : store_.units()[i].parameters)
      parameter->main_grad->make = {};
  }
}

void GradBuffer::give_memory(size_t index) const {
  const parallel::Unit& unit = store_.units()[index];
  UnitGradient& gradient = units_[index];
  gradient.whole =
      at::empty({unit.layout.total()}, at::TensorOptions(at::kFloat).device(unit.flat.device()));
  gradient.share = gradient.whole.narrow(0, unit.share.begin, unit.share.size());
  point_gradients(index);
}

/// At memory that holds nothing yet.
void GradBuffer::point_gradients(size_t index) const {
  const parallel::Unit& unit = store_.units()[index];
  const at::Tensor& whole = units_[index].whole;
  int64_t end = 0;
  // What lies between tensors travels with them.
  const auto clear = [&](int64_t begin) {
    if (begin > end) whole.narrow(0, end, begin - end).zero_();
  };
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const Range& at = unit.layout.range(i);
    const parallel::Parameter& parameter = *unit.parameters[i];
    clear(at.begin);
    end = at.end;
    parameter.main_grad->sum = whole.narrow(0, at.begin, at.size()).view(parameter.tensor.sizes());
    parameter.main_grad->is_fresh = true;
  }
  clear(whole.numel());
}

void GradBuffer::forget_gradients(size_t index) const {
  for (const parallel::Parameter* parameter : store_.units()[index].parameters) {
    parameter->tensor.mutable_grad() = at::Tensor();
    parameter->main_grad->sum = at::Tensor();
    parameter->main_grad->is_fresh = false;
  }
}

/// The unit's gradient is there, 0 where nothing was added.
void GradBuffer::complete(size_t index) const {
  const parallel::Unit& unit = store_.units()[index];
  if (!unit.trainable || is_resting(index)) return;
  if (shares_gradients() && !units_[index].whole.defined()) return;
  for (const parallel::Parameter* parameter : unit.parameters)
    ops::takes_grad(parameter->main_grad);
}

const at::Tensor& GradBuffer::share(size_t unit) const {
  complete(unit);
  return units_[unit].share;
}

at::Tensor GradBuffer::grad(size_t index, size_t parameter) const {
  const auto& main = store_.units()[index].parameters[parameter]->main_grad;
  ops::takes_grad(main);
  return main->sum;
}

void GradBuffer::rest(const std::vector<bool>& units) {
  resting_ = units;
  // A pass goes back to the first place with a trained unit, through all others.
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const parallel::Unit& unit : store_.units())
    if (unit.trainable) first = std::min(first, unit.place);
  for (size_t i = 0; i < units_.size(); ++i) {
    const parallel::Unit& unit = store_.units()[i];
    if (!unit.trainable) continue;
    for (const parallel::Parameter* parameter : unit.parameters)
      at::Tensor(parameter->tensor).requires_grad_(!is_resting(i) || unit.place == first);
  }
}

void GradBuffer::zero() {
  store_.begin_step();
  for (size_t i = 0; i < units_.size(); ++i) {
    if (!store_.units()[i].trainable) continue;
    forget_gradients(i);
    if (shares_gradients()) {
      units_[i].share.zero_();
    } else {
      units_[i] = {};
    }
  }
}

void GradBuffer::begin_pass(bool last, ops::LaterWork* later) {
  if (later && (last || shares_gradients()))
    throw InternalError("[gradients] a unit's must be whole when its backward is over");
  last_pass_ = last;
  leave_to(later);
}

void GradBuffer::end_pass() {
  store_.end_backward();
  leave_to(nullptr);  // what the caller gave may not live longer than the pass
}

void GradBuffer::leave_to(ops::LaterWork* later) {
  for (const parallel::Unit& unit : store_.units()) {
    for (const parallel::Parameter* parameter : unit.parameters) {
      if (unit.trainable) parameter->main_grad->later = later;
    }
  }
}

void GradBuffer::add_later(ops::LaterWork& later, bool last) {
  const at::NoGradGuard no_grad;
  for (const auto& work : std::exchange(later, {})) work();
  last_pass_ = last;
  for (size_t unit = 0; last && unit < units_.size(); ++unit) {
    if (store_.units()[unit].trainable) start_sum(unit);
  }
}

at::Tensor GradBuffer::take_buffer(int64_t elements, const at::Device& device) {
  // The backward fills one, and one is summed.
  constexpr size_t kMost = 2;
  while (running_.size() >= kMost) wait_for_oldest();
  // A vocabulary's buffer is not for a layer.
  const auto fits = std::find_if(spare_.begin(), spare_.end(), [&](const at::Tensor& t) {
    return t.numel() >= elements && t.numel() <= 2 * elements;
  });
  if (fits == spare_.end())
    return at::empty({elements}, at::TensorOptions(at::kFloat).device(device));
  const at::Tensor buffer = *fits;
  spare_.erase(fits);
  return buffer;
}

void GradBuffer::before_unit(size_t index) {
  if (!shares_gradients() || is_resting(index) || units_[index].whole.defined()) return;
  const int64_t elements = store_.units()[index].layout.total();
  units_[index].buffer = take_buffer(elements, units_[index].share.device());
  units_[index].whole = units_[index].buffer.narrow(0, 0, elements);
  point_gradients(index);
}

void GradBuffer::after_unit(size_t index) {
  const at::NoGradGuard no_grad;
  if (is_resting(index)) {
    forget_gradients(index);
    if (!shares_gradients()) units_[index] = {};
    return;
  }
  collect(index);
  if (!shares_gradients()) {
    if (last_pass_) start_sum(index);
    return;
  }
  start_sum(index);
  units_[index].whole = units_[index].buffer = at::Tensor();
  forget_gradients(index);
}

void GradBuffer::collect(size_t index) {
  const parallel::Unit& unit = store_.units()[index];
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    at::Tensor& given = unit.parameters[i]->tensor.mutable_grad();
    const at::Tensor& whole = units_[index].whole;
    if (!given.defined() || (whole.defined() && given.is_alias_of(whole))) continue;
    const at::Tensor slice = grad(index, i);
    ops::add_to(slice, given);
    given = unit.parameters[i]->tensor.scalar_type() == at::kFloat ? slice : at::Tensor();
  }
}

void GradBuffer::clear_fixed(size_t index) const {
  const parallel::Unit& unit = store_.units()[index];
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const parallel::Parameter& parameter = *unit.parameters[i];
    if (!parameter.fixed) continue;
    parallel::for_each_fixed(parameter, grad(index, i),
                             [](const at::Tensor& part_RC) { part_RC.zero_(); });
  }
}

void GradBuffer::start_sum(size_t index) {
  if (is_resting(index)) return;
  clear_fixed(index);
  if (store_.mesh().shape().size() == 1) return;
  complete(index);
  // Nothing of this object: it may be gone when the job begins.
  const at::Tensor &whole = units_[index].whole, &share = units_[index].share;
  auto sum = [&store = store_, index, whole, share, last = last_pass_]() mutable {
    sum_over_ranks(store, store.units()[index], whole, share, last);
  };
  running_.push_back({store_.background().run(std::move(sum), whole.device(), {whole, share}),
                      units_[index].buffer});
}

void GradBuffer::wait_for_oldest() {
  const Running oldest = std::move(running_.front());
  running_.pop_front();
  oldest.done.get();
  if (oldest.buffer.defined()) spare_.push_back(oldest.buffer);
}

void GradBuffer::finish() {
  while (!running_.empty()) wait_for_oldest();
  spare_.clear();
  for (size_t i = 0; i < units_.size(); ++i) complete(i);
  const parallel::Group& ends = store_.mesh().ends();
  for (size_t i = 0; !ends.is_alone() && i < units_.size(); ++i) {
    const parallel::Unit& unit = store_.units()[i];
    if (unit.trainable && unit.in_both_ends && !is_resting(i))
      ends.all_reduce_sum(store_.sharding() == parallel::Sharding::kNone ? units_[i].whole
                                                                         : units_[i].share);
  }
}

double GradBuffer::norm(double scale) const {
  const parallel::Mesh& mesh = store_.mesh();
  std::map<arch::Axes, double> totals{{mesh.shape().several_of(parallel::Mesh::kEveryCopy), 0.0}};
  for (size_t i = 0; i < units_.size(); ++i) {
    const parallel::Unit& unit = store_.units()[i];
    if (unit.trainable && !unit.is_copy && !is_resting(i))
      totals[unit.copied_on] += squares_of(unit, share(i));
  }
  at::Tensor everywhere = at::zeros({1}, at::kDouble);
  for (const auto& [copied_on, total] : totals) {
    at::Tensor sum = at::full({1}, total, at::kDouble);
    if (store_.sharding() != parallel::Sharding::kNone) mesh.sharers(copied_on).all_reduce_sum(sum);
    if (!copied_on.has(arch::Axis::kExpert))
      mesh.cutting({arch::Axis::kExpert}).all_reduce_sum(sum);
    everywhere += sum;
  }
  mesh.tensor().all_reduce_sum(everywhere);
  mesh.pipeline().all_reduce_sum(everywhere);
  return std::sqrt(everywhere.item<double>()) * scale;
}

std::vector<std::string> GradBuffer::non_finite(size_t limit) const {
  std::vector<std::string> names;
  for (size_t u = 0; u < units_.size(); ++u) {
    const parallel::Unit& unit = store_.units()[u];
    if (!unit.trainable || is_resting(u)) continue;
    for (size_t i = 0; i < unit.parameters.size() && names.size() < limit; ++i) {
      const Range part = unit.place_in_share(i);
      const at::Tensor values = share(u).narrow(0, part.begin, part.size());
      if (part.size() > 0 && !ops::all_finite(values)) names.push_back(unit.parameters[i]->name());
    }
  }
  return names;
}

int64_t GradBuffer::kept_bytes() const {
  int64_t elements = 0;
  for (const parallel::Unit& unit : store_.units()) {
    if (unit.trainable) elements += shares_gradients() ? unit.share.size() : unit.layout.total();
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

int64_t GradBuffer::absent_bytes() const {
  int64_t bytes = kept_bytes();
  for (const UnitGradient& unit : units_) {
    const at::Tensor& kept = shares_gradients() ? unit.share : unit.whole;
    if (kept.defined()) bytes -= static_cast<int64_t>(kept.nbytes());
  }
  return bytes;
}

}  // namespace danlu::optim
