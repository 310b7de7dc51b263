#include "ops/routing.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "device/parallel.h"
#include "device/sent.h"
#include "ops/autograd.h"
#include "ops/check.h"

namespace danlu::ops {
namespace {

using torch::autograd::AutogradContext;
using List = torch::autograd::variable_list;

constexpr int64_t kTokensAtATime = 64;

/// What one token's row is worked out in.
template <typename T>
struct Row {
  std::vector<T> scores, choice, grads;
  std::vector<int64_t> order, groups;
  std::vector<char> is_open;

  explicit Row(size_t experts)
      : scores(experts), choice(experts), grads(experts), order(experts), is_open(experts) {}
};

template <typename T>
void softmax(const T* logits, size_t count, T* scores) {
  const T largest = *std::max_element(logits, logits + count);
  T sum = 0;
  for (size_t e = 0; e < count; ++e) sum += scores[e] = std::exp(logits[e] - largest);
  for (size_t e = 0; e < count; ++e) scores[e] /= sum;
}

template <typename T>
void router_scores(RouterScore score, const T* logits, size_t count, T* scores) {
  if (score != RouterScore::kSigmoid) return softmax(logits, count, scores);
  for (size_t e = 0; e < count; ++e) scores[e] = 1 / (1 + std::exp(-logits[e]));
}

/// The first `count` of `order` become the indices of the largest values, largest first.
template <typename T>
void take_best(const std::vector<T>& values, int64_t count, std::vector<int64_t>& order) {
  std::iota(order.begin(), order.end(), int64_t{0});
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) {
    const T left = values[static_cast<size_t>(a)], right = values[static_cast<size_t>(b)];
    return left > right || (left == right && a < b);
  });
}

/// Takes the choices of all groups but the best out.
template <typename T>
void close_groups(const RoutingRule& rule, Row<T>& row) {
  const auto groups = static_cast<size_t>(rule.groups);
  const size_t size = row.choice.size() / groups;
  std::vector<T> worth(groups);
  for (size_t g = 0; g < groups; ++g) {
    T first = -std::numeric_limits<T>::infinity(), second = first;
    for (size_t e = g * size; e < (g + 1) * size; ++e) {
      const T value = row.choice[e];
      if (value > first) {
        second = std::exchange(first, value);
      } else {
        second = std::max(second, value);
      }
    }
    worth[g] = rule.sums_two_of_group ? first + second : first;
  }
  row.groups.resize(groups);
  take_best(worth, rule.chosen_groups, row.groups);
  for (size_t at = static_cast<size_t>(rule.chosen_groups); at < groups; ++at) {
    const auto closed = static_cast<size_t>(row.groups[at]);
    std::fill_n(row.choice.begin() + static_cast<std::ptrdiff_t>(closed * size), size,
                -std::numeric_limits<T>::infinity());
  }
}

/// One pick of Phi-3.5-MoE's router: the largest logit that is not `taken`, and the softmax over
/// the logits near it. Source: sparsemixer's form for evaluation.
template <typename T>
int64_t sparse_pick(const RoutingRule& rule, const T* logits, int64_t taken, Row<T>& row) {
  const size_t count = row.scores.size();
  int64_t best = -1;
  for (size_t e = 0; e < count; ++e) {
    if (static_cast<int64_t>(e) == taken) continue;
    if (best < 0 || logits[e] > logits[best]) best = static_cast<int64_t>(e);
  }
  const T largest = logits[best];
  T sum = 0;
  for (size_t e = 0; e < count; ++e) {
    const T divisor = std::max(std::abs(logits[e]), largest);
    row.is_open[e] = static_cast<int64_t>(e) != taken &&
                     !((largest - logits[e]) / divisor > static_cast<T>(2 * rule.jitter));
    row.scores[e] = row.is_open[e] ? std::exp(logits[e] - largest) : T{0};
    sum += row.scores[e];
  }
  for (T& score : row.scores) score /= sum;
  return best;
}

/// Uniform in (0, 1), by the hash of a token's draw and an expert or a column.
double uniform(uint64_t key, uint64_t number) {
  return (static_cast<double>(mix64(key, number) >> 11) + 0.5) * 0x1p-53;
}

