#include "measure/ops_table.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rotary.h"
#include "ops/swiglu.h"

namespace danlu::measure {
namespace {

using bench::Work;
using Timed = std::function<void()>;

double size_of(at::ScalarType type) { return static_cast<double>(c10::elementSize(type)); }

at::Tensor random(at::IntArrayRef shape, at::ScalarType type, double scale = 1.0) {
  return at::randn(shape, at::kFloat).mul_(scale).to(type);
}

at::Tensor leaf(at::Tensor tensor) { return std::move(tensor.set_requires_grad(true)); }

/// Operands of one run. In a step they come from memory, or from caches that other operations have
/// filled: here there are so many sets, used in turn, that a cache smaller than
/// OpShapes::cold_bytes has lost them; but for what a forward touches before its backward is timed.
struct Operands {
  std::vector<at::Tensor> in;
  at::Tensor out;
};

class Ring {
 public:
  Ring(const std::function<std::vector<at::Tensor>()>& make, double cold_bytes) {
    double bytes = 0;
    do {
      sets_.push_back({make(), {}});
      for (const at::Tensor& tensor : sets_.back().in)
        bytes += static_cast<double>(tensor.nbytes());
    } while (bytes < cold_bytes || sets_.size() < 2);
  }
  Operands& next() {
    Operands& set = sets_[turn_++ % sets_.size()];
    set.out.reset();
    for (at::Tensor& tensor : set.in)
      if (tensor.defined() && tensor.is_leaf()) tensor.mutable_grad().reset();
    return set;
  }

