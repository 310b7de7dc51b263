// settings/objective_config.h: what a training minimises, as data. Sources of the losses: TRL,
// LLaMA-Factory, MindSpeed-LLM and the papers (arXiv 2305.18290 DPO, 2310.12036 IPO, 2405.14734
// SimPO, 2401.08417 CPO, 2403.07691 ORPO, 2402.01306 KTO).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "arch/score_head.h"
#include "base/json.h"
#include "settings/ranking_tokens.h"
#include "settings/reinforcement.h"

namespace danlu::settings {

enum class ObjectiveKind {
  kLanguage,       ///< cross-entropy of the next token
  kPreference,     ///< of two answers one is to be likelier
  kUnpaired,       ///< answers that are liked, and others that are not
  kProcessReward,  ///< whether each step of an answer is right
  kReward,         ///< of two answers one is to be worth more, by a head that gives a number
  kClasses,        ///< what a text's label says, by a head that gives numbers for a text
  kEmbedding,      ///< vectors of texts that fit each other are to be near
  kRanking,        ///< which documents go with a query
  kPolicy,         ///< what rewards say of answers that the model draws itself
  kDistillation    ///< the distributions of a teacher, over answers of rows or of the model's own
};

/// The loss of a pair as a function of its margin m, the chosen answer's lead:
/// kSigmoid −(1−ε) log σ(m) − ε log σ(−m); kHinge max(0, 1−m); kSquare (m − 1/2)² / β², which is
/// IPO's (D − 1/(2β))²; kOdds −β log σ of the logarithm of the ratio of odds.
enum class PairLoss { kSigmoid, kHinge, kSquare, kOdds };

/// A term that keeps the chosen answer likely.
enum class LikelihoodTerm {
  kNone,
  kAnswerMeans,   ///< per pair the mean over its answer's tokens
  kAnswerTokens,  ///< the mean over all tokens of chosen answers of the step
  kAllTokens      ///< the same with those of prompts
};

/// m = β D − γ, D the difference of the two answers' log-probabilities (with a reference: of their
/// ratios to its).
struct PreferenceConfig {
  PairLoss loss = PairLoss::kSigmoid;
  bool has_reference = true;
  bool averages = false;  ///< log-probabilities of a token, on average, and not of the answer
  double beta = 0.1;
  double gamma = 0;
  double label_smoothing = 0;  ///< ε
  bool robust = false;         ///< of the sigmoid: ((1−ε)…, with + ε) / (1 − 2 ε)
  LikelihoodTerm likelihood = LikelihoodTerm::kNone;
  double likelihood_weight = 0;
};

/// w (1 − σ(±β (x − z))), x the logarithm of the ratio to the reference's probability.
struct UnpairedConfig {
  double beta = 0.1;
  double liked_weight = 1, disliked_weight = 1;
  bool measures_drift = true;  ///< z is KTO's estimate of the divergence; false: 0
};

/// Cross-entropy of the token that a step should have, from the logits at the step's placeholder.
struct ProcessRewardConfig {
  std::string placeholder = "ки";
  /// The tokens among which the logits are compared; empty: the whole vocabulary.
  std::vector<std::string> reward_tokens;
  /// A head of two numbers in place of the vocabulary's: 1 is that of the first reward token, which
  /// right steps have, 0 of the second (TRL, transformers' *ForTokenClassification).
  bool has_classes = false;
};

/// −log σ(chosen − rejected − margin) + centring (chosen + rejected)², of what a reward model gives
/// for each answer (Bradley-Terry; the second term: arXiv 2312.09244).
struct RewardConfig {
  double centring = 0;
};

/// A loss of the head's numbers x and a text's label y: kOneClass −log softmax(x)_y; kClasses the
/// mean over classes of −(y log σ(x) + (1−y) log σ(−x)); kNumbers the mean over labels of (x − y)²
/// (transformers' *ForSequenceClassification).
struct ClassesConfig {
  /// As the line says it; with the model read, as its head has it.
  arch::LabelProblem problem = arch::LabelProblem::kByNumber;
  int64_t labels = 0;  ///< 0: as many as the model's head has
};

/// What vectors of texts are to be, at length one; c is the product of two of them, their cosine.
/// kContrast (InfoNCE) −log of the positive text's part in Σ exp(c / temperature) over the texts
/// that an anchor is compared with; kCosine (c − label)²; kMargin, d = 1 − c, 0.5 (label d² +
/// (1 − label) max(0, 0.5 − d)²); kHardMargin the sum of d² and max(0, 0.5 − d)² over those pairs
/// of a batch that are farther than its nearest other pair, or nearer than its farthest fitting
/// one. Sources: ms-swift, sentence-transformers.
struct EmbeddingConfig {
  enum class Loss { kContrast, kCosine, kMargin, kHardMargin };
  Loss loss = Loss::kContrast;
  double temperature = 0.1;
  /// An anchor is compared with the texts of all anchors of its micro-batch, over all ranks of the
  /// data axis.
  bool in_batch = true;
  int64_t hard_negatives = 0;  ///< so many of each row: the first, or taken again; 0: all
  bool masks_fakes = false;    ///< texts nearer than the positive by fake_margin are left out
  double fake_margin = 0.1;
  bool among_anchors = false;    ///< an anchor is compared with the other anchors, too
  bool among_positives = false;  ///< its positive is compared with all other texts, too
  /// Matryoshka (arXiv 2205.13147): the loss is the sum over these, of vectors' first `size`
  /// numbers, at length one again. Empty: of whole vectors.
  struct Prefix {
    int64_t size = 0;
    double weight = 1;
  };
  std::vector<Prefix> prefixes;
  /// Whether the texts of a micro-batch are compared with each other: it must then stay one pass.
  bool compares_batch() const {
    return loss == Loss::kHardMargin || (loss == Loss::kContrast && in_batch);
  }
  bool has_pairs() const { return loss != Loss::kContrast; }
};

/// "infonce", "cosine_similarity", "contrastive", "online_contrastive": ms-swift's names.
const char* embedding_loss_name(EmbeddingConfig::Loss loss);

/// What is learnt of a query's documents: whether each goes with it, or which of them does.
enum class RankingLoss { kPointwise, kListwise };

/// With x the score of a document: kPointwise −log σ(x) of one that goes with its query, −log σ(−x)
/// of another; kListwise −log softmax(x / temperature) of the one that does (ms-swift's
/// pointwise_reranker and listwise_reranker).
struct RankingConfig {
  RankingLoss loss = RankingLoss::kPointwise;
  /// Scores are the difference of two tokens' logits; false: a head of one score gives them.
  bool by_tokens = true;
  RankingTokens tokens = {};
  double temperature = 1;   ///< of kListwise
  int64_t least_texts = 2;  ///< of kListwise: what a list has, that one is learnt from
  /// Documents of a row that are taken, drawn where it has more.
  int64_t most_positives = 1, most_negatives = 7;
};

/// The divergence of a teacher's distributions and the model's at each token that is learnt (GKD,
/// arXiv 2306.13649), and beside it −log p of the token itself.
struct DistillationConfig {
  /// 0: forward KL, KL(teacher‖model); 1: reverse KL, KL(model‖teacher); between: JSD.
  double beta = 0.5;
  double temperature = 0.9;  ///< both logits are divided by it
  int64_t topk = 0;          ///< > 0: over the K tokens that are likeliest to the teacher
  double sft_alpha = 0;      ///< the weight of −log p, of rows' own answers
  double lmbda = 0.5;        ///< the fraction of on-policy steps: the model answers itself
};

struct ObjectiveConfig {
  ObjectiveKind kind = ObjectiveKind::kLanguage;
  std::string name;  ///< as users call it: dpo, simpo, …; "" of language modelling
  /// The loss of a token is times its probability, through which no gradient goes (DFT, arXiv
  /// 2508.05629); kLanguage's alone.
  bool weighs_by_probability = false;
  /// The loss of a token is times (H/3)^α, H the entropy of the kTopOfEntropy likeliest tokens at
  /// its place as a distribution of their own, through which no gradient goes (EAFT); nothing: it
  /// is not. kLanguage's alone.
  std::optional<double> entropy_power;
  /// Times this, KL(Q‖P) of the model as it was, or of `reference`, and the model is added to the
  /// loss of each token (ASFT, beside weighs_by_probability); 0: nothing is. kLanguage's alone.
  double anchor_weight = 0;
  static constexpr int64_t kTopOfEntropy = 20;
  /// Whether the tokens of kLanguage count otherwise than alike.
  bool weighs_tokens() const { return weighs_by_probability || entropy_power.has_value(); }
  /// The loss of a step is the mean of its micro-batches' means, not the mean over its targets;
  /// kLanguage's alone, where answers are learnt.
  bool averages_micro_batches = false;
  /// Whether adapters have their dropout. Not by default where log-probabilities are compared with
  /// those of passes that have none.
  bool drops = true;
  PreferenceConfig preference;
  UnpairedConfig unpaired;
  ProcessRewardConfig process;
  RewardConfig reward;
  ClassesConfig classes;
  EmbeddingConfig embedding;
  RankingConfig ranking;
  DistillationConfig distillation;
  /// What rewards are told; kDistillation has of it how answers are drawn.
  Reinforcement policy;
  /// A directory of the reference's weights, of kDistillation the teacher's; empty: the model
  /// without its adapters, or where it has none what it was before.
  std::filesystem::path reference;
  /// Adapters that are trained further are not part of the reference, which is the model below
  /// them; false: they are, as they were.
  bool base_is_reference = false;
  /// What it gives to the answers is computed before the training, and it is not held in it.
  bool precomputes_reference = false;

  /// Whether steps learn from answers that the model draws itself.
  bool draws() const {
    return is_rewarded() || (kind == ObjectiveKind::kDistillation && distillation.lmbda > 0);
  }
  /// Whether answers are judged by rewards.
  bool is_rewarded() const { return kind == ObjectiveKind::kPolicy; }
  /// Whether samples have two texts of max_length each, or of embeddings at least so many.
  bool has_two_texts() const {
    return kind == ObjectiveKind::kPreference || kind == ObjectiveKind::kUnpaired ||
           kind == ObjectiveKind::kReward || kind == ObjectiveKind::kEmbedding;
  }
  bool has_reference() const {
    return kind == ObjectiveKind::kUnpaired || kind == ObjectiveKind::kDistillation ||
           (kind == ObjectiveKind::kLanguage && anchor_weight > 0) ||
           (kind == ObjectiveKind::kPreference && preference.has_reference) ||
           (kind == ObjectiveKind::kPolicy && policy.has_reference());
  }
};

/// What of it a step's numbers depend on but the reference's weights; null of language modelling.
Json objective_identity(const ObjectiveConfig& config);

}  // namespace danlu::settings