/// The draws of a token's sparsemixer.
struct Draws {
  uint64_t key;
  uint64_t of_pick(size_t pick) const { return mix64(key, pick); }
};

/// sparse_pick by the weights that it gives, not the largest: the largest logit that is open plus
/// Gumbel noise. Sets the weight, of which a drawn pick may have a third.
template <typename T>
int64_t drawn_pick(const RoutingRule& rule, const T* logits, int64_t taken, uint64_t key,
                   Row<T>& row, T* weight) {
  const int64_t largest = sparse_pick(rule, logits, taken, row);
  int64_t drawn = largest;
  double best = -std::numeric_limits<double>::infinity();
  for (size_t e = 0; e < row.scores.size(); ++e) {
    if (!row.is_open[e]) continue;
    const double value = static_cast<double>(logits[e]) - std::log(-std::log(uniform(key, e)));
    if (value > best) {
      best = value;
      drawn = static_cast<int64_t>(e);
    }
  }
  const bool is_whole = drawn == largest || uniform(key, row.scores.size()) > 0.75;
  *weight = row.scores[static_cast<size_t>(drawn)] * (is_whole ? T{1} : static_cast<T>(0.3333));
  return drawn;
}

template <typename T>
struct Matrix {
  const T* logits;
  size_t tokens, experts;
  const T* of(size_t token) const { return logits + token * experts; }
};

template <typename T>
Matrix<T> matrix_of(const at::Tensor& logits_NE) {
  return {logits_NE.data_ptr<T>(), static_cast<size_t>(logits_NE.size(0)),
          static_cast<size_t>(logits_NE.size(1))};
}

template <typename T>
void choose(const at::Tensor& logits_NE, const at::Tensor& bias_E, const RoutingRule& rule,
            const TrainedChoice& choice, const at::Tensor& experts_NK,
            const at::Tensor& weights_NK) {
  const Matrix<T> logits = matrix_of<T>(logits_NE);
  const T* const bias = bias_E.defined() ? bias_E.data_ptr<T>() : nullptr;
  const auto picks = static_cast<size_t>(rule.per_token);
  const int64_t* const keys = choice.keys_N.defined() ? choice.keys_N.data_ptr<int64_t>() : nullptr;
  const int64_t* const made =
      choice.picks_NK.defined() ? choice.picks_NK.data_ptr<int64_t>() : nullptr;
  int64_t* const experts = experts_NK.data_ptr<int64_t>();
  T* const weights = weights_NK.data_ptr<T>();
  device::parallel_for(0, logits_NE.size(0), kTokensAtATime, [&](int64_t begin, int64_t end) {
    Row<T> row(logits.experts);
    for (auto n = static_cast<size_t>(begin); n < static_cast<size_t>(end); ++n) {
      int64_t* const chosen = experts + n * picks;
      T* const weight = weights + n * picks;
      if (rule.score == RouterScore::kSparseMixer) {
        for (size_t k = 0; k < picks; ++k) {
          const int64_t taken = k == 0 ? int64_t{-1} : chosen[0];
          if (keys) {
            const Draws draws{mix64(static_cast<uint64_t>(keys[n]), choice.salt)};
            chosen[k] = drawn_pick(rule, logits.of(n), taken, draws.of_pick(k), row, weight + k);
            continue;
          }
          chosen[k] = sparse_pick(rule, logits.of(n), taken, row);
          weight[k] = row.scores[static_cast<size_t>(chosen[k])];
        }
        continue;
      }
      router_scores(rule.score, logits.of(n), logits.experts, row.scores.data());
      // Sigmoids of large logits are all 1: where nothing is added the logits themselves decide.
      const bool logits_decide = rule.score == RouterScore::kSigmoid && !bias && rule.groups == 1;
      for (size_t e = 0; e < logits.experts; ++e) {
        row.choice[e] = logits_decide ? logits.of(n)[e] : row.scores[e] + (bias ? bias[e] : T{0});
      }
      if (rule.groups > 1) close_groups(rule, row);
      if (made) {
        std::copy_n(made + n * picks, picks, row.order.begin());
      } else {
        take_best(row.choice, rule.per_token, row.order);
      }
      T sum = static_cast<T>(rule.norm_add);
      for (size_t k = 0; k < picks; ++k) {
        chosen[k] = row.order[k];
        sum += weight[k] = row.scores[static_cast<size_t>(chosen[k])];
      }
      for (size_t k = 0; k < picks; ++k)
        weight[k] = (rule.norm ? weight[k] / sum : weight[k]) * static_cast<T>(rule.weight_scale);
    }
  });
}

