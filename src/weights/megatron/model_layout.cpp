#include "weights/megatron/model_layout.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "arch/gated_delta.h"
#include "arch/pipeline.h"
#include "base/error.h"
#include "weights/megatron/pieces.h"

namespace danlu::weights::megatron {
namespace {

using arch::ModelConfig;
using arch::Role;

/// Builds one rank's tensors in the order in which Megatron registers its parameters.
class RankBuilder {
 public:
  RankBuilder(const ModelConfig& config, const Split& split, const Form& form,
              const GlobalIndex& globals, ModelLayout& out, size_t file)
      : c_(config),
        split_(split),
        form_(form),
        names_(names_of(form.dialect)),
        globals_(globals),
        out_(out),
        rank_(out.ranks[file]),
        file_(file),
        cut_{split.tp, rank_.tp} {}

  /// The parts of a vision tower that stand in the chunk; before its layers.
  void add_tower_part(const arch::Stage& stage, int64_t chunk) {
    prefix_ = "";
    if (stage.chunk(chunk).has(stage.chain.patches()))
      add_tensor(tower_names().patches + ".weight", "visual.patch_embed.proj.weight");
    const arch::LayerRange blocks = stage.blocks_of(chunk);
    for (int64_t block = blocks.first; block < blocks.end; ++block) {
      prefix_ = tower_names().block + std::to_string(block - blocks.first) + ".";
      add_block("visual.blocks." + std::to_string(block) + ".");
    }
    prefix_ = "";
    if (stage.chunk(chunk).has(stage.chain.merger())) add_merger();
  }

  void begin_chunk(const std::string& key) { rank_.chunks.push_back({key, {}}); }

  void add_layers(const std::vector<int64_t>& layers, bool first, bool last) {
    prefix_ = "";
    // Where the pipeline is cut, Megatron's layers that predict further ahead have the table again.
    const bool reads_again =
        last && c_.num_predictions() > 0 && has_megatrons_modules(form_) && split_.pp > 1;
    if (first || reads_again) add_vocabulary(names_.embedding, Role::kEmbedding, !first);
    if (first && has(Role::kPositions, false)) add_whole(names_.positions, Role::kPositions);
    if (first) add_norm(names_.embedding_norm, Role::kEmbeddingNorm);
    for (size_t local = 0; local < layers.size(); ++local) {
      if (layers[local] == arch::kNoopLayer) continue;
      layer_ = layers[local];
      prefix_ = names_.layer + std::to_string(local) + ".";
      add_layer();
    }
    prefix_ = "";
    layer_ = -1;
    if (last) {
      add_norm(names_.final_norm, Role::kFinalNorm);
      for (int64_t depth = 0; depth < c_.num_predictions(); ++depth) add_prediction(depth);
      add_head(first);
    }
  }

 private:
  // --- one tensor ---------------------------------------------------------------------------
  /// `sections` is one matrix; pieces get the replica mark of this rank.
  void add(const std::string& name, std::vector<int64_t> shape, Section section, bool is_copy,
           bool is_expert = false, bool is_shared_embedding = false) {
    for (Piece& piece : section.pieces) piece.replica |= is_copy;
    StoredTensor stored{.file = file_};
    const std::string key = prefix_ + name;
    stored.info = {rank_.chunks.back().key + "." + key,
                   out_.layout.globals[section.pieces.front().global].dtype, std::move(shape)};
    stored.sections.push_back(std::move(section));
    rank_.chunks.back().tensors.push_back(out_.layout.tensors.size());
    out_.layout.tensors.push_back(std::move(stored));
    out_.traits.push_back({key, is_expert, is_shared_embedding});
  }
  void add_matrix(const std::string& name, Section section, bool is_copy, bool is_expert = false) {
    std::vector<int64_t> shape = {section.rows, section.cols};
    add(name, std::move(shape), std::move(section), is_copy, is_expert);
  }
  void add_vector(const std::string& name, Section section, bool is_copy) {
    std::vector<int64_t> shape = {section.rows};
    add(name, std::move(shape), std::move(section), is_copy);
  }

