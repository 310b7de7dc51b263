// ops/routing.h: how a router of a mixture-of-experts layer sends each token to a few experts, and
// the terms of the loss that keep routers in balance.
//
// Rules and formulas: docs/experts.md. Both are worked out on the host, whatever the device of the
// logits: products of experts need the numbers of rows there. Equal scores are decided by the
// expert's number, so that every rank and every processor chooses alike.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace danlu::ops {

enum class RouterScore {
  kSoftmax,
  kSigmoid,
  kSparseMixer,  ///< two picks, each weighed by a softmax over the logits near the largest
};

struct RoutingRule {
  RouterScore score = RouterScore::kSoftmax;
  int64_t per_token = 1;  ///< experts that a token is sent to; sparsemixer: 2
  /// Experts stand in `groups` equal groups, and a token may choose among those of the best
  /// `chosen_groups`. A group is as good as its best choice, or as the sum of its two best.
  int64_t groups = 1, chosen_groups = 1;
  bool sums_two_of_group = false;
  bool norm = false;      ///< weights are divided by their sum
  double norm_add = 0.0;  ///< what is added to that sum
  double weight_scale = 1.0;
  double jitter = 0.0;  ///< sparsemixer: logits within twice this part of the largest are near
};

struct Routing {
  at::Tensor experts_NK;  ///< int64 on the host, the best choice first; the caller's own
  at::Tensor weights_NK;  ///< f32 (f64 of f64) on the logits' device
};

/// What training changes of a router's choice.
struct TrainedChoice {
  /// int64 [N, K] on the host: the choice has been made, only weights are worked out. Undefined: by
  /// the rule.
  at::Tensor picks_NK = {};
  /// int64 [N] on the host: sparsemixer draws each pick by the softmax that weighs it, from hashes
  /// of a token's key, `salt`, the pick and the expert. A pick that is not the largest has, but for
  /// one in four, a third of its weight (Heun's method: arXiv:2310.00811 §4). Undefined: it takes
  /// the largest.
  at::Tensor keys_N = {};
  uint64_t salt = 0;
};

/// The experts of each token, and the weights of what they give. The choice is by score plus
/// bias_E (f32 [E], or undefined), the weight by the score alone.
/// Shapes  logits_NE [N, E], f32 or f64. Grad  through the weights to the logits; through drawn
///         picks as if they had their whole weight, as sparsemixer's own backward.
/// Errors  ModelError for shapes that do not fit, more picks than there are to choose from, groups
///         that do not divide the experts.
Routing route(const at::Tensor& logits_NE, const at::Tensor& bias_E, const RoutingRule& rule,
              const TrainedChoice& choice = {});

/// The `per_token` best experts of each row by score alone, as route() decides: int64 [N, K] on the
/// host. Without gradient.
at::Tensor best_experts(const at::Tensor& logits_NE, int64_t per_token);

/// Tokens [begin, end) of a pass that belong to one segment.
struct SegmentPart {
  int64_t begin = 0, end = 0, segment = 0;
};

/// Sinkhorn's balance ends after so many rounds at the latest, because it takes 100,000 or never
/// ends where an expert's logits are far from the others', and picks hardly change after these.
constexpr int64_t kSinkhornRounds = 100;
/// Sinkhorn's balance of each segment by itself: factors of rows and columns that make all tokens,
/// and all experts, have even sums of exp(logit), until the columns' change by 1e-4 on the average
/// (Megatron-LM core/transformer/moe/moe_utils.py), or for kSinkhornRounds. f64 [N, E] on the host;
/// tokens in no part: 0.
at::Tensor sinkhorn(const at::Tensor& logits_NE, const std::vector<SegmentPart>& parts);
/// The `per_token` experts of each row with the most of that balance, largest first: int64 [N, K]
/// on the host. Balance may say nothing, as of a single token, of which each expert gets the same:
/// what agrees in steps of 1/16384 of an even share goes by logits, then by the expert's number.
at::Tensor balanced_picks(const at::Tensor& balanced_NE, const at::Tensor& logits_NE,
                          int64_t per_token);

/// 1 + eps · u for each element of N tokens' rows, u uniform in [-1, 1) by a hash of (keys[n],
/// salt, the column): f64 [N, columns] on the host. keys_N: int64 on the host.
at::Tensor jitter_factors(const at::Tensor& keys_N, uint64_t salt, int64_t columns, double eps);
/// x_NH times those factors, in the wider type. The backward makes the factors again: nothing but
/// the keys is kept. By ATen's operators. Errors  ModelError unless each row has a key.
at::Tensor jittered(const at::Tensor& x_NH, const at::Tensor& keys_N, uint64_t salt, double eps);

/// Makes picks -1 of which an expert has too many: of each segment it keeps ceil(length · K / E ·
/// factor), those with the largest weights or, by_position, of the first tokens. Weights that
/// are the same in steps of 1/1024 go by their order, so that rounding decides nothing. The weights
/// of others stay as they are. Returns how many were dropped. Shapes  experts_NK int64 [N, K] on
/// the host, changed; weights_NK [N, K]. REQUIRES: no segment has
///         two parts.
int64_t drop_beyond(double factor, bool by_position, int64_t experts,
                    const std::vector<SegmentPart>& parts, const std::vector<int64_t>& lengths,
                    const at::Tensor& experts_NK, const at::Tensor& weights_NK);

/// How many of a segment's tokens go to each expert, as a part of its tokens: f64 [S, E] on the
/// host. A segment's numbers add up to the picks per token. Several layers may share one and add to
/// it; the backward reads what is there then.
struct ExpertLoad {
  at::Tensor parts_SE;
};

struct BalanceTerm {
  RouterScore score =
      RouterScore::kSoftmax;  ///< sigmoid: a token's scores are divided by their sum
  std::vector<SegmentPart> parts;
  std::vector<int64_t> lengths;  ///< of whole segments, of which ranks may have parts; [S]
  std::vector<double> factors;   ///< of each segment's term; [S]
  std::shared_ptr<const ExpertLoad> load;
};
/// The sum over segments s of factor_s · Σ_e load_se · P_se. P_se is the mean score of expert e
/// over the segment's tokens; tokens that are other ranks' are left out of the sum, not of its
/// divisor. Shapes  logits_NE [N, E]; tokens in no part count nowhere. Result: a scalar of the
///         logits' type. Grad  through the scores; the load is a constant.
at::Tensor balance_term(const at::Tensor& logits_NE, const BalanceTerm& term);

/// Σ_s factor_s · P_se of each expert: f64 [E] on the host. Without gradient.
at::Tensor mean_scores(const at::Tensor& logits_NE, const BalanceTerm& term);

/// The sum over segments s of factor_s · mean over the segment's tokens of logsumexp(logits)².
/// `load` and `score` are not read. Else as balance_term.
at::Tensor z_term(const at::Tensor& logits_NE, const BalanceTerm& term);

}  // namespace danlu::ops