/// Adds to `grads` what comes through a softmax with these scores, of which closed ones are 0.
template <typename T>
void through_softmax(const std::vector<T>& scores, const std::vector<T>& d_scores, T* grads) {
  T sum = 0;
  for (size_t e = 0; e < scores.size(); ++e) sum += scores[e] * d_scores[e];
  for (size_t e = 0; e < scores.size(); ++e) grads[e] += scores[e] * (d_scores[e] - sum);
}

template <typename T>
void choose_backward(const at::Tensor& logits_NE, const at::Tensor& experts_NK,
                     const RoutingRule& rule, const at::Tensor& d_weights_NK,
                     const at::Tensor& d_logits_NE) {
  const Matrix<T> logits = matrix_of<T>(logits_NE);
  const auto picks = static_cast<size_t>(rule.per_token);
  const int64_t* const experts = experts_NK.data_ptr<int64_t>();
  const T* const d_weights = d_weights_NK.data_ptr<T>();
  T* const d_logits = d_logits_NE.data_ptr<T>();
  device::parallel_for(0, logits_NE.size(0), kTokensAtATime, [&](int64_t begin, int64_t end) {
    Row<T> row(logits.experts);
    for (auto n = static_cast<size_t>(begin); n < static_cast<size_t>(end); ++n) {
      const int64_t* const chosen = experts + n * picks;
      const T* const d_weight = d_weights + n * picks;
      T* const to = d_logits + n * logits.experts;
      if (rule.score == RouterScore::kSparseMixer) {
        for (size_t k = 0; k < picks; ++k) {
          sparse_pick(rule, logits.of(n), k == 0 ? int64_t{-1} : chosen[0], row);
          std::fill(row.grads.begin(), row.grads.end(), T{0});
          row.grads[static_cast<size_t>(chosen[k])] = d_weight[k];
          through_softmax(row.scores, row.grads, to);
        }
        continue;
      }
      router_scores(rule.score, logits.of(n), logits.experts, row.scores.data());
      T sum = static_cast<T>(rule.norm_add), product = 0;
      for (size_t k = 0; k < picks; ++k) {
        const T score = row.scores[static_cast<size_t>(chosen[k])];
        sum += score;
        product += score * d_weight[k];
      }
      std::fill(row.grads.begin(), row.grads.end(), T{0});
      for (size_t k = 0; k < picks; ++k) {
        const T own = rule.norm ? d_weight[k] / sum - product / (sum * sum) : d_weight[k];
        row.grads[static_cast<size_t>(chosen[k])] = own * static_cast<T>(rule.weight_scale);
      }
      if (rule.score == RouterScore::kSoftmax) {
        through_softmax(row.scores, row.grads, to);
      } else {
        for (size_t e = 0; e < logits.experts; ++e)
          to[e] = row.grads[e] * row.scores[e] * (1 - row.scores[e]);
      }
    }
  });
}

/// Calls run(T{}) for the logits' type.
template <typename Run>
void in_type_of(const at::Tensor& logits_NE, const Run& run) {
  if (logits_NE.scalar_type() == at::kDouble) return run(double{});
  require(logits_NE.scalar_type() == at::kFloat, "routing", "logits are f32 or f64, got ",
          logits_NE.scalar_type());
  run(float{});
}

at::Tensor on_host(const at::Tensor& x) { return x.detach().cpu().contiguous(); }