  /// Copies on other expert ranks of what every expert rank holds alike.
  bool on_other_expert_rank() const { return rank_.ep > 0; }
  /// … and on other tensor ranks too.
  bool on_other_rank() const { return rank_.ep > 0 || rank_.tp > 0; }

  size_t at(Role role, bool is_bias = false, int64_t expert = -1) const {
    return globals_.at(role, layer_, expert, is_bias);
  }
  bool has(Role role, bool is_bias) const {
    return globals_.find(role, layer_, -1, is_bias) != GlobalIndex::kNone;
  }
  const TensorInfo& info(size_t global) const { return out_.layout.globals[global]; }

  void add_whole(const std::string& name, Role role, bool is_bias = false) {
    const size_t global = at(role, is_bias);
    Section section = whole_section(info(global));
    section.pieces.push_back({.global = global, .of = matrix_of(info(global).shape)});
    const std::string full = name + (is_bias ? ".bias" : ".weight");
    std::vector<int64_t> shape = info(global).shape;
    add(full, std::move(shape), std::move(section), on_other_rank());
  }

  void add_norm(const std::string& name, Role role) {
    for (const bool is_bias : {false, true}) {
      if (has(role, is_bias)) add_whole(name, role, is_bias);
    }
  }

  // --- embedding and head -------------------------------------------------------------------
  void add_vocabulary(const std::string& name, Role role, bool is_copy) {
    const size_t global = at(role);
    const int64_t rows = padded_vocab(c_.vocab_size, split_) / split_.tp;
    Section section = padded_rows(global, matrix_of(info(global).shape), rank_.tp * rows, rows);
    std::vector<int64_t> shape = {section.rows, section.cols};
    const bool shared = c_.tie_embeddings && split_.pp > 1;
    add(name + ".weight", std::move(shape), std::move(section), is_copy || on_other_expert_rank(),
        false, shared);
  }
  /// MindSpeed-LLM's head of a reward model: columns of the weight, and the bias whole.
  void add_score() {
    const size_t weight = named(c_.score->module() + ".weight");
    add_matrix("rm_head.weight", column_block(weight, matrix(weight), cut_),
               on_other_expert_rank());
    add_tensor("rm_head.bias", c_.score->module() + ".bias");
  }
  void add_head(bool has_embedding) {
    if (c_.score) return add_score();
    if (!c_.tie_embeddings) {
      add_vocabulary(names_.head, Role::kHead, false);
    } else if (!has_embedding || split_.pp > 1) {
      // With both ends of the pipeline in one chunk the head is the embedding itself.
      add_vocabulary(names_.tied_head, Role::kEmbedding, true);
    }
    if (!has(Role::kHead, true)) return;
    const size_t global = at(Role::kHead, true);
    const int64_t rows = padded_vocab(c_.vocab_size, split_) / split_.tp;
    add_vector(names_.head + ".bias",
               padded_rows(global, matrix_of(info(global).shape), rank_.tp * rows, rows),
               on_other_expert_rank());
  }

  // --- the vision tower ---------------------------------------------------------------------
  size_t named(const std::string& name) const {
    const size_t global = globals_.named(name);
    if (global == GlobalIndex::kNone)
      throw InternalError(fmt::format("[megatron] {} is not among the global tensors", name));
    return global;
  }
  Rect matrix(size_t global) const { return matrix_of(info(global).shape); }

