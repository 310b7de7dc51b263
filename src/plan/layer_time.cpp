#include "plan/layer_time.h"

#include <algorithm>
#include <cmath>

#include "arch/attention_size.h"

namespace danlu::plan {
namespace {

/// Adds up operations of one micro-batch of a rank.
class Clock {
 public:
  Clock(const Request& request, const Machine& machine)
      : machine_(machine),
        peak_(machine.peak(request.precision)),
        width_(static_cast<double>(request.element_bytes())) {}

  double width() const { return width_; }
  double product(const Product& product) const {
    return product_seconds(product, machine_, peak_, width_);
  }
  /// An operation that moves so many elements of the passes' type.
  double moved(double elements) const {
    return std::max(elements * width_ / machine_.memory_speed(), machine_.kernel_s);
  }
  double fused_attention(double flops) const {
    const double share = machine_.attention > 0 ? machine_.attention : machine_.reachable;
    return std::max(flops / (peak_ * share), machine_.kernel_s);
  }

 private:
  const Machine& machine_;
  double peak_, width_;
};

/// Rows of a micro-batch and widths of what a rank has of a layer.
struct Widths {
  double rows, cut_rows, hidden, query, key, ffn;
  double value, seen;  ///< of the key heads; of the query heads
};

Widths widths_of(const Request& request) {
  const arch::ModelConfig& model = request.model;
  const auto tensor = static_cast<double>(request.mesh.tensor);
  const auto rows = static_cast<double>(request.pass_tokens());
  const auto dim = static_cast<double>(model.head_dim);
  const auto value_dim = static_cast<double>(arch::value_dim(model));
  return {.rows = rows,
          .cut_rows = request.mesh.sequence_parallel ? rows / tensor : rows,
          .hidden = static_cast<double>(model.hidden_size),
          .query = std::ceil(static_cast<double>(model.num_heads) / tensor) * dim,
          .key = std::ceil(static_cast<double>(model.num_kv_heads) / tensor) * dim,
          .ffn = static_cast<double>(model.ffn_size) / tensor,
          .value = std::ceil(static_cast<double>(model.num_kv_heads) / tensor) * value_dim,
          .seen = std::ceil(static_cast<double>(model.num_heads) / tensor) * value_dim};
}

struct Attention {
  double forward = 0, backward = 0;
};

Attention attention_times(const Request& request, const Clock& clock, const ProgramTraits& program,
                          const Widths& of, double keys) {
  const auto dim = static_cast<double>(request.model.head_dim);
  const auto tokens = static_cast<double>(request.tokens);
  if (!program.keeps_scores) {
    // Half of a causal square is seen; backward makes the scores again: five products for two.
    const double seen = keys < tokens ? keys : tokens / 2;
    const double forward = clock.fused_attention(2 * of.rows * seen * (of.query + of.seen));
    return {forward, 2.5 * forward};
  }
  const double heads = of.query / dim * static_cast<double>(request.micro_batch_size);
  const Product scores{tokens, tokens, dim, heads, clock.width()};
  const Product values{tokens, of.seen / of.query * dim, tokens, heads, clock.width()};
  const double square = tokens * tokens * heads;
  // Softmax reads and writes; dropout too, and a mask of a byte. Backward reads what was kept too.
  const double drop = program.drops ? clock.moved(2.5 * square) : 0;
  const double drop_back = program.drops ? clock.moved(2.5 * square) : 0;
  const double products = clock.product(scores) + clock.product(values);
  return {products + clock.moved(2 * square) + drop,
          2 * products + clock.moved(3 * square) + drop_back};
}

struct Sum {
  double forward = 0, input = 0, weight = 0;
};

/// A linear layer from `in` to `out` features; several of them: each for as many rows.
Sum linear(const Clock& clock, const ProgramTraits& program, double rows, double in, double out,
           bool trained, double several = 1) {
  Sum sum;
  const double each = rows / several;
  sum.forward = clock.product({each, out, in, several, clock.width()});
  sum.input = clock.product({each, in, out, several, clock.width()});
  if (!trained) return sum;
  // Added to the step's sum, in f32: read and written.
  sum.weight = clock.product({out, in, each, several, program.adds_apart ? clock.width() : 8});
  if (program.adds_apart) sum.weight += clock.moved(several * out * in * (1 + 8 / clock.width()));
  return sum;
}

}  // namespace

double product_seconds(const Product& product, const Machine& machine, double peak, double width) {
  const double flops = 2 * product.rows * product.columns * product.inner * product.batch;
  const double tiles = std::max(1.0, product.rows / machine.tile_rows) *
                       std::max(1.0, product.columns / machine.tile_columns) * product.batch;
  const double waves = tiles / machine.units;
  const double written = product.rows * product.columns * product.batch * product.result_bytes;
  const double read = (product.rows + product.columns) * product.inner * product.batch * width;
  const double computed =
      flops / (peak * machine.reachable) * (waves + 0.5) / waves + written / machine.memory_speed();
  return std::max({computed, (read + written) / machine.memory_speed(), machine.kernel_s});
}

LayerTimes own_layer_times(const Request& request, const Machine& machine,
                           const arch::LayerKind& kind) {
  LayerTimes times;
  times.products = kind.cost(request.model, pass_of(request)).operations /
                   (machine.peak(request.precision) * machine.reachable);
  times.forward = times.backward_input = times.products_back = times.products;
  if (!request.adapters) times.backward_weight = times.products;
  return times;
}

namespace {

/// Rows and widths of a layer's feed-forward parts: an MLP, or experts and the one for all tokens.
struct ExpertWidths {
  double sent = 0, given = 0;  ///< rows that a rank takes to experts, that its own are given
  double experts = 0, ffn = 0, shared = 0, all = 0;
};

ExpertWidths expert_widths(const Request& request) {
  const arch::ExpertConfig& experts = request.model.experts;
  const auto tensor = static_cast<double>(request.mesh.tensor);
  return {.sent = static_cast<double>(request.sent_rows()),
          .given = static_cast<double>(request.expert_rows()),
          .experts = static_cast<double>(experts.count / request.expert_owners()),
          .ffn = static_cast<double>(experts.ffn_size) /
                 static_cast<double>(request.mesh.expert_tensor()),
          .shared = static_cast<double>(experts.shared_ffn_size) / tensor,
          .all = static_cast<double>(experts.count)};
}

/// Rows of the hidden size that go where their experts want them: taken, sorted where they come
/// from other ranks, scaled, summed. Backward moves as many and one more for the weights.
double moved_rows(const Request& request, const ExpertWidths& of) {
  return 6 * of.sent + (request.mesh.expert > 1 ? 4 * of.given : 0);
}

/// Calls add(inputs, outputs) for each product of attention with a weight.
template <typename Add>
void add_attention_products(const Request& request, const Widths& of, const Add& add) {
  if (const auto& latent = request.model.latent) {
    const auto q_rank = static_cast<double>(latent->q_rank),
               kv_rank = static_cast<double>(latent->kv_rank),
               rope = static_cast<double>(latent->rope_dim);
    if (q_rank > 0) add(of.hidden, q_rank);
    add(q_rank > 0 ? q_rank : of.hidden, of.query);
    add(of.hidden, kv_rank + rope);
    add(kv_rank,
        of.seen * (1 + static_cast<double>(latent->nope_dim) / static_cast<double>(latent->v_dim)));
  } else {
    add(of.hidden, of.query + of.key + of.value);
  }
  add(of.seen, of.hidden);
}

}  // namespace

LayerTimes layer_times(const Request& request, const Machine& machine, const ProgramTraits& program,
                       int64_t keys, bool sparse) {
  const Clock clock(request, machine);
  const Widths of = widths_of(request);
  const bool trained = !request.adapters;
  LayerTimes times;
  Sum products;
  const auto add_rows = [&](double rows, double in, double out, double several) {
    const Sum sum = linear(clock, program, rows, in, out, trained, several);
    products.forward += sum.forward;
    products.input += sum.input;
    products.weight += sum.weight;
    return sum.forward;
  };
  const auto add = [&](double in, double out) { return add_rows(of.rows, in, out, 1); };
  add_attention_products(request, of, add);
  double activated = of.rows * of.ffn, moved = 0;  // elements
  if (sparse) {
    const ExpertWidths experts = expert_widths(request);
    add(of.hidden, experts.all);
    add_rows(experts.given, of.hidden, 2 * experts.ffn, experts.experts);
    times.gated = add_rows(experts.given, experts.ffn, of.hidden, experts.experts);
    if (experts.shared > 0) {
      add(of.hidden, 2 * experts.shared);
      times.gated += add(experts.shared, of.hidden);
    }
    activated = experts.given * experts.ffn + of.rows * experts.shared;
    moved = moved_rows(request, experts) * of.hidden;
  } else {
    add(of.hidden, (request.model.is_gated ? 2 : 1) * of.ffn);
    times.gated = add(of.ffn, of.hidden);
  }
  const Attention core = attention_times(request, clock, program, of, static_cast<double>(keys));
  // Read and written: norms; rotated queries and keys; sums with the residual, which read twice,
  // and their masks; gate and up, which become one.
  times.norms = 2 * clock.moved(2 * of.cut_rows * of.hidden);
  // In steps: the halves swapped (negated, joined), two products, their sum.
  const double rotary =
      clock.moved((program.rotates_in_steps ? 10 : 2) * of.rows * (of.query + of.key));
  const double sums = 2 * clock.moved((program.drops ? 3.5 : 3) * of.cut_rows * of.hidden);
  times.activation = clock.moved((program.gates_in_steps ? 5 : 3) * activated);
  times.attention = core.forward;
  times.gated += times.activation;
  times.products = products.forward;
  times.attention_back = core.backward;
  times.products_back = products.input;
  const double sorted = sparse ? clock.moved(moved) : 0;
  times.forward =
      products.forward + core.forward + times.norms + rotary + sums + times.activation + sorted;
  // Gradients come beside what was kept: norms and the gated activation read both; a sum hands its
  // gradient on, but for what dropout masks.
  const double sums_back = program.drops ? 2 * clock.moved(2.5 * of.cut_rows * of.hidden)
                                         : 2 * clock.moved(3 * of.cut_rows * of.hidden);
  times.backward_input = products.input + core.backward +
                         2 * clock.moved(3 * of.cut_rows * of.hidden) + rotary + sums_back +
                         clock.moved((program.gates_in_steps ? 13 : 5) * activated) + sorted;
  times.backward_weight = products.weight;
  return times;
}

namespace {

/// Operations of a tower's part one after another.
class TowerClock {
 public:
  TowerClock(const Request& request, const Machine& machine, const TowerBackward& backward)
      : clock_(request, machine), backward_(backward) {}