Routing picked(const at::Tensor& logits_NE, const at::Tensor& bias_E, const RoutingRule& rule,
               const TrainedChoice& choice = {}) {
  const at::Tensor logits = on_host(logits_NE);
  const at::Tensor bias = bias_E.defined() ? on_host(bias_E).to(logits.scalar_type()) : bias_E;
  Routing result{at::empty({logits.size(0), rule.per_token}, at::kLong),
                 at::empty({logits.size(0), rule.per_token}, logits.options())};
  in_type_of(logits, [&](auto type) {
    choose<decltype(type)>(logits, bias, rule, choice, result.experts_NK, result.weights_NK);
  });
  result.weights_NK = device::sent(result.weights_NK, logits_NE.device());
  return result;
}

class OwnRouting : public torch::autograd::Function<OwnRouting> {
 public:
  static List forward(AutogradContext* ctx, const at::Tensor& logits_NE, const at::Tensor& bias_E,
                      const RoutingRule& rule, const TrainedChoice& choice) {
    const Routing result =
        picked(logits_NE, bias_E.numel() > 0 ? bias_E : at::Tensor(), rule, choice);
    ctx->mark_non_differentiable({result.experts_NK});
    ctx->save_for_backward({logits_NE});
    ctx->saved_data["experts"] = result.experts_NK.clone();  // callers take picks out
    ctx->saved_data["rule"] = held(rule);
    return {result.experts_NK, result.weights_NK};
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    const at::Tensor logits_NE = ctx->get_saved_variables()[0];
    const at::Tensor logits = on_host(logits_NE), d_weights = on_host(grads[1]);
    const at::Tensor d_logits = at::zeros(logits.sizes(), logits.options());
    in_type_of(logits, [&](auto type) {
      choose_backward<decltype(type)>(logits, ctx->saved_data["experts"].toTensor(),
                                      held_in<RoutingRule>(ctx->saved_data["rule"]), d_weights,
                                      d_logits);
    });
    return {device::sent(d_logits, logits_NE.device()), {}, {}, {}};
  }
};

void check_choice(const at::Tensor& logits_NE, const RoutingRule& rule,
                  const TrainedChoice& choice) {
  const bool mixes = rule.score == RouterScore::kSparseMixer;
  const at::Tensor &picks = choice.picks_NK, &keys = choice.keys_N;
  require(
      !picks.defined() || (!mixes && picks.scalar_type() == at::kLong &&
                           picks.sizes() == at::IntArrayRef({logits_NE.size(0), rule.per_token})),
      "routing", "picks that are made are int64 [", logits_NE.size(0), ", ", rule.per_token,
      "], and not sparsemixer's");
  require(!keys.defined() || (mixes && keys.scalar_type() == at::kLong && keys.dim() == 1 &&
                              keys.size(0) == logits_NE.size(0)),
          "routing", "sparsemixer draws by one int64 key for each of ", logits_NE.size(0),
          " tokens");
}

void check_rule(const at::Tensor& logits_NE, const at::Tensor& bias_E, const RoutingRule& rule) {
  require(logits_NE.dim() == 2, "routing", "logits ", logits_NE.sizes(), " must be [N, E]");
  const int64_t experts = logits_NE.size(1);
  require(!bias_E.defined() || (bias_E.dim() == 1 && bias_E.size(0) == experts), "routing",
          "a bias for the choice among ", experts, " experts is [", experts, "]");
  require(rule.groups >= 1 && experts % rule.groups == 0 && rule.chosen_groups >= 1 &&
              rule.chosen_groups <= rule.groups,
          "routing", rule.chosen_groups, " of ", rule.groups, " groups of ", experts, " experts");
  const int64_t open = experts / rule.groups * rule.chosen_groups;
  require(rule.per_token >= 1 && rule.per_token <= open, "routing", rule.per_token, " of ", open,
          " experts");
  require(rule.score != RouterScore::kSparseMixer || (rule.per_token == 2 && rule.groups == 1),
          "routing", "sparsemixer makes two picks among all experts");
}

/// Which term of which segment: the factor that its tokens' sums get.
struct Segment {
  size_t begin, end;
  double factor;  ///< divided by the number of the whole segment's tokens
  size_t index;
};

std::vector<Segment> segments_of(const BalanceTerm& term) {
  std::vector<Segment> segments;
  for (const SegmentPart& part : term.parts) {
    const auto s = static_cast<size_t>(part.segment);
    if (part.begin == part.end || term.factors[s] == 0) continue;
    segments.push_back({static_cast<size_t>(part.begin), static_cast<size_t>(part.end),
                        term.factors[s] / static_cast<double>(term.lengths[s]), s});
  }
  return segments;
}

