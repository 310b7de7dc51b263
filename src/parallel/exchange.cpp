#include "parallel/exchange.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <utility>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/pointwise.h"

namespace danlu::parallel {
namespace {

using Counts = std::vector<int64_t>;

/// No rows. On a card a tensor without elements, since every rank has to take part there: NCCL
/// connects all of them in their first exchange.
at::Tensor nothing_like(const at::Tensor& rows_RH) {
  return rows_RH.is_cpu() ? at::Tensor() : at::empty({0}, rows_RH.options());
}

/// Parts of `rows` one below the other, flat.
Group::Tensors parts_for_ranks(const at::Tensor& rows_RH, const Counts& counts) {
  Group::Tensors parts;
  int64_t first = 0;
  for (const int64_t count : counts) {
    parts.push_back(count == 0 ? nothing_like(rows_RH)
                               : rows_RH.narrow(0, first, count).reshape({-1}));
    first += count;
  }
  return parts;
}

at::Tensor room_for(const Counts& counts, const at::Tensor& like_RH) {
  const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  return at::empty({rows, like_RH.size(1)}, like_RH.options());
}

at::Tensor exchanged(const at::Tensor& given_RH, const Counts& sends, const Counts& receives,
                     const Group& group) {
  const at::Tensor x_RH = given_RH.detach().contiguous();
  const at::Tensor result_RH = room_for(receives, x_RH);
  group.all_to_all(parts_for_ranks(x_RH, sends), parts_for_ranks(result_RH, receives));
  return result_RH;
}

at::Tensor gathered(const at::Tensor& own_RH, const Counts& counts, const Group& group) {
  const at::Tensor x_RH = own_RH.detach().contiguous();
  const at::Tensor result_RH = room_for(counts, x_RH);
  const at::Tensor flat = x_RH.size(0) == 0 ? nothing_like(x_RH) : x_RH.view({-1});
  group.all_to_all(Group::Tensors(counts.size(), flat), parts_for_ranks(result_RH, counts));
  return result_RH;
}

at::Tensor scattered_sum(const at::Tensor& all_RH, const Counts& counts, const Group& group) {
  const at::Tensor x_RH = all_RH.detach().contiguous();
  const int64_t own = counts[static_cast<size_t>(group.rank())];
  const at::Tensor parts_CRH =
      at::empty({static_cast<int64_t>(counts.size()), own, x_RH.size(1)}, x_RH.options());
  Group::Tensors receives(counts.size(), nothing_like(x_RH));
  for (size_t rank = 0; own > 0 && rank < counts.size(); ++rank)
    receives[rank] = parts_CRH[static_cast<int64_t>(rank)].view({-1});
  group.all_to_all(parts_for_ranks(x_RH, counts), receives);
  const at::Tensor sum_RH = parts_CRH[0].to(device::wide_type(x_RH.scalar_type()), false, true);
  for (size_t rank = 1; own > 0 && rank < counts.size(); ++rank)
    ops::add_to(sum_RH, parts_CRH[static_cast<int64_t>(rank)]);
  return sum_RH.to(x_RH.scalar_type());
}

/// One of the two forward, the other backward.
class Gathering : public torch::autograd::Function<Gathering> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_RH,
                            const Counts& counts, int64_t group, bool gathers) {
    ctx->saved_data["counts"] = counts;
    ctx->saved_data["group"] = group;
    ctx->saved_data["gathers"] = gathers;
    return done(x_RH, counts, group, gathers);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    return {done(grads[0], ctx->saved_data["counts"].toIntVector(),
                 ctx->saved_data["group"].toInt(), !ctx->saved_data["gathers"].toBool()),
            {},
            {},
            {}};
  }

 private:
  static at::Tensor done(const at::Tensor& x_RH, const Counts& counts, int64_t group,
                         bool gathers) {
    const auto& over = *reinterpret_cast<const Group*>(group);
    return gathers ? gathered(x_RH, counts, over) : scattered_sum(x_RH, counts, over);
  }
};