  /// Whole, on every tensor rank.
  void add_tensor(const std::string& name, const std::string& global_name) {
    const size_t global = named(global_name);
    Section section = whole_section(info(global));
    section.pieces.push_back({.global = global, .of = matrix(global)});
    add(name, info(global).shape, std::move(section), on_other_rank());
  }
  void add_tower_norm(const std::string& name, const std::string& module) {
    add_tensor(name + ".weight", module + ".weight");
    if (!c_.vision->is_gated) add_tensor(name + ".bias", module + ".bias");
  }
  /// Rows of weight and bias by `rows_of(kind)`, where kind is ".weight" or ".bias".
  template <typename RowsOf>
  void add_cut_rows(const std::string& name, const RowsOf& rows_of) {
    add_matrix(name + ".weight", rows_of(".weight"), false);
    add_vector(name + ".bias", rows_of(".bias"), false);
  }
  void add_cut_rows_of(const std::string& name, const std::string& module) {
    add_cut_rows(name, [&](const char* kind) {
      const size_t global = named(module + kind);
      return row_block(global, matrix(global), cut_);
    });
  }
  void add_cut_columns(const std::string& name, const std::string& module) {
    const size_t global = named(module + ".weight");
    add_matrix(name + ".weight", column_block(global, matrix(global), cut_), false);
    add_tensor(name + ".bias", module + ".bias");
  }
  void add_block(const std::string& block) {
    add_tower_norm(names_.attention_norm, block + "norm1");
    add_cut_rows(names_.qkv, [&](const char* kind) {
      const size_t global = named(block + "attn.qkv" + kind);
      return tower_qkv_rows(*c_.vision, global, matrix(global).cols, cut_);
    });
    add_cut_columns(names_.o, block + "attn.proj");
    add_tower_norm(names_.mlp_norm, block + "norm2");
    if (!c_.vision->is_gated) {
      add_cut_rows_of(names_.fc1, block + "mlp.fc1");
      return add_cut_columns(names_.fc2, block + "mlp.fc2");
    }
    add_cut_rows(names_.fc1, [&](const char* kind) {
      const size_t gate = named(block + "mlp.gate_proj" + kind);
      return two_halves(gate, named(block + "mlp.up_proj" + kind), matrix(gate), cut_);
    });
    add_cut_columns(names_.fc2, block + "mlp.down_proj");
  }
  void add_merger() {
    add_tower_norm(tower_names().merger_norm, "visual.merger.ln_q");
    add_cut_rows_of(tower_names().merger_fc1, "visual.merger.mlp.0");
    add_cut_columns(tower_names().merger_fc2, "visual.merger.mlp.2");
  }

