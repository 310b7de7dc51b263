#include "parallel/context.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.h"
#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/pointwise.h"
#include "parallel/mesh.h"

namespace danlu::parallel {
namespace {

using settings::ContextShape;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- heads for tokens, within a group ----

/// Heads of `all` that a member takes: consecutive ones, or one that several take.
RowRange heads_of(int64_t all, int64_t member, int64_t members) {
  if (all >= members) return {member * all / members, (member + 1) * all / members};
  return {member / (members / all), member / (members / all) + 1};
}

void require_shares(const char* what, int64_t heads, int64_t members, bool may_repeat) {
  if (heads % members == 0 || (may_repeat && members % heads == 0)) return;
  throw ModelError(
      tr("[context] {} {} on a rank cannot be shared by {} that exchange heads for tokens", heads,
         what, members),
      tr("take a --context-parallel-size (of hybrid_cp_algo: a --ulysses-degree-in-cp) that "
         "divides "
         "them, or --context-parallel-algo megatron_cp_algo, which divides no heads"));
}

/// Rows of each member of the group that this rank is in.
std::vector<int64_t> rows_of_members(const Context& context, int64_t tokens) {
  std::vector<int64_t> rows;
  const int64_t first = context.group() * context.shape().ulysses;
  for (int64_t i = 0; i < context.shape().ulysses; ++i)
    rows.push_back(settings::count_context_rows(context.shape(), first + i, tokens));
  return rows;
}

/// [n, heads, D] of this rank's rows, all heads, to [rows of the group, heads of this rank, D].
at::Tensor give_heads(const Context& context, const at::Tensor& x_nHD,
                      const std::vector<int64_t>& rows) {
  const Group& group = context.heads();
  const int64_t members = group.size(), heads = x_nHD.size(1), dim = x_nHD.size(2);
  const int64_t mine = heads_of(heads, group.rank(), members).size();
  Group::Tensors sends, receives;
  for (int64_t i = 0; i < members; ++i) {
    const RowRange part = heads_of(heads, i, members);
    sends.push_back(x_nHD.narrow(1, part.begin, part.size()).contiguous().view({-1}));
  }
  int64_t all = 0;
  for (const int64_t n : rows) all += n;
  at::Tensor result = at::empty({all, mine, dim}, x_nHD.options());
  int64_t begin = 0;
  for (const int64_t n : rows) {
    receives.push_back(result.narrow(0, begin, n).view({-1}));
    begin += n;
  }
  group.all_to_all(sends, receives);
  return result;
}

/// The way back, of `heads` heads in all: those that several members took are summed.
at::Tensor take_heads(const Context& context, const at::Tensor& x_LhD, int64_t heads,
                      const std::vector<int64_t>& rows) {
  const Group& group = context.heads();
  const int64_t members = group.size(), dim = x_LhD.size(2);
  const int64_t n = rows[static_cast<size_t>(group.rank())];
  Group::Tensors sends, receives, parts;
  int64_t begin = 0;
  const at::Tensor whole = x_LhD.contiguous();
  for (int64_t i = 0; i < members; ++i) {
    const int64_t count = rows[static_cast<size_t>(i)];
    sends.push_back(whole.narrow(0, begin, count).view({-1}));
    begin += count;
    parts.push_back(at::empty({n, heads_of(heads, i, members).size(), dim}, x_LhD.options()));
    receives.push_back(parts.back().view({-1}));
  }
  group.all_to_all(sends, receives);
  if (heads >= members) return ops::joined(parts, 1);
  Group::Tensors of_head;
  for (int64_t i = 0; i < members; i += members / heads) {
    const at::Tensor sum = parts[static_cast<size_t>(i)].to(device::wide_type(x_LhD.scalar_type()));
    for (int64_t other = i + 1; other < i + members / heads; ++other)
      ops::add_to(sum, parts[static_cast<size_t>(other)]);
    of_head.push_back(sum.to(x_LhD.scalar_type()));
  }
  return ops::joined(of_head, 1);
}

class HeadsForTokens : public torch::autograd::Function<HeadsForTokens> {
 public:
  /// gives: heads; else takes them back.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t context,
                            const std::vector<int64_t>& rows, int64_t heads, bool gives) {
    // Contexts outlive the graph (they belong to the run), so their address may travel through it.
    ctx->saved_data["context"] = context;
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["gives"] = gives;
    return done(context, x, rows, heads, gives);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {
        done(ctx->saved_data["context"].toInt(), grads[0], ctx->saved_data["rows"].toIntVector(),
             ctx->saved_data["heads"].toInt(), !ctx->saved_data["gives"].toBool()),
        {},
        {},
        {},
        {}};
  }