class Exchange : public torch::autograd::Function<Exchange> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_RH,
                            const Counts& sends, const Counts& receives, int64_t group) {
    ctx->saved_data["sends"] = sends;
    ctx->saved_data["receives"] = receives;
    ctx->saved_data["group"] = group;
    return exchanged(x_RH, sends, receives, *reinterpret_cast<const Group*>(group));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto& group = *reinterpret_cast<const Group*>(ctx->saved_data["group"].toInt());
    return {exchanged(grads[0], ctx->saved_data["receives"].toIntVector(),
                      ctx->saved_data["sends"].toIntVector(), group),
            {},
            {},
            {}};
  }
};

}  // namespace

struct AsyncExchange::Trip {
  const AsyncExchange* by = nullptr;
  Counts sends, receives;
  Background::Job there, back;
  at::Tensor grad_RH;  ///< of what left, filled when `back` is over
};

namespace {

using TripPtr = std::shared_ptr<AsyncExchange::Trip>;

/// Forward lets rows leave, backward waits for their gradients.
class Departure : public torch::autograd::Function<Departure> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_RH,
                            const TripPtr& trip) {
    ctx->saved_data["trip"] = ops::held(trip);
    const at::Tensor result_RH = room_for(trip->receives, x_RH);
    trip->there = trip->by->send(x_RH.detach(), trip->sends, result_RH, trip->receives);
    return result_RH;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list&) {
    const auto& trip = ops::held_in<TripPtr>(ctx->saved_data["trip"]);
    std::exchange(trip->back, {}).get();  // a job that is known holds what it sent
    return {std::exchange(trip->grad_RH, {}), {}};
  }
};

/// Forward waits for rows, backward lets their gradients leave.
class Arrival : public torch::autograd::Function<Arrival> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& rows_RH,
                            const TripPtr& trip) {
    ctx->saved_data["trip"] = ops::held(trip);
    std::exchange(trip->there, {}).get();
    return rows_RH.view_as(rows_RH);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto& trip = ops::held_in<TripPtr>(ctx->saved_data["trip"]);
    trip->grad_RH = room_for(trip->sends, grads[0]);
    trip->back = trip->by->send(grads[0], trip->receives, trip->grad_RH, trip->sends);
    // Departure does not read it: it returns what comes back.
    return {grads[0], {}};
  }
};

}  // namespace

AsyncExchange::AsyncExchange(std::unique_ptr<Group> group)
    : group_(std::move(group)), thread_([this] { group_->abort(); }) {}

Background::Job AsyncExchange::send(const at::Tensor& x_RH, const Counts& sends,
                                    const at::Tensor& result_RH, const Counts& receives) const {
  const at::Tensor given_RH = x_RH.contiguous();
  return thread_.run([this, out = parts_for_ranks(given_RH, sends),
                      in = parts_for_ranks(result_RH, receives)] { group_->all_to_all(out, in); },
                     given_RH.device(), {given_RH, result_RH});
}

AsyncExchange::UnderWay AsyncExchange::begin(const at::Tensor& x_RH, const Counts& sends,
                                             const Counts& receives) const {
  auto trip = std::make_shared<Trip>();
  trip->by = this;
  trip->sends = sends;
  trip->receives = receives;
  return {Departure::apply(x_RH, trip), trip};
}

at::Tensor AsyncExchange::end(const UnderWay& under_way) const {
  return Arrival::apply(under_way.rows_RH, under_way.trip);
}

at::Tensor exchange_rows(const at::Tensor& x_RH, const Counts& sends, const Counts& receives,
                         const Group& group) {
  // Groups outlive the graph (they belong to the run), so their address may travel through it.
  return Exchange::apply(x_RH, sends, receives, reinterpret_cast<int64_t>(&group));
}

at::Tensor gather_rows(const at::Tensor& x_RH, const Counts& counts, const Group& group) {
  if (group.is_alone()) return x_RH;
  return Gathering::apply(x_RH, counts, reinterpret_cast<int64_t>(&group), true);
}

at::Tensor scatter_rows_sum(const at::Tensor& x_RH, const Counts& counts, const Group& group) {
  if (group.is_alone()) return x_RH;
  return Gathering::apply(x_RH, counts, reinterpret_cast<int64_t>(&group), false);
}

}  // namespace danlu::parallel
