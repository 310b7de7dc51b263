#include "weights/megatron/names.h"

namespace danlu::weights::megatron {
namespace {

Names core_names(bool transformer_engine, const std::string& decoder = "") {
  return {.embedding = decoder + "embedding.word_embeddings",
          .positions = decoder + "embedding.position_embeddings",
          .embedding_norm = decoder + "embedding.word_embeddings.norm",
          .layer = decoder + "decoder.layers.",
          .final_norm = decoder + "decoder.final_layernorm",
          .head = decoder + "output_layer",
          .tied_head = decoder + "output_layer",
          .attention_norm = "input_layernorm",
          .qkv = "self_attention.linear_qkv",
          .o = "self_attention.linear_proj",
          .q_norm = "self_attention.q_layernorm",
          .k_norm = "self_attention.k_layernorm",
          .mlp_norm = "pre_mlp_layernorm",
          .fc1 = "mlp.linear_fc1",
          .fc2 = "mlp.linear_fc2",
          .post_attention_norm = "post_attn_norm",
          .post_mlp_norm = "post_mlp_layernorm",
          .norms_in_linears = transformer_engine,
          .o_before_qkv = true};
}

}  // namespace

const Names& names_of(Dialect dialect) {
  static const Names core = core_names(false), engine = core_names(true),
                     multimodal = core_names(false, "text_decoder.");
  static const Names legacy = {.embedding = "language_model.embedding.word_embeddings",
                               .positions = "language_model.embedding.position_embeddings",
                               .embedding_norm = "language_model.embedding.word_embeddings.norm",
                               .layer = "language_model.encoder.layers.",
                               .final_norm = "language_model.encoder.final_norm",
                               .head = "language_model.output_layer",
                               .tied_head = "word_embeddings_for_head",
                               .attention_norm = "input_norm",
                               .qkv = "self_attention.query_key_value",
                               .o = "self_attention.dense",
                               .q_norm = "self_attention.q_layernorm",
                               .k_norm = "self_attention.k_layernorm",
                               .mlp_norm = "post_attention_norm",
                               .fc1 = "mlp.dense_h_to_4h",
                               .fc2 = "mlp.dense_4h_to_h",
                               .post_attention_norm = "",
                               .post_mlp_norm = "",
                               .norms_in_linears = false,
                               .o_before_qkv = false};
  switch (dialect) {
    case Dialect::kCore:
      return core;
    case Dialect::kTransformerEngine:
      return engine;
    case Dialect::kLegacy:
      return legacy;
    case Dialect::kMindSpeedMm:
      return multimodal;
  }
  return core;
}

bool has_megatrons_modules(const Form& form) {
  return form.latent == LatentForm::kMegatron || form.dialect == Dialect::kTransformerEngine;
}

const TowerNames& tower_names() {
  static const TowerNames names = {.patches = "image_encoder.encoder.patch_embed.proj",
                                   .block = "image_encoder.encoder.blocks.layers.",
                                   .merger_norm = "image_encoder.projector.layernorm",
                                   .merger_fc1 = "image_encoder.projector.encoder.linear_fc1",
                                   .merger_fc2 = "image_encoder.projector.encoder.linear_fc2"};
  return names;
}

const char* describe(Dialect dialect) {
  switch (dialect) {
    case Dialect::kCore:
      return "Megatron-core";
    case Dialect::kTransformerEngine:
      return "Megatron-core with Transformer-Engine names";
    case Dialect::kLegacy:
      return "legacy Megatron";
    case Dialect::kMindSpeedMm:
      return "MindSpeed-MM";
  }
  return "";
}

}  // namespace danlu::weights::megatron