 private:
  static at::Tensor done(int64_t context, const at::Tensor& x, const std::vector<int64_t>& rows,
                         int64_t heads, bool gives) {
    const auto& of = *reinterpret_cast<const Context*>(context);
    return gives ? give_heads(of, x, rows) : take_heads(of, x, heads, rows);
  }
};

at::Tensor exchange_heads(const Context& context, const at::Tensor& x,
                          const std::vector<int64_t>& rows, int64_t heads, bool gives) {
  return HeadsForTokens::apply(x, reinterpret_cast<int64_t>(&context), rows, heads, gives);
}

// ---- keys and values round the ring, among groups ----

/// Which of this group's queries meet which keys of one chunk; both counted in what they lie in.
ops::Spans spans_between(const std::vector<RowRange>& mine, const RowRange& keys,
                         const ops::Segments& segments, int64_t window) {
  const std::vector<int64_t>& starts = segments.q_starts;
  ops::Spans spans;
  for (size_t s = 1; s < starts.size(); ++s) {
    const bool causal = segments.is_causal(s - 1);
    const int64_t k_begin = std::max(keys.begin, starts[s - 1]);
    const int64_t k_end = std::min(keys.end, starts[s]);
    int64_t before = 0;
    for (const RowRange& chunk : mine) {
      const int64_t q_begin = std::max(chunk.begin, starts[s - 1]);
      const int64_t q_end = std::min(chunk.end, starts[s]);
      const int64_t lead = q_begin - k_begin;
      const bool is_seen =
          !causal || (q_end > k_begin && (window == 0 || lead - (k_end - k_begin) + 1 < window));
      if (k_begin < k_end && q_begin < q_end && is_seen) {
        spans.push_back({before + q_begin - chunk.begin, q_end - q_begin, k_begin - keys.begin,
                         k_end - k_begin, lead, causal});
      }
      before += chunk.size();
    }
  }
  return spans;
}

/// Keys and values of some rows as one run of elements, which is what is sent: all keys [rows, K,
/// D], after them all values [rows, K, Dv].
struct KeyValueShape {
  int64_t heads, key_dim, value_dim;

  static KeyValueShape of(const at::Tensor& k_LKD, const at::Tensor& v_LKD) {
    return {k_LKD.size(1), k_LKD.size(2), v_LKD.size(2)};
  }
  int64_t elements(int64_t rows) const { return rows * heads * (key_dim + value_dim); }
  at::Tensor keys(const at::Tensor& kv) const {
    const int64_t count = kv.numel() / (heads * (key_dim + value_dim));
    return kv.narrow(0, 0, count * heads * key_dim).view({count, heads, key_dim});
  }
  at::Tensor values(const at::Tensor& kv) const {
    const int64_t count = kv.numel() / (heads * (key_dim + value_dim));
    return kv.narrow(0, count * heads * key_dim, count * heads * value_dim)
        .view({count, heads, value_dim});
  }
};

/// What every step of the ring meets, of one group.
class Ring {
 public:
  Ring(const Context& context, const ops::Segments& segments, int64_t window)
      : context_(context), segments_(segments), window_(window) {}