  void product(double rows, double in, double out) {
    const Sum sum = linear(clock_, {}, rows, in, out, backward_.trains);
    times_.products += sum.forward;
    times_.forward += sum.forward;
    if (!backward_.goes_through) return;
    times_.products_back += sum.input;
    times_.backward_input += sum.input;
    times_.backward_weight += sum.weight;
  }
  /// Elements that an operation moves in the forward and in the backward.
  double moved(double forward, double back) {
    const double seconds = clock_.moved(forward);
    times_.forward += seconds;
    if (backward_.goes_through) times_.backward_input += clock_.moved(back);
    return seconds;
  }
  void attention(double rows, double keys, double width) {
    times_.attention = clock_.fused_attention(4 * rows * keys * width);
    times_.forward += times_.attention;
    if (!backward_.goes_through) return;
    times_.attention_back = 2.5 * times_.attention;  // the scores again: five products for two
    times_.backward_input += times_.attention_back;
  }
  LayerTimes& times() { return times_; }

 private:
  Clock clock_;
  TowerBackward backward_;
  LayerTimes times_;
};

}  // namespace

LayerTimes block_times(const Request& request, const Machine& machine, int64_t keys,
                       const TowerBackward& backward) {
  const arch::VisionConfig& vision = *request.model.vision;
  const auto rows = static_cast<double>(request.pass_patches()),
             width = static_cast<double>(vision.width),
             tensor = static_cast<double>(request.mesh.tensor);
  const double inside = width / tensor, ffn = static_cast<double>(vision.ffn_size) / tensor;
  TowerClock clock(request, machine, backward);
  clock.product(rows, width, 3 * inside);
  clock.product(rows, inside, width);
  clock.product(rows, width, (vision.is_gated ? 2 : 1) * ffn);
  const double before = clock.times().products;
  clock.product(rows, ffn, width);
  LayerTimes& times = clock.times();
  times.gated = times.products - before;
  clock.attention(rows, static_cast<double>(keys), inside);
  // They take what they take in a layer of the decoder: norms, rotated heads, sums, the activation.
  times.norms = 2 * clock.moved(2 * rows * width, 3 * rows * width);
  clock.moved(2 * rows * width, 3 * rows * width);
  clock.moved(2 * rows * 2 * inside, 2 * rows * 2 * inside);
  for (int sum = 0; sum < 2; ++sum) clock.moved(3 * rows * width, 3 * rows * width);
  times.activation =
      clock.moved((vision.is_gated ? 3 : 2) * rows * ffn, (vision.is_gated ? 5 : 3) * rows * ffn);
  times.gated += times.activation;
  return times;
}

LayerTimes patches_times(const Request& request, const Machine& machine,
                         const TowerBackward& backward) {
  const arch::VisionConfig& vision = *request.model.vision;
  // Pixels have no gradient.
  LayerTimes times;
  const Clock clock(request, machine);
  const Sum sum = linear(clock, {}, static_cast<double>(request.pass_patches()),
                         static_cast<double>(vision.patch_columns()),
                         static_cast<double>(vision.width), backward.trains);
  times.forward = times.products = sum.forward;
  times.backward_weight = sum.weight;
  return times;
}

LayerTimes merger_times(const Request& request, const Machine& machine,
                        const TowerBackward& backward) {
  const arch::VisionConfig& vision = *request.model.vision;
  const auto merge = static_cast<double>(vision.merge_size * vision.merge_size),
             merged = static_cast<double>(vision.merged_width()),
             tensor = static_cast<double>(request.mesh.tensor);
  const double rows = static_cast<double>(request.pass_patches()) / merge;
  TowerClock clock(request, machine, backward);
  clock.product(rows, merged, merged / tensor);
  clock.product(rows, merged / tensor, static_cast<double>(request.model.hidden_size));
  clock.moved(2 * rows * merged, 3 * rows * merged);
  clock.moved(2 * rows * merged / tensor, 3 * rows * merged / tensor);
  return clock.times();
}

EndTimes embedding_times(const Request& request, const Machine& machine) {
  const Clock clock(request, machine);
  const Widths of = widths_of(request);
  EndTimes times;
  times.forward = clock.moved(2 * of.rows * of.hidden);
  if (!request.adapters) times.backward_weight = clock.moved(5 * of.rows * of.hidden);
  return times;
}

EndTimes joining_times(const Request& request, const Machine& machine,
                       const ProgramTraits& program) {
  const Clock clock(request, machine);
  const Widths of = widths_of(request);
  const Sum product =
      linear(clock, program, of.rows, 2 * of.hidden / static_cast<double>(request.mesh.tensor),
             of.hidden, !request.adapters);
  // Two norms, whose results are written beside one another.
  const double norms = clock.moved(2 * 2 * of.cut_rows * of.hidden);
  return {.forward = product.forward + norms,
          .backward_input = product.input + norms * 1.5,
          .backward_weight = product.weight,
          .products = product.forward + product.input + product.weight};
}

EndTimes head_times(const Request& request, const Machine& machine, const ProgramTraits& program) {
  const Clock clock(request, machine);
  const Widths of = widths_of(request);
  const double vocab =
      static_cast<double>(request.head_rows()) / static_cast<double>(request.mesh.tensor);
  const Sum product = linear(clock, program, of.rows, of.hidden, vocab, !request.adapters);
  EndTimes times;
  // The largest, the sum and the target's; then the gradient over the logits. In steps, as f32:
  // widened, the largest, less it, the exponential, the sum, their ratio; scaled, narrowed.
  const double logits = of.rows * vocab;
  times.forward = product.forward +
                  clock.moved((program.wide_loss ? 38 / clock.width() : 2) * logits) +
                  clock.moved(2 * of.cut_rows * of.hidden);
  times.backward_input = product.input +
                         clock.moved((program.wide_loss ? 14 / clock.width() : 2) * logits) +
                         clock.moved(3 * of.cut_rows * of.hidden);
  times.backward_weight = product.weight;
  times.products = product.forward + product.input + product.weight;
  return times;
}

}  // namespace danlu::plan