/// Calls visit(token, segment) in the order of tokens.
template <typename Visit>
void for_each_token(const std::vector<Segment>& segments, const Visit& visit) {
  for (const Segment& segment : segments) {
    for (size_t n = segment.begin; n < segment.end; ++n) visit(n, segment);
  }
}

/// One kind of term: the value of a token, and its gradient.
struct TokenTerm {
  BalanceTerm term;
  bool is_z = false;

  template <typename T>
  double value(const Matrix<T>& logits, const double* load) const {
    double sum = 0;
    std::vector<double> wide(logits.experts), scores(logits.experts);
    for_each_token(segments_of(term), [&](size_t n, const Segment& segment) {
      std::copy_n(logits.of(n), logits.experts, wide.begin());
      if (is_z) {
        const double lse = log_of_sum(wide);
        sum += segment.factor * lse * lse;
        return;
      }
      mean_scores(wide, scores);
      const double* const parts = load + segment.index * logits.experts;
      for (size_t e = 0; e < logits.experts; ++e) sum += segment.factor * parts[e] * scores[e];
    });
    return sum;
  }

  template <typename T>
  void add_scores(const Matrix<T>& logits, double* means) const {
    std::vector<double> wide(logits.experts), scores(logits.experts);
    for_each_token(segments_of(term), [&](size_t n, const Segment& segment) {
      std::copy_n(logits.of(n), logits.experts, wide.begin());
      mean_scores(wide, scores);
      for (size_t e = 0; e < logits.experts; ++e) means[e] += segment.factor * scores[e];
    });
  }

  template <typename T>
  void gradient(const Matrix<T>& logits, const double* load, double scale, T* to) const {
    std::vector<double> wide(logits.experts), scores(logits.experts), d_scores(logits.experts);
    std::vector<double> grads(logits.experts);
    for_each_token(segments_of(term), [&](size_t n, const Segment& segment) {
      std::copy_n(logits.of(n), logits.experts, wide.begin());
      const double factor = scale * segment.factor;
      std::fill(grads.begin(), grads.end(), 0.0);
      if (is_z) {
        const double lse = log_of_sum(wide);
        for (size_t e = 0; e < grads.size(); ++e)
          grads[e] = 2 * factor * lse * std::exp(wide[e] - lse);
      } else {
        const double* const parts = load + segment.index * logits.experts;
        for (size_t e = 0; e < grads.size(); ++e) d_scores[e] = factor * parts[e];
        mean_scores(wide, scores);
        through_scores(wide, scores, d_scores, grads);
      }
      for (size_t e = 0; e < grads.size(); ++e)
        to[n * logits.experts + e] += static_cast<T>(grads[e]);
    });
  }

 private:
  static double log_of_sum(const std::vector<double>& logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - largest);
    return largest + std::log(sum);
  }

  /// A token's scores, which sum to 1.
  void mean_scores(const std::vector<double>& logits, std::vector<double>& scores) const {
    router_scores(term.score, logits.data(), logits.size(), scores.data());
    if (term.score != RouterScore::kSigmoid) return;
    const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    for (double& score : scores) score /= sum;
  }

  void through_scores(const std::vector<double>& logits, const std::vector<double>& scores,
                      const std::vector<double>& d_scores, std::vector<double>& grads) const {
    if (term.score != RouterScore::kSigmoid) return through_softmax(scores, d_scores, grads.data());
    double sum = 0, dot = 0;
    for (size_t e = 0; e < logits.size(); ++e) {
      sum += 1 / (1 + std::exp(-logits[e]));
      dot += d_scores[e] * scores[e];
    }
    for (size_t e = 0; e < logits.size(); ++e) {
      const double sigmoid = 1 / (1 + std::exp(-logits[e]));
      grads[e] = (d_scores[e] - dot) / sum * sigmoid * (1 - sigmoid);
    }
  }
};

