// arch/model_config.h: what a model is, read from config.json: the only description of an
// architecture that the rest of Danlu sees.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "arch/axes.h"
#include "arch/encoder.h"
#include "arch/score_head.h"
#include "arch/vision_config.h"
#include "base/dtype.h"
#include "base/json.h"

namespace danlu::arch {

enum class RopeScaling { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

struct RopeConfig {
  bool enabled = true;  ///< false: no rotary embedding (ALiBi models)
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< llama3
  int64_t original_max_positions = 0;                    ///< llama3, yarn, dynamic
  double beta_fast = 32.0, beta_slow = 1.0;              ///< yarn
  std::optional<double> attention_factor;                ///< yarn; default 0.1 ln(factor) + 1
  std::optional<double> mscale, mscale_all_dim;          ///< yarn (deepseek)
  /// In models that see pictures (Qwen2-VL's M-RoPE): how many pairs of a head are rotated by a
  /// token's position in time, by its row and by its column. Empty: each token has one position.
  std::vector<int64_t> mrope_section;
  /// How many of a head's first dimensions are rotated; 0: all of them.
  int64_t rotated_dims = 0;
  /// Dimensions 2j and 2j+1 are rotated together; false: j and j + half.
  bool is_pairwise = false;
  /// longrope: a divisor of each pair's frequency, for sequences up to original_max_positions and
  /// for longer ones.
  std::vector<double> short_factors, long_factors;
  /// longrope: cosines and sines are multiplied by these; default sqrt(1 + ln s / ln original).
  std::optional<double> short_mscale, long_mscale;
};

/// Whether a sequence's length, once it is above original_max_positions, changes the angles of all
/// its positions: what was turned for a shorter one does not fit then.
bool turns_by_length(const RopeConfig& rope);

/// How the query, key and value weights lie on disk (and in Danlu's parameters, which keep HF
/// names).
enum class QkvLayout {
  kSeparate,     ///< three matrices
  kThirds,       ///< one matrix, rows q | k | v (Baichuan W_pack)
  kInterleaved,  ///< one matrix, per KV group: its query heads, its key, its value (InternLM2 wqkv)
  kJoined,       ///< one matrix, rows q | k | v of unequal sizes (Phi-3, ChatGLM)
};

/// How a router turns logits into scores.
enum class RouterScore {
  kSoftmax,
  kSigmoid,
  kSparseMixer,  ///< Phi-3.5-MoE: two picks, each a softmax over the logits near the largest
};

/// Feed-forward layers made of experts, of which a router picks a few for each token.
struct ExpertConfig {
  int64_t count = 0;            ///< routed experts in a sparse layer; 0: a dense model
  int64_t per_token = 0;        ///< experts each token is sent to
  int64_t ffn_size = 0;         ///< width of one routed expert
  int64_t shared_ffn_size = 0;  ///< width of the expert that every token passes; 0: none
  bool shared_gate = false;     ///< the shared expert's output is scaled by a sigmoid gate
  bool norm_topk = false;       ///< the weights of the chosen experts are made to sum to 1
  /// Which layers have experts; size num_layers, empty in a dense model. The others are dense, of
  /// ModelConfig::ffn_size.
  std::vector<bool> sparse_layer;
  std::optional<double> aux_loss_coef;  ///< factor of the load-balancing loss
  RouterScore score = RouterScore::kSoftmax;
  /// A vector [count] is added to the scores for the choice alone; the weights are without it.
  bool has_choice_bias = false;
  /// Experts stand in `groups` equal groups, and a token may choose among those of the best
  /// `chosen_groups`.
  int64_t groups = 1, chosen_groups = 1;
  /// A group is as good as the sum of its two best choices; false: as its best score.
  bool sums_two_of_group = false;
  double weight_scale = 1.0;  ///< factor of the weights, after they were made to sum to 1
  bool scales_input = false;  ///< the weight multiplies an expert's input instead of its output
  double jitter = 0.0;        ///< sparsemixer: how near to the largest logit is near, by half
  /// Layers after the last that predict tokens further ahead (multi-token prediction).
  int64_t prediction_layers = 0;
};

/// Multi-head latent attention (DeepSeek-V2): queries and keys-with-values come from short vectors.
/// A head's query and key have nope_dim dimensions without rotary embedding, then rope_dim with it;
/// the latter are one for all key heads.
struct LatentConfig {
  int64_t q_rank = 0;  ///< of the queries' vector; 0: queries come from the hidden state
  int64_t kv_rank = 0;
  int64_t nope_dim = 0, rope_dim = 0, v_dim = 0;
  double norm_eps = 1e-6;  ///< of the norms of both vectors
};

enum class NormKind {
  kRms,        ///< x / rms(x) * w
  kRmsOffset,  ///< x / rms(x) * (1 + w)
  kLayer,      ///< (x - mean) / deviation * w + b
};

/// The activation of a feed-forward layer.
enum class Activation {
  kSilu,
  kGelu,      ///< with the error function
  kGeluTanh,  ///< its approximation by tanh
};

struct LayerKind;

struct ModelConfig {
  std::string family;  ///< registry name: "llama", "qwen2", "mixtral", …
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_size = 0;       ///< of dense layers
  ExpertConfig experts;       ///< mixture-of-experts models
  int64_t max_positions = 0;  ///< 0: unlimited by the config
  double norm_eps = 1e-6;
  RopeConfig rope;
  QkvLayout qkv_layout = QkvLayout::kSeparate;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;  ///< RMSNorm per head on q and k, before rotary
  bool alibi = false;
  bool norm_head = false;              ///< head rows are L2-normalised in every forward
  std::optional<LatentConfig> latent;  ///< attention is latent; head_dim is then that of a query
  NormKind norm = NormKind::kRms;
  Activation activation = Activation::kSilu;
  bool is_gated = true;          ///< MLPs are down(activation(gate x) * up x); false: without gate
  bool norms_embedding = false;  ///< token embeddings are normed before the first layer
  bool joins_gate_up = false;    ///< gate and up are one matrix in files, gate first
  bool has_post_norms = false;   ///< what attention and MLP give is normed before it is added
  bool head_bias = false;
  double attention_scale = 0.0;  ///< 0: head_dim ^ -0.5
  /// cap * tanh(score / cap) of attention's scores and of logits; 0: none.
  double attention_softcap = 0.0, logit_softcap = 0.0;
  /// Factors of token embeddings, of what attention and MLP add, and of the head's input.
  double embedding_scale = 1.0, residual_scale = 1.0, logit_scale = 1.0;
  std::optional<RopeConfig> window_rope;  ///< of layers with a window, where it is another
  /// Llama-4. Tokens of layers with rotary embedding see their own chunk of this many positions; 0:
  /// no chunks. Their queries and keys are divided by their rms after the rotation. The layers
  /// that unrotated_layers lists see everything, and their queries are multiplied by
  /// 1 + query_growth * ln(1 + floor((position + 1) / query_growth_from)).
  int64_t attention_chunk = 0;
  bool norms_rotated = false;
  std::vector<int64_t> unrotated_layers;
  double query_growth = 0.0, query_growth_from = 1.0;
  bool tie_embeddings = false;
  double z_loss_weight = 0.0;
  /// Window of each layer in tokens (a position sees itself and the window - 1 before it), 0 =
  /// full; size num_layers.
  std::vector<int64_t> sliding_window;
  /// For each layer its kind, or nullptr for attention and an MLP. Empty: all layers are these.
  std::vector<const LayerKind*> own_kinds;
  /// The tower that turns pictures into hidden states of the decoder; empty: a model of text alone.
  std::optional<VisionConfig> vision;
  /// The layers that experts.prediction_layers counts are part of the network. Else they stay in
  /// files.
  bool predicts_ahead = false;
  /// The head of a reward model, in place of the vocabulary's.
  std::optional<ScoreHead> score;
  double initializer_range = 0.02;
  DType dtype = DType::kF32;     ///< torch_dtype of the files
  std::vector<int64_t> eos_ids;  ///< config.json / generation_config.json
  std::optional<int64_t> bos_id, pad_id;
  /// Name in text/templates.json for models of this kind that ship no template; may be empty.
  std::string default_template;
  Json raw = Json::object();  ///< config.json as read; carried over when saving
  /// An encoder, which has no head of the vocabulary; empty: a decoder.
  std::optional<EncoderConfig> encoder = {};

