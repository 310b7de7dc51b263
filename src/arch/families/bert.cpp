// BERT and XLM-RoBERTa (also RoBERTa, whose network is the same): encoders with learned positions,
// token types, and layer norms after the sums.
#include <utility>

#include "arch/decoder.h"
#include "arch/encoder.h"
#include "arch/families/families.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

void refuse_other_encoders(const ConfigReader& config) {
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (config.boolean_or(key, false))
      throw ModelError(tr("[config.json] {} must be false, got true", key));
  }
  const std::string positions = config.text("position_embedding_type").value_or("absolute");
  if (positions != "absolute") {
    throw ModelError(
        tr("[config.json] position_embedding_type must be absolute, got \"{}\"", positions));
  }
}

ModelConfig parse_encoder(const Json& config_json, std::string family, double norm_eps) {
  const ConfigReader config(config_json);
  refuse_other_encoders(config);
  Json usual = config_json;
  usual["rms_norm_eps"] = config.number_or("layer_norm_eps", norm_eps);
  if (!config.has("max_position_embeddings")) usual["max_position_embeddings"] = 512;
  for (const char* other : {"num_key_value_heads", "head_dim"}) usual.erase(other);
  ModelConfig model = parse_decoder(usual, std::move(family), {.knows_gelu = true});
  model.raw = config_json;
  // The table has a row for each.
  ConfigReader(usual).size_or("max_position_embeddings", 1, kMaxVocab);
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  model.norm = NormKind::kLayer;
  model.norms_embedding = true;
  model.activation = parse_activation("hidden_act", config.text("hidden_act").value_or("gelu"));
  model.is_gated = false;
  model.rope.enabled = false;
  model.tie_embeddings = false;
  model.encoder.emplace();
  model.encoder->token_types = config.size_or("type_vocab_size", 2, kMaxVocab);
  return model;
}

ModelConfig parse_bert(const Json& config_json) {
  ModelConfig model = parse_encoder(config_json, "bert", 1e-12);
  model.encoder->dense = "bert.pooler.dense";
  model.encoder->score = "classifier";
  return model;
}

/// family: "xlm-roberta", or RoBERTa's, which differs in its tokenizer alone.
ModelConfig parse_as_roberta(const Json& config_json, std::string family) {
  ModelConfig model = parse_encoder(config_json, std::move(family), 1e-5);
  model.encoder->dense = "classifier.dense";
  model.encoder->score = "classifier.out_proj";
  // A text's positions begin behind that of padding.
  model.encoder->first_position = model.pad_id.value_or(1) + 1;
  model.max_positions -= model.encoder->first_position;
  if (model.max_positions < 1) {
    throw ModelError(
        tr("[config.json] max_position_embeddings={} has no row behind pad_token_id={}",
           model.max_positions + model.encoder->first_position, model.encoder->first_position - 1));
  }
  return model;
}

ModelConfig parse_roberta(const Json& config_json) {
  return parse_as_roberta(config_json, "roberta");
}

ModelConfig parse_xlm_roberta(const Json& config_json) {
  return parse_as_roberta(config_json, "xlm-roberta");
}

DecoderNames encoder_names(const std::string& body) {
  return {.embedding = body + "embeddings.word_embeddings",
          .embedding_norm = body + "embeddings.LayerNorm",
          .positions = body + "embeddings.position_embeddings",
          .layer = body + "encoder.layer.",
          .attention_norm = "attention.output.LayerNorm",
          .q = "attention.self.query",
          .k = "attention.self.key",
          .v = "attention.self.value",
          .o = "attention.output.dense",
          .mlp_norm = "output.LayerNorm",
          .up = "intermediate.dense",
          .down = "output.dense",
          .token_types = body + "embeddings.token_type_embeddings"};
}

/// What no task of ours reads: a buffer, heads of pre-training, and the pooler where nothing is
/// scored.
std::vector<std::string> ignored_of(const std::string& body) {
  return {"(" + body + R"(\.)?embeddings\.(position_ids|token_type_ids))", R"(cls\..*)",
          R"(lm_head\..*)", "(" + body + R"(\.)?pooler\.dense\.(weight|bias))"};
}

std::vector<ParamSpec> bert_parameters(const ModelConfig& config) {
  return decoder_parameters(config, encoder_names("bert."));
}

std::vector<ParamSpec> roberta_parameters(const ModelConfig& config) {
  return decoder_parameters(config, encoder_names("roberta."));
}

}  // namespace

Family bert_family() {
  return {"bert",
          {"bert"},
          {"BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForCausalLM"},
          parse_bert,
          bert_parameters,
          ignored_of("bert"),
          "bert."};
}

Family roberta_family() {
  return {"roberta",
          {"roberta"},
          {"RobertaModel", "RobertaForMaskedLM", "RobertaForCausalLM"},
          parse_roberta,
          roberta_parameters,
          ignored_of("roberta"),
          "roberta."};
}

Family xlm_roberta_family() {
  return {"xlm-roberta",
          {"xlm-roberta"},
          {"XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForCausalLM"},
          parse_xlm_roberta,
          roberta_parameters,
          ignored_of("roberta"),
          "roberta."};
}

}  // namespace danlu::arch