 private:
  std::vector<Operands> sets_;
  size_t turn_ = 0;
};

using Forward = std::function<at::Tensor(const std::vector<at::Tensor>& in)>;
using Make = std::function<std::vector<at::Tensor>()>;

OpMaker maker(const std::string& name, const char* group, at::ScalarType type, const Work& work,
              std::function<std::function<Timed()>()> prepare) {
  return {name, group, type, [=] { return Op{name, group, type, work, prepare(), /*tokens=*/0}; },
          /*shares_model=*/false};
}

/// Times the call of `forward`, without a graph unless its gradients are made in it.
OpMaker forward_op(const OpShapes& s, const std::string& name, const char* group,
                   at::ScalarType type, const Work& work, const Make& make, const Forward& forward,
                   bool makes_gradients = false) {
  return maker(name, group, type, work, [=, cold_bytes = s.cold_bytes]() -> std::function<Timed()> {
    auto ring = std::make_shared<Ring>(make, cold_bytes);
    return [=]() -> Timed {
      Operands& set = ring->next();
      return [&set, ring, forward, makes_gradients] {
        const at::AutoGradMode mode(makes_gradients);
        set.out = forward(set.in);
      };
    };
  });
}

/// Times the backward pass alone: its graph is made before. Which operands get a gradient, make()
/// says.
OpMaker backward_op(const OpShapes& s, const std::string& name, const char* group,
                    at::ScalarType type, const Work& work, const Make& make,
                    const Forward& forward) {
  return maker(name, group, type, work, [=, cold_bytes = s.cold_bytes]() -> std::function<Timed()> {
    auto ring = std::make_shared<Ring>(make, cold_bytes);
    auto d_y = std::make_shared<at::Tensor>();
    return [=]() -> Timed {
      Operands& set = ring->next();
      const at::AutoGradMode mode(true);
      set.out = forward(set.in);
      if (!d_y->defined()) *d_y = random(set.out.sizes(), set.out.scalar_type());
      return [&set, ring, d_y] { set.out.backward(*d_y); };
    };
  });
}

void add_linear(std::vector<OpMaker>& ops, const OpShapes& s, at::ScalarType type, int64_t in,
                int64_t out) {
  const std::string name = fmt::format("linear_{}x{}", in, out);
  const char* group = bench::kProducts;
  const double n = static_cast<double>(s.tokens), i = static_cast<double>(in),
               o = static_cast<double>(out), size = size_of(type);
  const double flops = 2 * n * i * o;
  const bool bf16 = type == at::kBFloat16;
  const double scale = 1 / std::sqrt(i);
  const auto linear = [](const auto& t) { return ops::linear(t[0], t[1]); };
  ops.push_back(forward_op(
      s, name + ".forward", group, type, {flops, bf16, size * (n * i + o * i), size * n * o},
      [=] { return std::vector{random({s.tokens, in}, type), random({out, in}, type, scale)}; },
      linear));
  ops.push_back(backward_op(
      s, name + ".input_grad", group, type, {flops, bf16, size * (n * o + o * i), size * n * i},
      [=] {
        return std::vector{leaf(random({s.tokens, in}, type)), random({out, in}, type, scale)};
      },
      linear));
  // The gradient is summed as in training: into f32, which is read and written.
  ops.push_back(backward_op(
      s, name + ".weight_grad", group, type,
      {flops, bf16, size * n * (o + i) + 4 * o * i, 4 * o * i},
      [=] {
        return std::vector{random({s.tokens, in}, type), leaf(random({out, in}, type, scale)),
                           at::zeros({out, in}, at::kFloat)};
      },
      [](const auto& t) {
        const auto sum = std::make_shared<ops::MainGrad>();
        sum->sum = t[2];
        return ops::linear(t[0], t[1], {}, {.weight = sum});
      }));
}

void add_attention(std::vector<OpMaker>& ops, const OpShapes& s, at::ScalarType type,
                   int64_t sequences, int64_t length) {
  const std::string name = fmt::format("attention_{}x{}", sequences, length);
  const int64_t tokens = sequences * length, size_of_head = s.hidden / s.heads;
  ops::Segments segments{{0}, {0}};
  for (int64_t i = 1; i <= sequences; ++i) {
    segments.q_starts.push_back(i * length);
    segments.k_starts.push_back(i * length);
  }
  const double pairs = static_cast<double>(sequences) * static_cast<double>(length) *
                       static_cast<double>(length + 1) / 2;
  // Two products forward; backward five, the scores made again among them.
  const double product = 2 * pairs * static_cast<double>(s.hidden);
  const double queries = size_of(type) * static_cast<double>(tokens * s.hidden);
  const double keys = size_of(type) * static_cast<double>(2 * tokens * s.kv_heads * size_of_head);
  const bool bf16 = type == at::kBFloat16;
  const auto make = [=](bool grads) {
    std::vector<at::Tensor> qkv = {random({tokens, s.heads, size_of_head}, type),
                                   random({tokens, s.kv_heads, size_of_head}, type),
                                   random({tokens, s.kv_heads, size_of_head}, type)};
    for (at::Tensor& tensor : qkv) tensor.set_requires_grad(grads);
    return qkv;
  };
  ops::AttentionOptions options;
  options.scale = 1 / std::sqrt(static_cast<double>(size_of_head));
  const Forward attend = [=](const auto& t) {
    return ops::attention(t[0], t[1], t[2], segments, options);
  };
  ops.push_back(forward_op(
      s, name + ".forward", bench::kAttention, type, {2 * product, bf16, queries + keys, queries},
      [=] { return make(false); }, attend));
  ops.push_back(backward_op(
      s, name + ".backward", bench::kAttention, type,
      {5 * product, bf16, 3 * queries + keys, queries + keys}, [=] { return make(true); }, attend));
}

void add_rows(std::vector<OpMaker>& ops, const OpShapes& s, at::ScalarType type) {
  const char* group = bench::kElements;
  const double n = static_cast<double>(s.tokens), size = size_of(type);
  const double row = n * static_cast<double>(s.hidden), inner = n * static_cast<double>(s.ffn);
  const auto normed = [=](bool grads) {
    std::vector<at::Tensor> in = {random({s.tokens, s.hidden}, type), random({s.hidden}, type)};
    for (at::Tensor& tensor : in) tensor.set_requires_grad(grads);
    return in;
  };
  const Forward norm = [](const auto& t) { return ops::rms_norm(t[0], t[1], 1e-6); };
  ops.push_back(forward_op(
      s, "rms_norm.forward", group, type, {4 * row, false, size * row, size * row},
      [=] { return normed(false); }, norm));
  ops.push_back(backward_op(
      s, "rms_norm.backward", group, type, {10 * row, false, 2 * size * row, size * row},
      [=] { return normed(true); }, norm));
  const auto gated = [=](bool grads) {
    std::vector<at::Tensor> in = {random({s.tokens, s.ffn}, type), random({s.tokens, s.ffn}, type)};
    for (at::Tensor& tensor : in) tensor.set_requires_grad(grads);
    return in;
  };
  const Forward gate = [](const auto& t) { return ops::swiglu(t[0], t[1]); };
  ops.push_back(forward_op(
      s, "swiglu.forward", group, type, {5 * inner, false, 2 * size * inner, size * inner},
      [=] { return gated(false); }, gate));
  ops.push_back(backward_op(
      s, "swiglu.backward", group, type, {12 * inner, false, 3 * size * inner, 2 * size * inner},
      [=] { return gated(true); }, gate));
  const int64_t size_of_head = s.hidden / s.heads;
  const at::Tensor inv_freq = at::full({size_of_head / 2}, 10000.0, at::kDouble)
                                  .pow(at::arange(0, size_of_head / 2, at::kDouble)
                                           .mul_(-2.0 / static_cast<double>(size_of_head)))
                                  .to(at::kFloat);
  const ops::RotaryTable table = ops::rotary_table(at::arange(s.tokens, at::kLong), inv_freq, 1.0);
  const auto heads = [=](bool grads) {
    return std::vector{random({s.tokens, s.heads, size_of_head}, type).set_requires_grad(grads)};
  };
  const Forward turn = [=](const auto& t) { return ops::rotary(t[0], table); };
  const Work turning{3 * row, false, size * row, size * row};
  ops.push_back(
      forward_op(s, "rotary.forward", group, type, turning, [=] { return heads(false); }, turn));
  ops.push_back(
      backward_op(s, "rotary.backward", group, type, turning, [=] { return heads(true); }, turn));
}

void add_vocabulary(std::vector<OpMaker>& ops, const OpShapes& s, at::ScalarType type) {
  const double size = size_of(type), n = static_cast<double>(s.tokens),
               h = static_cast<double>(s.hidden), v = static_cast<double>(s.vocab),
               head = static_cast<double>(s.head_tokens);
  const auto ids = [=](int64_t count) { return at::randint(s.vocab, {count}, at::kLong); };
  const auto table = [=] { return random({s.vocab, s.hidden}, type, 0.02); };
  const auto sum_of = [](const at::Tensor& sum) {
    const auto main = std::make_shared<ops::MainGrad>();
    main->sum = sum;
    return main;
  };
  ops.push_back(forward_op(
      s, "embedding.forward", bench::kElements, type, {0, false, size * n * h, size * n * h},
      [=] { return std::vector{ids(s.tokens), table()}; },
      [](const auto& t) { return ops::embedding(t[0], t[1]); }));
  ops.push_back(backward_op(
      s, "embedding.backward", bench::kElements, type,
      {n * h, false, (size + 4) * n * h, 4 * n * h},
      [=] {
        return std::vector{ids(s.tokens), leaf(table()),
                           at::zeros({s.vocab, s.hidden}, at::kFloat)};
      },
      [=](const auto& t) { return ops::embedding(t[0], t[1], sum_of(t[2])); }));
  // Logits, and both gradients, in one call.
  ops.push_back(forward_op(
      s, "head_cross_entropy", bench::kProducts, type,
      {6 * head * h * v, type == at::kBFloat16, size * (v * h + head * h) + 4 * v * h,
       4 * v * h + size * head * h},
      [=] {
        return std::vector{leaf(random({s.head_tokens, s.hidden}, type)), leaf(table()),
                           ids(s.head_tokens), at::zeros({s.vocab, s.hidden}, at::kFloat)};
      },
      [=](const auto& t) {
        ops::HeadOptions options;
        options.main_grad = sum_of(t[3]);
        return ops::head_cross_entropy(t[0], t[1], t[2], options).sum;
      },
      /*makes_gradients=*/true));
}

}  // namespace

std::vector<OpMaker> ops_of_a_step(const OpShapes& s, at::ScalarType type) {
  std::vector<OpMaker> ops;
  add_linear(ops, s, type, s.hidden, s.hidden);
  add_linear(ops, s, type, s.hidden, s.hidden / s.heads * s.kv_heads);
  add_linear(ops, s, type, s.hidden, s.ffn);
  add_linear(ops, s, type, s.ffn, s.hidden);
  add_vocabulary(ops, s, type);
  add_attention(ops, s, type, s.sequences, s.tokens / s.sequences);
  add_attention(ops, s, type, 1, s.long_tokens);
  add_rows(ops, s, type);
  return ops;
}

}  // namespace danlu::measure