  int64_t steps() const { return context_.shape().ring; }
  /// Whose keys are at hand in a step.
  int64_t owner(int64_t step) const {
    const auto [ring, window] = std::pair(context_.shape().ring, context_.shape().window);
    const int64_t outer = step / window, inner = step % window, mine = context_.group();
    const int64_t of_window = (mine / window - outer + ring / window) % (ring / window);
    return of_window * window + (mine % window - inner + window) % window;
  }
  std::vector<RowRange> chunks(int64_t group) const {
    return settings::chunks_of_group(context_.shape(), group, segments_.q_starts.back());
  }
  int64_t rows(int64_t group) const {
    int64_t count = 0;
    for (const RowRange& chunk : chunks(group)) count += chunk.size();
    return count;
  }
  struct Meeting {
    int64_t first_key, num_keys;
    ops::Spans spans;
  };
  /// Which of a step's two chunks of keys are met.
  std::vector<Meeting> meetings(int64_t step) const {
    std::vector<Meeting> found;
    int64_t before = 0;
    for (const RowRange& keys : chunks(owner(step))) {
      ops::Spans spans = spans_between(chunks(context_.group()), keys, segments_, window_);
      if (!spans.empty()) found.push_back({before, keys.size(), std::move(spans)});
      before += keys.size();
    }
    return found;
  }

  /// Calls visit(step, keys and values) with those of all groups in turn; the next are on their way
  /// meanwhile.
  template <typename Visit>
  void go_round(const KeyValueShape& shape, const at::Tensor& own_kv, const Visit& visit) const {
    const int64_t window = context_.shape().window;
    const auto room = [&](int64_t step) {
      return at::empty({shape.elements(rows(owner(step)))}, own_kv.options());
    };
    at::Tensor at_hand = own_kv, next, next_window;
    Background::Job inner, outer;
    for (int64_t step = 0; step < steps(); ++step) {
      const bool is_last_inner = (step + 1) % window == 0;
      if (step % window == 0 && step + window < steps()) {
        next_window = room(step + window);
        outer = context_.hop(Context::Way::kOuter, at_hand, next_window, true);
      }
      if (!is_last_inner) {
        next = room(step + 1);
        inner = context_.hop(Context::Way::kInner, at_hand, next, false);
      }
      visit(step, at_hand);
      if (step + 1 == steps()) break;
      (is_last_inner ? outer : inner).get();
      at_hand = is_last_inner ? next_window : next;
    }
  }

  /// Gradients go to whom they belong to, one step behind what they are of.
  at::Tensor hop_gradients(const KeyValueShape& shape, int64_t step,
                           const at::Tensor& kv_grad) const {
    const int64_t count = rows(step + 1 < steps() ? owner(step + 1) : context_.group());
    at::Tensor come = at::empty({shape.elements(count)}, kv_grad.options());
    const bool leaves_window = (step + 1) % context_.shape().window == 0;
    context_.hop(Context::Way::kGradients, kv_grad, come, leaves_window).get();
    return come;
  }