  // --- a layer ------------------------------------------------------------------------------
  void add_layer() {
    // Transformer-Engine fuses no norm with the matrices of latent attention that read it.
    if (!names_.norms_in_linears || c_.latent)
      add_norm(names_.attention_norm, Role::kAttentionNorm);
    if (names_.o_before_qkv) add_o();
    c_.latent ? add_latent() : add_qkv();
    if (!names_.o_before_qkv) add_o();
    if (c_.qk_norm) {
      add_whole(names_.q_norm, Role::kQNorm);
      add_whole(names_.k_norm, Role::kKNorm);
    }
    const bool sparse = c_.is_sparse(layer_);
    if (!names_.norms_in_linears || sparse) add_norm(names_.mlp_norm, Role::kMlpNorm);
    sparse ? add_experts() : add_mlp();
    if (!c_.has_post_norms) return;
    add_norm(names_.post_attention_norm, Role::kPostAttentionNorm);
    add_norm(names_.post_mlp_norm, Role::kPostMlpNorm);
  }
  void add_qkv() {
    if (names_.norms_in_linears) add_norm_of(names_.qkv, Role::kAttentionNorm);
    for (const bool is_bias : {false, true}) {
      const bool fused = c_.qkv_layout != arch::QkvLayout::kSeparate;
      if (!has(fused ? Role::kQkv : Role::kQ, is_bias)) continue;
      const QkvGlobals from =
          fused ? QkvGlobals{at(Role::kQkv, is_bias), 0, 0}
                : QkvGlobals{at(Role::kQ, is_bias), at(Role::kK, is_bias), at(Role::kV, is_bias)};
      Section section = qkv_rows(c_, from, matrix_of(info(from.q).shape).cols, cut_);
      is_bias ? add_vector(names_.qkv + ".bias", std::move(section), on_other_expert_rank())
              : add_matrix(names_.qkv + ".weight", std::move(section), on_other_expert_rank());
    }
  }
  // --- latent attention -----------------------------------------------------------------------
  void add_latent() {
    has_megatrons_modules(form_) ? add_megatron_latent() : add_mindspeed_latent();
  }
  void add_rows(const std::string& name, Role role, bool is_bias = false) {
    const size_t global = at(role, is_bias);
    Section section = row_block(global, matrix_of(info(global).shape), cut_);
    is_bias ? add_vector(name + ".bias", std::move(section), on_other_expert_rank())
            : add_matrix(name + ".weight", std::move(section), on_other_expert_rank());
  }
  /// Adds two matrices, one below the other, whole on each rank.
  void add_stacked(const std::string& name, Role upper, Role lower, bool is_bias) {
    const size_t first = at(upper, is_bias), second = at(lower, is_bias);
    const Rect above = matrix_of(info(first).shape), below = matrix_of(info(second).shape);
    Section section{.rows = above.rows + below.rows, .cols = above.cols};
    section.pieces.push_back({.global = first, .of = above});
    section.pieces.push_back({.global = second, .of = below, .row = above.rows});
    is_bias ? add_vector(name + ".bias", std::move(section), on_other_rank())
            : add_matrix(name + ".weight", std::move(section), on_other_rank());
  }
  void add_mindspeed_latent() {
    const bool is_short = c_.latent->q_rank > 0;
    const Role reads_hidden = is_short ? Role::kQDown : Role::kQ;
    for (const bool is_bias : {false, true}) {
      if (has(Role::kKvDown, is_bias))
        add_stacked(names_.qkv, reads_hidden, Role::kKvDown, is_bias);
    }
    if (is_short) add_whole(names_.q_norm, Role::kQDownNorm);
    add_whole(names_.k_norm, Role::kKvDownNorm);
    const arch::LatentConfig& l = *c_.latent;
    if (form_.latent == LatentForm::kMindSpeedSplit) {
      if (is_short) {
        add_parts_of_heads("self_attention.linear_qk_nope", Role::kQ, 0, l.nope_dim);
        add_parts_of_heads("self_attention.linear_qk_rope", Role::kQ, l.nope_dim, l.rope_dim);
      }
      add_parts_of_heads("self_attention.linear_kv_nope", Role::kKvUp, 0, l.nope_dim);
      return add_parts_of_heads("self_attention.linear_v", Role::kKvUp, l.nope_dim, l.v_dim);
    }
    if (is_short) add_rows("self_attention.linear_qb", Role::kQ);
    add_rows("self_attention.linear_kvb", Role::kKvUp);
  }
  /// Adds `count` of each head's rows, from `first` on.
  void add_parts_of_heads(const std::string& name, Role role, int64_t first, int64_t count) {
    const size_t global = at(role);
    const Rect matrix = matrix_of(info(global).shape);
    const int64_t heads = c_.num_heads / cut_.count, rows = matrix.rows / c_.num_heads;
    Section section{.rows = heads * count, .cols = matrix.cols};
    for (int64_t head = 0; head < heads; ++head) {
      section.pieces.push_back(
          {.global = global,
           .of = {(cut_.rank * heads + head) * rows + first, count, 0, matrix.cols},
           .row = head * count});
    }
    add_matrix(name + ".weight", std::move(section), on_other_expert_rank());
  }
  void add_whole_linear(const std::string& name, Role role) {
    for (const bool is_bias : {false, true}) {
      if (has(role, is_bias)) add_whole(name, role, is_bias);
    }
  }
  void add_megatron_latent() {
    const std::string of = "self_attention.";
    const auto norm = [&](Role role, const char* module, const char* matrix) {
      names_.norms_in_linears ? add_norm_of(of + matrix, role) : add_whole(of + module, role);
    };
    if (c_.latent->q_rank > 0) {
      add_whole_linear(of + "linear_q_down_proj", Role::kQDown);
      add_rows(of + "linear_q_up_proj", Role::kQ);
    } else {
      add_rows(of + "linear_q_proj", Role::kQ);
    }
    add_whole_linear(of + "linear_kv_down_proj", Role::kKvDown);
    add_rows(of + "linear_kv_up_proj", Role::kKvUp);
    if (c_.latent->q_rank > 0) norm(Role::kQDownNorm, "q_layernorm", "linear_q_up_proj");
    norm(Role::kKvDownNorm, "kv_layernorm", "linear_kv_up_proj");
  }
  /// Transformer-Engine keeps a norm's weight in the matrix that follows it.
  void add_norm_of(const std::string& linear, Role role) {
    for (const bool is_bias : {false, true}) {
      if (!has(role, is_bias)) continue;
      const size_t global = at(role, is_bias);
      Section section = whole_section(info(global));
      section.pieces.push_back({.global = global, .of = matrix_of(info(global).shape)});
      add(linear + (is_bias ? ".layer_norm_bias" : ".layer_norm_weight"), info(global).shape,
          std::move(section), on_other_rank());
    }
  }
  void add_columns(const std::string& name, Role role) {
    const size_t global = at(role);
    add_matrix(name + ".weight", column_block(global, matrix_of(info(global).shape), cut_),
               on_other_expert_rank());
    if (has(role, true)) add_whole(name, role, true);
  }
  void add_o() { add_columns(names_.o, Role::kO); }