  bool has_experts() const { return experts.count > 0; }
  /// How many layers of the network predict further ahead. They have the numbers after the last
  /// layer's and are made as that one.
  int64_t num_predictions() const { return predicts_ahead ? experts.prediction_layers : 0; }
  size_t last_like(int64_t layer) const {
    return static_cast<size_t>(layer < num_layers ? layer : num_layers - 1);
  }
  /// The layer's feed-forward part is a router and experts. REQUIRES: layer >= 0.
  bool is_sparse(int64_t layer) const {
    return has_experts() && experts.sparse_layer[last_like(layer)];
  }

  /// nullptr: attention and an MLP, or experts. REQUIRES: layer >= 0.
  const LayerKind* own_kind(int64_t layer) const {
    return own_kinds.empty() ? nullptr : own_kinds[last_like(layer)];
  }

  /// Errors: ModelError naming the impossible combination with both numbers.
  void validate() const;
};

/// Which part of the model a parameter is; layers are built by asking for (role, layer).
enum class Role {
  kEmbedding,
  kEmbeddingNorm,
  kFinalNorm,
  kHead,
  kAttentionNorm,
  kQ,
  kK,
  kV,
  kQkv,
  kO,
  kQNorm,
  kKNorm,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
  kRouter,          ///< [experts, hidden]
  kExpertGate,      ///< of one routed expert: ParamSpec::expert says which
  kExpertUp,        ///< likewise
  kExpertDown,      ///< likewise
  kSharedGateProj,  ///< SwiGLU gate of the shared expert
  kSharedUp,
  kSharedDown,
  kSharedExpertGate,  ///< [1, hidden]: sigmoid that scales the shared expert's output
  kRouterBias,        ///< [experts]: of the choice alone (ExpertConfig::has_choice_bias)
  kPostAttentionNorm,
  kPostMlpNorm,
  kGateUp,     ///< gate and up in one
  kPositions,  ///< [positions, hidden]: learned position embeddings
  kQDown,      ///< [q_rank, hidden] of latent attention; then kQ is [heads * head_dim, q_rank]
  kQDownNorm,
  kKvDown,  ///< [kv_rank + rope_dim, hidden]
  kKvDownNorm,
  kKvUp,  ///< [heads * (nope_dim + v_dim), kv_rank]: of each head its key, then its value
  // A layer that predicts further ahead has these; it also names the table and the head it shares.
  kPredictionTokenNorm,
  kPredictionHiddenNorm,
  kPredictionJoin,  ///< [hidden, 2 hidden]: columns of the token, then of the hidden state
  kPredictionNorm,
  kScore,  ///< [labels, hidden] of ModelConfig::score, the same on every rank of the tensor axis
  kOwn,    ///< of a layer of its own kind (arch/layer_kind.h), known there by its name
  kTokenTypes,  ///< [types, hidden]: an encoder's rows for the text of a pair
  kScoreDense,  ///< [hidden, hidden] of an encoder's head, before kScore
};

/// How the tensor axis cuts a parameter. One that is not cut says where it works, because that
/// decides about its gradient. Inside a region (parallel/region.h) each rank has a part of a sum.
/// Between regions each rank has all of it, or under sequence parallelism the part of its rows.
enum class Cut {
  kCopiedBetween,
  kCopiedInside,
  kRows,      ///< dim 0, equal blocks (vocabulary: padded)
  kColumns,   ///< dim 1, equal blocks
  kHalves,    ///< dim 0 is gate and up: equal blocks of each
  kThirds,    ///< dim 0 is queries, keys and values, as many of each: equal blocks of each
  kKvGroups,  ///< dim 0, by KV group (q: group's query heads; fused: see QkvLayout)
};

/// One named global tensor.
struct ParamSpec {
  std::string name;  ///< HF name, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;
  Role role;
  int64_t layer = -1;  ///< -1: not in a layer
  bool is_bias = false;
  Cut cut;
  /// Sources may lack it (tied head): then it aliases this parameter.
  std::string tied_to = {};
  int64_t expert = -1;  ///< number of the routed expert within its layer; -1: not part of one
  /// Its place in the vision tower (arch/chain.h); -1: it is the decoder's. Then `layer` is -1 and
  /// the role kOwn.
  int64_t tower_place = -1;