 private:
  const Context& context_;
  ops::Segments segments_;
  int64_t window_;
};

c10::optional<at::Tensor> given(const at::Tensor& tensor) {
  if (tensor.defined()) return tensor;
  return c10::nullopt;
}

class RingAttention : public torch::autograd::Function<RingAttention> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q_LQD, const at::Tensor& k_LKD,
                            const at::Tensor& v_LKD, int64_t context, const ops::Segments& segments,
                            double scale, int64_t window, double softcap,
                            const c10::optional<at::Tensor>& slopes_Q) {
    const Ring ring(*reinterpret_cast<const Context*>(context), segments, window);
    const ops::AttentionOptions options{scale, window, slopes_Q.value_or(at::Tensor()), softcap};
    const KeyValueShape shape = KeyValueShape::of(k_LKD, v_LKD);
    const at::Tensor q = q_LQD.contiguous(),
                     kv = at::empty({shape.elements(k_LKD.size(0))}, k_LKD.options());
    shape.keys(kv).copy_(k_LKD);
    shape.values(kv).copy_(v_LKD);
    ops::PartialAttention all;
    ring.go_round(shape, kv, [&](int64_t step, const at::Tensor& at_hand) {
      const at::Tensor keys = shape.keys(at_hand), values = shape.values(at_hand);
      for (const auto& [first, count, spans] : ring.meetings(step)) {
        ops::merge(all, ops::attention_part(q, keys.narrow(0, first, count),
                                            values.narrow(0, first, count), spans, options));
      }
    });
    if (!all.out_NQD.defined())
      all = ops::attention_part(q, shape.keys(kv), shape.values(kv), {}, options);
    const at::Tensor result = all.out_NQD.to(q.scalar_type());
    ctx->save_for_backward({q, kv, result, all.lse_QN, options.alibi_slopes_Q});
    ctx->saved_data["context"] = context;
    ctx->saved_data["segments"] = ops::held(segments);
    ctx->saved_data["shape"] = ops::held(shape);
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["window"] = window;
    ctx->saved_data["softcap"] = softcap;
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &kv = saved[1], &lse_QN = saved[3];
    const Ring ring(*reinterpret_cast<const Context*>(ctx->saved_data["context"].toInt()),
                    ops::held_in<ops::Segments>(ctx->saved_data["segments"]),
                    ctx->saved_data["window"].toInt());
    const ops::AttentionOptions options{ctx->saved_data["scale"].toDouble(),
                                        ctx->saved_data["window"].toInt(), saved[4],
                                        ctx->saved_data["softcap"].toDouble()};
    const auto& shape = ops::held_in<KeyValueShape>(ctx->saved_data["shape"]);
    const at::Tensor out_grad = grads[0].to(lse_QN.scalar_type()).contiguous();
    const at::Tensor delta_QN = ops::attention_delta(out_grad, saved[2]);
    at::Tensor q_grad = at::zeros(q.sizes(), lse_QN.options());
    at::Tensor kv_grad = at::zeros(kv.sizes(), lse_QN.options());
    ring.go_round(shape, kv, [&](int64_t step, const at::Tensor& at_hand) {
      const at::Tensor keys = shape.keys(at_hand), values = shape.values(at_hand);
      for (const auto& [first, count, spans] : ring.meetings(step)) {
        const ops::AttentionGrads part = ops::attention_part_backward(
            q, keys.narrow(0, first, count), values.narrow(0, first, count), spans, options,
            out_grad, lse_QN, delta_QN);
        ops::add_to(q_grad, part.q_NQD);
        ops::add_to(shape.keys(kv_grad).narrow(0, first, count), part.k_MKD);
        ops::add_to(shape.values(kv_grad).narrow(0, first, count), part.v_MKD);
      }
      kv_grad = ring.hop_gradients(shape, step, kv_grad);
    });
    const at::ScalarType dtype = q.scalar_type();
    return {q_grad.to(dtype),
            shape.keys(kv_grad).to(dtype),
            shape.values(kv_grad).to(dtype),
            {},
            {},
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

Context::Context(World& world, const settings::MeshShape& mesh)
    : shape_(mesh.context), rank_(mesh.place_on(arch::Axis::kContext, world.rank())) {
  if (is_alone()) return;
  const settings::RankGroups all = settings::ranks_over(mesh, {arch::Axis::kContext}),
                             heads = settings::neighbours_in(all, shape_.ulysses);
  own_heads_ = world.make_groups(heads);
  own_all_ = world.make_groups(all);
  if (own_heads_) heads_ = own_heads_.get();
  if (shape_.ring > 1) make_links(world, settings::across(heads, all));
}

void Context::make_links(World& world, const settings::RankGroups& rings) {
  const settings::RankGroups windows = settings::neighbours_in(rings, shape_.window);
  const auto link = [&](Way way) -> Link& { return links_[static_cast<size_t>(way)]; };
  link(Way::kInner).group = world.make_groups(windows);
  link(Way::kOuter).group = world.make_groups(settings::across(windows, rings));
  link(Way::kGradients).group = world.make_groups(rings);
  for (Link& each : links_) {
    if (!each.group) continue;
    const Group& group = *each.group;
    each.thread = std::make_unique<Background>([&group] { group.abort(); });
  }
}

Context::~Context() = default;

void Context::abort() const {
  heads_->abort();
  if (own_all_) own_all_->abort();
  for (const Link& link : links_) {
    if (link.group) link.group->abort();
  }
}

Traffic Context::traffic() const {
  Traffic sum = heads_->traffic();
  sum.calls += all().traffic().calls;
  sum.bytes += all().traffic().bytes;
  for (const Link& link : links_) {
    if (!link.group) continue;
    sum.calls += link.group->traffic().calls;
    sum.bytes += link.group->traffic().bytes;
  }
  return sum;
}

Background::Job Context::hop(Way way, const at::Tensor& out, const at::Tensor& in,
                             bool leaves_window) const {
  const Link& link = links_[static_cast<size_t>(way)];
  const int64_t window = shape_.window, ring = shape_.ring;
  // The members of a link of one kind stand in their order; those of gradients are all of the ring.
  const auto neighbour = [&](int64_t step) {
    if (way != Way::kGradients)
      return (link.group->rank() + step + link.group->size()) % link.group->size();
    const int64_t inner = (group() % window + step + window) % window;
    const int64_t outer = group() / window + (leaves_window ? step : 0);
    return (outer * window + ring) % ring + inner;
  };
  return link.thread->run(
      [&group = *link.group, to = neighbour(1), from = neighbour(-1), sent = out.view({-1}),
       received = in.view({-1})] {
        Group::Tensors sends(static_cast<size_t>(group.size())), receives = sends;
        sends[static_cast<size_t>(to)] = sent;
        receives[static_cast<size_t>(from)] = received;
        group.all_to_all(sends, receives);
      },
      out.device(), {out, in});
}

at::Tensor Context::attention(const at::Tensor& q_nQD, const at::Tensor& k_nKD,
                              const at::Tensor& v_nKD, const ops::Segments& given_segments,
                              const ops::AttentionOptions& options) const {
  if (is_alone()) return ops::attention(q_nQD, k_nKD, v_nKD, given_segments, options);
  ops::require_masks(given_segments, options);
  const ops::Segments segments =
      options.chunk > 0 ? ops::in_chunks(given_segments, options.chunk) : given_segments;
  const int64_t members = shape_.ulysses, heads = q_nQD.size(1), kv_heads = k_nKD.size(1);
  at::Tensor q = q_nQD, k = k_nKD, v = v_nKD;
  ops::AttentionOptions of_mine = options;
  of_mine.chunk = 0;
  const std::vector<int64_t> rows = rows_of_members(*this, segments.q_starts.back());
  if (members > 1) {
    require_shares("query heads", heads, members, false);
    require_shares("key/value heads", kv_heads, members, true);
    q = exchange_heads(*this, q, rows, heads, true);
    k = exchange_heads(*this, k, rows, kv_heads, true);
    v = exchange_heads(*this, v, rows, kv_heads, true);
    const RowRange mine = heads_of(heads, heads_->rank(), members);
    if (options.alibi_slopes_Q.defined())
      of_mine.alibi_slopes_Q = options.alibi_slopes_Q.narrow(0, mine.begin, mine.size());
  }
  const at::Tensor seen =
      shape_.ring == 1
          ? ops::attention(q, k, v, segments, of_mine)
          : RingAttention::apply(q, k, v, reinterpret_cast<int64_t>(this), segments, of_mine.scale,
                                 of_mine.window, of_mine.softcap, given(of_mine.alibi_slopes_Q));
  return members > 1 ? exchange_heads(*this, seen, rows, heads, false) : seen;
}

}  // namespace danlu::parallel