  void add_halves(const std::string& name, Role gate, Role up, const RankCut& cut, bool is_copy,
                  bool is_bias = false, int64_t expert = -1) {
    Section section = two_halves(at(gate, is_bias, expert), at(up, is_bias, expert),
                                 matrix_of(info(at(gate, is_bias, expert)).shape), cut);
    if (is_bias) return add_vector(name + ".bias", std::move(section), is_copy);
    add_matrix(name + ".weight", std::move(section), is_copy, expert >= 0);
  }
  void add_joined_halves(bool is_bias) {
    const size_t global = at(Role::kGateUp, is_bias);
    Section section = joined_halves(global, matrix_of(info(global).shape), cut_);
    is_bias ? add_vector(names_.fc1 + ".bias", std::move(section), on_other_expert_rank())
            : add_matrix(names_.fc1 + ".weight", std::move(section), on_other_expert_rank());
  }
  void add_mlp() {
    if (names_.norms_in_linears) add_norm_of(names_.fc1, Role::kMlpNorm);
    for (const bool is_bias : {false, true}) {
      if (has(Role::kGate, is_bias))
        add_halves(names_.fc1, Role::kGate, Role::kUp, cut_, on_other_expert_rank(), is_bias);
      if (has(Role::kGateUp, is_bias)) add_joined_halves(is_bias);
      if (!c_.is_gated && has(Role::kUp, is_bias)) add_rows(names_.fc1, Role::kUp, is_bias);
    }
    add_columns(names_.fc2, Role::kDown);
  }

  // --- layers that predict further ahead -----------------------------------------------------
  void add_prediction(int64_t depth) {
    const bool is_megatron = has_megatrons_modules(form_);
    const std::string own =
        fmt::format("{}{}.", is_megatron ? "mtp.layers." : "mtp_layers.", depth);
    prefix_ = own;
    if (!is_megatron && form_.prediction_tables)
      add_vocabulary("embedding.word_embeddings", Role::kEmbedding, true);
    if (!is_megatron && form_.prediction_heads)
      add_vocabulary("output_layer", c_.tie_embeddings ? Role::kEmbedding : Role::kHead, true);
    layer_ = c_.num_layers + depth;
    add_norm("enorm", Role::kPredictionTokenNorm);
    add_norm("hnorm", Role::kPredictionHiddenNorm);
    add_rows("eh_proj", Role::kPredictionJoin);
    prefix_ = own + "transformer_layer.";
    add_layer();
    prefix_ = own;
    add_norm("final_layernorm", Role::kPredictionNorm);
    prefix_ = "";
    layer_ = -1;
  }