  /// The axes along which ranks hold different parts of it. On the tensor axis several neighbours
  /// may hold the same key head.
  Axes cut_on() const;
  /// The axes along which ranks hold the same. Each axis is either here or in cut_on().
  Axes copied_on() const;
};

/// "model.norm.weight" -> "model.norm": the module that a parameter is of.
std::string module_of(const std::string& parameter);
/// "model.layers.0.self_attn.q_proj" -> "q_proj".
std::string last_name(const std::string& module);

/// A model family, as data. One file per family; registry.cpp lists them.
struct Family {
  std::string name;                        ///< "llama"
  std::vector<std::string> model_types;    ///< values of config.json's model_type
  std::vector<std::string> architectures;  ///< class names, e.g. "LlamaForCausalLM"
  ModelConfig (*parse)(const Json& config_json);
  /// Every parameter, in model order, with HF names.
  std::vector<ParamSpec> (*parameters)(const ModelConfig& config);
  /// Names in files that are to be ignored (old rotary buffers): patterns of the whole name
  /// (base/pattern.h).
  std::vector<std::string> ignored_names;
  /// What the names of all parameters but the head begin with; files that were saved without the
  /// head's class lack it. Empty: no such files are known.
  std::string body = {};
};

const std::vector<Family>& families();
/// Adds a family that a program brings along. Call it before anything asks for families.
void add_family(Family family);
/// Errors: ModelError "unsupported architecture …" listing what is supported and the nearest name.
const Family& family_of(const Json& config_json);
const Family& family_named(const std::string& name);

/// Which heads whoever opens a model has a use for.
enum class Heads {
  kVocabulary,  ///< others are refused
  kAny,         ///< ScoreForm::kSequence too
};

/// What a config.json of this content describes, validated. Errors: ModelError that begins with
/// `where`.
ModelConfig parse_model_config(const Json& config_json, const std::string& where,
                               Heads heads = Heads::kVocabulary);

/// config.json of a directory (or the file itself), validated; generation_config.json adds eos ids.
/// Errors: IoError, ModelError (bad JSON; missing key: names it).
ModelConfig load_model_config(const std::filesystem::path& path, Heads heads = Heads::kVocabulary);

/// default_template of the config.json in this directory; "" if there is none that can be read (or
/// no directory): a tokenizer may be used where its model cannot.
std::string default_template_in(const std::filesystem::path& directory);

std::vector<ParamSpec> parameters_of(const ModelConfig& config);
/// Parameters, of layers that predict further ahead too, that files in 16 bits have in f32: of a
/// bias that chooses among experts 16 bits would lose the steps by which it moves.
std::set<std::string> wide_parameters(const ModelConfig& config);
/// Total elements of all untied parameters.
int64_t parameter_count(const ModelConfig& config);

}  // namespace danlu::arch