class OwnTerm : public torch::autograd::Function<OwnTerm> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits_NE,
                            const TokenTerm& term) {
    ctx->save_for_backward({logits_NE});
    ctx->saved_data["term"] = held(term);
    return value_of(logits_NE, term);
  }
  static at::Tensor value_of(const at::Tensor& logits_NE, const TokenTerm& term) {
    const at::Tensor logits = on_host(logits_NE), value = at::zeros({}, logits.options());
    in_type_of(logits, [&](auto type) {
      using T = decltype(type);
      value.fill_(term.value(matrix_of<T>(logits), load_of(term)));
    });
    return device::sent(value, logits_NE.device());
  }
  static List backward(AutogradContext* ctx, const List& grads) {
    const at::Tensor logits_NE = ctx->get_saved_variables()[0];
    const auto& term = held_in<TokenTerm>(ctx->saved_data["term"]);
    const at::Tensor logits = on_host(logits_NE);
    const at::Tensor d_logits = at::zeros(logits.sizes(), logits.options());
    const double scale = grads[0].cpu().to(at::kDouble).item<double>();
    in_type_of(logits, [&](auto type) {
      using T = decltype(type);
      term.gradient(matrix_of<T>(logits), load_of(term), scale, d_logits.data_ptr<T>());
    });
    return {device::sent(d_logits, logits_NE.device()), {}};
  }

 private:
  static const double* load_of(const TokenTerm& term) {
    return term.is_z ? nullptr : term.term.load->parts_SE.data_ptr<double>();
  }
};

at::Tensor summed(const at::Tensor& logits_NE, const TokenTerm& term) {
  const size_t segments = term.term.lengths.size();
  require(logits_NE.dim() == 2 && term.term.factors.size() == segments, "routing", segments,
          " segments with ", term.term.factors.size(), " factors for logits ", logits_NE.sizes());
  for (const SegmentPart& part : term.term.parts) {
    require(part.begin <= part.end && part.end <= logits_NE.size(0) && part.segment >= 0 &&
                part.segment < static_cast<int64_t>(segments),
            "routing", "tokens ", part.begin, " to ", part.end, " of segment ", part.segment,
            " do not fit logits ", logits_NE.sizes());
  }
  require(term.is_z || (term.term.load &&
                        term.term.load->parts_SE.size(0) == static_cast<int64_t>(segments) &&
                        term.term.load->parts_SE.size(1) == logits_NE.size(1)),
          "routing", "the load must be [", segments, ", ", logits_NE.size(1), "]");
  return needs_no_graph({&logits_NE}) ? OwnTerm::value_of(logits_NE, term)
                                      : OwnTerm::apply(logits_NE, term);
}

}  // namespace

Routing route(const at::Tensor& logits_NE, const at::Tensor& bias_E, const RoutingRule& rule,
              const TrainedChoice& choice) {
  check_rule(logits_NE, bias_E, rule);
  check_choice(logits_NE, rule, choice);
  if (needs_no_graph({&logits_NE})) return picked(logits_NE, bias_E, rule, choice);
  // libtorch 1.13 takes no undefined tensors here: nothing is a bias of length 0.
  const List result = OwnRouting::apply(
      logits_NE, bias_E.defined() ? bias_E.detach() : at::empty({0}, logits_NE.options()), rule,
      choice);
  return {result[0], result[1]};
}

at::Tensor best_experts(const at::Tensor& logits_NE, int64_t per_token) {
  return picked(logits_NE, {}, {.per_token = per_token}).experts_NK;
}

at::Tensor balance_term(const at::Tensor& logits_NE, const BalanceTerm& term) {
  return summed(logits_NE, {term});
}

at::Tensor mean_scores(const at::Tensor& logits_NE, const BalanceTerm& term) {
  const at::Tensor logits = on_host(logits_NE), means_E = at::zeros({logits.size(1)}, at::kDouble);
  in_type_of(logits, [&](auto type) {
    using T = decltype(type);
    TokenTerm{term}.add_scores(matrix_of<T>(logits), means_E.data_ptr<double>());
  });
  return means_E;
}

at::Tensor z_term(const at::Tensor& logits_NE, const BalanceTerm& term) {
  return summed(logits_NE, {term, /*is_z=*/true});
}

}  // namespace danlu::ops