  // --- experts ------------------------------------------------------------------------------
  void add_experts() {
    add_whole("mlp.router", Role::kRouter);
    if (has(Role::kRouterBias, false)) {
      const size_t global = at(Role::kRouterBias);
      Section section = whole_section(info(global));
      section.pieces.push_back({.global = global, .of = matrix_of(info(global).shape)});
      add("mlp.router.expert_bias", info(global).shape, std::move(section), on_other_rank());
    }
    const int64_t dealers = split_.expert_dealers(), cutters = split_.tp / dealers;
    const int64_t owner = rank_.ep * dealers + rank_.tp / cutters;
    const int64_t count = c_.experts.count / (split_.ep * dealers);
    const RankCut cut{cutters, rank_.tp % cutters};
    if (form_.experts == ExpertForm::kGrouped) {
      add_grouped(owner * count, count, cut);
    } else {
      for (int64_t j = 0; j < count; ++j) add_expert(j, owner * count + j, cut);
      if (form_.experts == ExpertForm::kTeGrouped) {
        for (int64_t j = 0; j < count; ++j) add_te_down(j, owner * count + j, cut);
      }
    }
    if (c_.experts.shared_ffn_size == 0) return;
    add_halves("mlp.shared_experts.linear_fc1", Role::kSharedGateProj, Role::kSharedUp, cut_,
               on_other_expert_rank());
    add_columns("mlp.shared_experts.linear_fc2", Role::kSharedDown);
    if (c_.experts.shared_gate) add_whole("mlp.shared_expert_gate", Role::kSharedExpertGate);
  }
  void add_expert(int64_t local, int64_t expert, const RankCut& cut) {
    if (form_.experts == ExpertForm::kTeGrouped) {
      Section section =
          two_halves(at(Role::kExpertGate, false, expert), at(Role::kExpertUp, false, expert),
                     matrix_of(info(at(Role::kExpertGate, false, expert)).shape), cut);
      return add_matrix(fmt::format("mlp.experts.linear_fc1.weight{}", local), std::move(section),
                        false, true);
    }
    const std::string name = fmt::format("mlp.experts.local_experts.{}.", local);
    add_halves(name + "linear_fc1", Role::kExpertGate, Role::kExpertUp, cut, false, false, expert);
    const size_t down = at(Role::kExpertDown, false, expert);
    add_matrix(name + "linear_fc2.weight", column_block(down, matrix_of(info(down).shape), cut),
               false, true);
  }
  void add_te_down(int64_t local, int64_t expert, const RankCut& cut) {
    const size_t down = at(Role::kExpertDown, false, expert);
    add_matrix(fmt::format("mlp.experts.linear_fc2.weight{}", local),
               column_block(down, matrix_of(info(down).shape), cut), false, true);
  }
  /// weight1 [h, 2f·E] is the memory of [E, h, 2f], weight2 [f·E, h] that of [E, f, h]: both
  /// transposed relative to Linear.
  void add_grouped(int64_t first, int64_t count, const RankCut& cut) {
    std::vector<size_t> gates, ups, downs;
    for (int64_t expert = first; expert < first + count; ++expert) {
      gates.push_back(at(Role::kExpertGate, false, expert));
      ups.push_back(at(Role::kExpertUp, false, expert));
      downs.push_back(at(Role::kExpertDown, false, expert));
    }
    const int64_t width = c_.experts.ffn_size / cut.count;
    Section up = grouped_up(gates, ups, matrix_of(info(gates[0]).shape), cut);
    add("mlp.experts.weight1", {c_.hidden_size, 2 * width * count}, std::move(up), false, true);
    Section down = grouped_down(downs, matrix_of(info(downs[0]).shape), cut);
    add("mlp.experts.weight2", {width * count, c_.hidden_size}, std::move(down), false, true);
  }

  const ModelConfig& c_;
  const Split& split_;
  const Form& form_;
  const Names& names_;
  const GlobalIndex& globals_;
  ModelLayout& out_;
  Rank& rank_;
  size_t file_;
  RankCut cut_;
  std::string prefix_;
  int64_t layer_ = -1;
};

}  // namespace

std::vector<TensorInfo> global_tensors(const ModelConfig& config, DType dtype) {
  std::vector<TensorInfo> globals;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (spec.tied_to.empty()) globals.push_back({spec.name, dtype, spec.shape});
  }
  return globals;
}

namespace {

/// Errors: ModelError where the dialect cannot hold the model, UsageError where it holds no
/// padding.
void check_dialect(const ModelConfig& config, const Split& split, const Form& form) {
  if (config.encoder) {
    throw ModelError(tr("[{}] {} is an encoder, which this format has no form for",
                        describe(form.dialect), config.family),
                     tr("--to hf"));
  }
  const bool is_mm = form.dialect == Dialect::kMindSpeedMm;
  if (arch::has_gated_delta(config)) {
    throw ModelError(tr("[{}] {} has linear attention, which this format has no names for yet",
                        describe(form.dialect), config.family),
                     tr("Hugging Face's format holds it: --to hf"));
  }
  if (config.vision && !is_mm) {
    throw ModelError(tr("[{}] {} has a vision tower, which this format has no names for",
                        describe(form.dialect), config.family),
                     tr("MindSpeed-MM's format has: --to mm"));
  }
  if (!config.vision && is_mm) {
    throw ModelError(tr("[MindSpeed-MM] {} has no vision tower", config.family),
                     tr("Megatron-core's format is for models of text: --to mcore"));
  }
  if (form.dialect == Dialect::kLegacy && config.has_post_norms) {
    throw ModelError(tr("[legacy Megatron] {} has norms behind attention and MLP, which the legacy "
                        "format has no names for",
                        config.family),
                     tr("convert to Megatron-core"));
  }
  if (config.score && form.dialect != Dialect::kCore &&
      form.dialect != Dialect::kTransformerEngine) {
    throw ModelError(tr("[{}] reward models have no form in it", describe(form.dialect)),
                     tr("convert to Megatron-core"));
  }
  if (form.dialect == Dialect::kLegacy && config.has_experts()) {
    throw ModelError(
        tr("[legacy Megatron] {} has experts, which the legacy format has not", config.family),
        tr("convert to Megatron-core"));
  }
  if (form.dialect == Dialect::kLegacy && config.latent) {
    throw ModelError(
        tr("[legacy Megatron] {} has latent attention, which the legacy format has not",
           config.family),
        tr("convert to Megatron-core"));
  }
  const bool stacks = form.dialect == Dialect::kCore && form.latent != LatentForm::kMegatron;
  if (config.latent && config.latent->q_rank == 0 && config.qkv_bias && stacks) {
    throw ModelError(tr("[{}] {} has a bias on keys and none on queries, which linear_qkv holds "
                        "in one",
                        describe(form.dialect), config.family),
                     tr("--transformer-impl transformer_engine keeps them apart"));
  }
  if (is_mm && split.vocab_divisor == 1)
    arch::require_divides("tensor parallel", split.tp, "rows of the vocabulary", config.vocab_size);
}

/// The stages as arch cuts the chain. Files hold a tied embedding wherever its ends stand, so that
/// a training could not use the cut does not matter.
std::vector<arch::Stage> stages_in_files(ModelConfig config, const Split& split) {
  config.tie_embeddings = false;
  return arch::stages_of(config, split.pipeline());
}

}  // namespace

ModelLayout model_layout(const ModelConfig& config, const Split& split, const Form& form,
                         std::vector<TensorInfo> globals) {
  check_split(config, split);
  check_dialect(config, split, form);
  std::vector<arch::Stage> stages;
  if (config.vision) stages = stages_in_files(config, split);
  const GlobalIndex index(config, globals);
  ModelLayout out;
  out.layout.globals = std::move(globals);
  out.splits_experts = split.ep > 1 || split.counts_tensor_ranks;
  const arch::Placement placement = arch::place_layers(split.pipeline(), config.num_layers);
  for (int64_t ep = 0; ep < split.ep; ++ep) {
    for (int64_t pp = 0; pp < split.pp; ++pp) {
      for (int64_t tp = 0; tp < split.tp; ++tp)
        out.ranks.push_back({tp, pp, ep, rank_directory(split, tp, pp, ep), {}});
    }
  }
  for (size_t file = 0; file < out.ranks.size(); ++file) {
    const Rank& rank = out.ranks[file];
    out.layout.files.push_back(rank.directory + "/" + kModelFile);
    const auto& chunks = placement[static_cast<size_t>(rank.pp)];
    RankBuilder builder(config, split, form, index, out, file);
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      const std::string key = chunks.size() == 1 ? "model" : "model" + std::to_string(chunk);
      builder.begin_chunk(key);
      if (stages.empty()) {
        builder.add_layers(chunks[chunk], rank.pp == 0 && chunk == 0,
                           rank.pp == split.pp - 1 && chunk + 1 == chunks.size());
        continue;
      }
      const arch::Stage& stage = stages[static_cast<size_t>(rank.pp)];
      const auto number = static_cast<int64_t>(chunk);
      builder.add_tower_part(stage, number);
      builder.add_layers(chunks[chunk], stage.embeds_at(number), stage.ends_at(number));
    }
  }
  return out;
}

}  // namespace danlu::weights::megatron
