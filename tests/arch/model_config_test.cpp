// config.json -> ModelConfig: every family, every spelling, every error.
#include "arch/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arch/decoder.h"
#include "arch/parsed_config.h"
#include "base/error.h"
#include "support/throws.h"
#include "support/tiny_model.h"

namespace danlu::arch {
namespace {

using test::error_of;
using test::tiny_config;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ModelConfig, Llama3WithExplicitKeys) {
  const ModelConfig config = parse(Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
    "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "tie_word_embeddings": false,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"}})"));
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(config.rope.factor, 8.0);
  EXPECT_EQ(config.rope.original_max_positions, 8192);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_THAT(config.eos_ids, ElementsAre(128001, 128008, 128009));
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias || config.tie_embeddings);
  // The published size of Llama 3.1 8B.
  EXPECT_EQ(parameter_count(config), 8030261248);
}

TEST(ModelConfig, PublishedParameterCounts) {
  // Qwen2.5-0.5B: 494,032,768 with tied embeddings.
  Json qwen = tiny_config("qwen2");
  qwen.update({{"vocab_size", 151936},
               {"hidden_size", 896},
               {"intermediate_size", 4864},
               {"num_hidden_layers", 24},
               {"num_attention_heads", 14},
               {"num_key_value_heads", 2},
               {"tie_word_embeddings", true}});
  EXPECT_EQ(parameter_count(parse(qwen)), 494032768);
  // Qwen3-0.6B: 596,049,920 tied, heads of 128.
  Json qwen3 = tiny_config("qwen3");
  qwen3.update({{"vocab_size", 151936},
                {"hidden_size", 1024},
                {"intermediate_size", 3072},
                {"num_hidden_layers", 28},
                {"num_attention_heads", 16},
                {"num_key_value_heads", 8},
                {"head_dim", 128},
                {"tie_word_embeddings", true}});
  EXPECT_EQ(parameter_count(parse(qwen3)), 596049920);
  // Mistral 7B: 7,241,732,096.
  Json mistral = tiny_config("mistral");
  mistral.update({{"vocab_size", 32000},
                  {"hidden_size", 4096},
                  {"intermediate_size", 14336},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32},
                  {"num_key_value_heads", 8}});
  EXPECT_EQ(parameter_count(parse(mistral)), 7241732096);
  // Baichuan2 7B: 7,505,973,248.
  Json baichuan = tiny_config("baichuan");
  baichuan.update({{"vocab_size", 125696},
                   {"hidden_size", 4096},
                   {"intermediate_size", 11008},
                   {"num_hidden_layers", 32},
                   {"num_attention_heads", 32}});
  EXPECT_EQ(parameter_count(parse(baichuan)), 7505973248);
  // InternLM2 7B: 7,737,708,544.
  Json internlm = tiny_config("internlm2");
  internlm.update({{"vocab_size", 92544},
                   {"hidden_size", 4096},
                   {"intermediate_size", 14336},
                   {"num_hidden_layers", 32},
                   {"num_attention_heads", 32},
                   {"num_key_value_heads", 8}});
  EXPECT_EQ(parameter_count(parse(internlm)), 7737708544);
}

TEST(ModelConfig, LlamaDefaultsWhereKeysAreMissing) {
  const ModelConfig config =
      parse(Json::parse(R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 8,
    "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2})"));
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_FALSE(config.tie_embeddings);
  EXPECT_TRUE(config.eos_ids.empty());
  EXPECT_FALSE(config.bos_id.has_value());
}

TEST(ModelConfig, LlamaBiasesFollowTheirKeys) {
  Json json = tiny_config("llama");
  json["attention_bias"] = true;
  json["mlp_bias"] = true;
  const ModelConfig config = parse(json);
  EXPECT_TRUE(config.qkv_bias && config.o_bias && config.mlp_bias);
}

TEST(ModelConfig, TransformersFiveSpellings) {
  Json json = tiny_config("llama");
  json.erase("torch_dtype");
  json["dtype"] = "bfloat16";
  json["rope_parameters"] = {{"rope_type", "yarn"},
                             {"rope_theta", 12345.0},
                             {"factor", 4.0},
                             {"original_max_position_embeddings", 32},
                             {"attention_factor", 1.25}};
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.rope.theta, 12345.0);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(config.rope.attention_factor, 1.25);
  EXPECT_EQ(config.rope.beta_fast, 32.0);
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 77.0}};
  EXPECT_EQ(parse(json).rope.scaling, RopeScaling::kNone);
}

TEST(ModelConfig, RopeScalingByEitherKey) {
  Json json = tiny_config("llama");
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  EXPECT_EQ(parse(json).rope.scaling, RopeScaling::kLinear);
  json["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.5}};
  const RopeConfig dynamic = parse(json).rope;
  EXPECT_EQ(dynamic.scaling, RopeScaling::kDynamic);
  // Dynamic scaling starts where the trained length ends.
  EXPECT_EQ(dynamic.original_max_positions, 128);
  json["rope_scaling"] = nullptr;
  EXPECT_EQ(parse(json).rope.scaling, RopeScaling::kNone);
}

TEST(ModelConfig, Qwen2HasQkvBiasOnlyAndNoWindowUnlessSwitchedOn) {
  Json json = tiny_config("qwen2");
  json["sliding_window"] = 16;
  json["num_hidden_layers"] = 4;
  json["max_window_layers"] = 3;
  ModelConfig config = parse(json);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.o_bias || config.mlp_bias || config.qk_norm);
  EXPECT_THAT(config.sliding_window, ElementsAre(0, 0, 0, 0));
  json["use_sliding_window"] = true;
  EXPECT_THAT(parse(json).sliding_window, ElementsAre(0, 0, 0, 16));
  json["sliding_window"] = nullptr;
  EXPECT_THAT(parse(json).sliding_window, Each(0));
}

TEST(ModelConfig, LayerTypesDecideTheWindowWhenGiven) {
  Json json = tiny_config("qwen3");
  json["use_sliding_window"] = true;
  json["sliding_window"] = 9;
  json["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(parse(json).sliding_window, ElementsAre(9, 0));
  json["layer_types"] = {"sliding_attention"};
  EXPECT_THAT(model_error(json), HasSubstr("layer_types must have one entry per layer (2), got 1"));
  json["layer_types"] = {"sliding_attention", "linear_attention"};
  EXPECT_THAT(model_error(json),
              HasSubstr("layer_types[1] must be full_attention or sliding_attention"));
}

TEST(ModelConfig, Qwen3NormsHeadsAndHasItsOwnHeadDim) {
  Json json = tiny_config("qwen3");
  json.erase("head_dim");
  const ModelConfig config = parse(json);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.head_dim, 128);
}

TEST(ModelConfig, MistralWindowIsOnByDefaultAndOffWhenNull) {
  Json json = tiny_config("mistral");
  EXPECT_THAT(parse(json).sliding_window, ElementsAre(4096, 4096));
  json["sliding_window"] = nullptr;
  EXPECT_THAT(parse(json).sliding_window, ElementsAre(0, 0));
  json["sliding_window"] = 7;
  EXPECT_THAT(parse(json).sliding_window, ElementsAre(7, 7));
}

TEST(ModelConfig, BaichuanKindIsReadFromTheConfigNotTheSize) {
  Json json = tiny_config("baichuan");
  json["z_loss_weight"] = 0.5;
  const ModelConfig seven = parse(json);
  EXPECT_EQ(seven.qkv_layout, QkvLayout::kThirds);
  EXPECT_TRUE(seven.norm_head && seven.rope.enabled);
  EXPECT_FALSE(seven.alibi);
  EXPECT_EQ(seven.z_loss_weight, 0.5);
  json.erase("max_position_embeddings");
  json["model_max_length"] = 64;
  const ModelConfig thirteen = parse(json);
  EXPECT_TRUE(thirteen.alibi && thirteen.norm_head);
  EXPECT_FALSE(thirteen.rope.enabled);
  EXPECT_EQ(thirteen.max_positions, 64);
  json["vocab_size"] = 64000;
  EXPECT_FALSE(parse(json).norm_head);
  json["vocab_size"] = 64001;
  EXPECT_TRUE(parse(json).norm_head);
  json.erase("z_loss_weight");
  EXPECT_FALSE(parse(json).norm_head) << "a token was added to the first Baichuan";
}

TEST(ModelConfig, InternLm2BiasDefaultsToItsClassDefault) {
  Json json = tiny_config("internlm2");
  EXPECT_FALSE(parse(json).qkv_bias);
  json.erase("bias");
  EXPECT_TRUE(parse(json).qkv_bias && parse(json).o_bias);
  EXPECT_FALSE(parse(json).mlp_bias);
}

TEST(ModelConfig, EosIdsAreCompletedFromGenerationConfig) {
  const test::TemporaryDirectory directory;
  write_json_file(directory / "config.json", tiny_config("qwen2"));
  write_json_file(directory / "generation_config.json", {{"eos_token_id", {2, 5}}});
  EXPECT_THAT(load_model_config(directory.path()).eos_ids, ElementsAre(2, 5));
  EXPECT_THAT(load_model_config(directory / "config.json").eos_ids, ElementsAre(2, 5));
}

TEST(ModelConfigErrors, MissingKeysAreNamed) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads"}) {
    Json json = tiny_config("llama");
    json.erase(key);
    EXPECT_THAT(model_error(json), HasSubstr(std::string("required key ") + key + " is missing"));
  }
  EXPECT_THAT(model_error(Json::object()), HasSubstr("required key model_type is missing"));
}

TEST(ModelConfigErrors, WrongTypesAreNamedWithTheValue) {
  const auto with = [](const char* key, Json value) {
    Json json = tiny_config("llama");
    json[key] = std::move(value);
    return model_error(json);
  };
  EXPECT_THAT(with("hidden_size", "32"),
              HasSubstr("hidden_size must be a whole number from 1 to 1048576, got \"32\""));
  EXPECT_THAT(with("hidden_size", -4), HasSubstr("hidden_size must be a whole number"));
  EXPECT_THAT(with("hidden_size", 4.5), HasSubstr("got 4.5"));
  EXPECT_THAT(with("num_hidden_layers", 1000000000),
              HasSubstr("num_hidden_layers must be a whole number from 1 to 4096"));
  EXPECT_THAT(with("rope_theta", "big"), HasSubstr("rope_theta must be a number"));
  EXPECT_THAT(with("rope_theta", 0), HasSubstr("rope_theta must be positive"));
  EXPECT_THAT(with("tie_word_embeddings", 1),
              HasSubstr("tie_word_embeddings must be true or false, got 1"));
  EXPECT_THAT(with("eos_token_id", "x"), HasSubstr("eos_token_id must be a whole number"));
  EXPECT_THAT(with("torch_dtype", "float7"), HasSubstr("torch_dtype \"float7\""));
  EXPECT_THAT(with("hidden_act", "gelu"), HasSubstr("hidden_act must be silu, got \"gelu\""));
  EXPECT_THAT(with("rope_scaling", 3), HasSubstr("rope_scaling must be a JSON object, got 3"));
  EXPECT_THAT(with("rope_scaling", {{"type", "mrope"}}), HasSubstr("got \"mrope\""));
  EXPECT_THAT(with("rope_scaling", {{"type", "default"}, {"mrope_section", {2, 1, 1}}}),
              HasSubstr("mrope_section is for models that see pictures"));
  EXPECT_THAT(with("rope_scaling", {{"type", "linear"}}),
              HasSubstr("\"linear\" needs the key factor"));
  EXPECT_THAT(with("rope_scaling", {{"type", "linear"}, {"factor", 0.5}}),
              HasSubstr("at least 1, got 0.5"));
  EXPECT_THAT(with("quantization_config", {{"quant_method", "gptq"}, {"bits", 5}}),
              HasSubstr("quantised weights (gptq, bits 5)"));
  EXPECT_THAT(with("quantization_config", {{"quant_method", "awq"}, {"version", "gemv"}}),
              HasSubstr("quantised weights (awq, version \"gemv\")"));
  EXPECT_THAT(with("quantization_config",
                   {{"quant_method", "compressed-tensors"}, {"format", "marlin-24"}}),
              HasSubstr("quantised weights (compressed-tensors, format \"marlin-24\")"));
  EXPECT_THAT(with("quantization_config", {{"quant_method", "hqq"}}),
              HasSubstr("quantised weights (hqq)"));
  EXPECT_THAT(with("partial_rotary_factor", 0.5),
              HasSubstr("partial_rotary_factor must be 1, got 0.5"));
}

/// As the hub's files spell them, as transformers rewrites them, and with long contexts.
TEST(RopeOfThreeAxes, IsReadWhereAModelMayHaveIt) {
  const auto read = [](const Json& scaling) {
    const Json json{{"rope_scaling", scaling}};
    ModelConfig model;
    model.head_dim = 128;
    model.max_positions = 32768;
    return parse_rope(ConfigReader(json), model, {.rope_theta = 1e6, .has_three_axes = true});
  };
  EXPECT_THAT(read({{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}).mrope_section,
              ElementsAre(16, 24, 24));
  const RopeConfig rewritten =
      read({{"rope_type", "default"}, {"type", "default"}, {"mrope_section", {2, 2, 3}}});
  EXPECT_THAT(rewritten.mrope_section, ElementsAre(2, 2, 3));
  EXPECT_EQ(rewritten.scaling, RopeScaling::kNone);
  const RopeConfig longer =
      read({{"type", "yarn"}, {"factor", 4.0}, {"mrope_section", {16, 24, 24}}});
  EXPECT_THAT(longer.mrope_section, ElementsAre(16, 24, 24));
  EXPECT_EQ(longer.scaling, RopeScaling::kYarn);
  EXPECT_TRUE(read({{"type", "default"}}).mrope_section.empty());
  const auto refused = [&](const Json& sections) {
    return test::error_of<ModelError>(
        [&] { read({{"type", "mrope"}, {"mrope_section", sections}}); });
  };
  for (const Json& sections : {Json({1, 2}), Json({1, 2, 0}), Json({1, 1, 1, 1}), Json()})
    EXPECT_THAT(refused(sections), HasSubstr("three counts, of time, height and width"));
}

TEST(RopeOfThreeAxes, DividesTheWholeHead) {
  ModelConfig config = parse(tiny_config("llama"));
  const int64_t pairs = config.head_dim / 2;
  config.rope.mrope_section = {1, 1, pairs - 2};
  EXPECT_NO_THROW(config.validate());
  config.rope.mrope_section = {1, 1, pairs - 1};
  EXPECT_THAT(test::error_of<ModelError>([&] { config.validate(); }),
              HasSubstr("mrope_section divides"));
}

TEST(ModelConfigErrors, ImpossibleCombinationsShowBothNumbers) {
  Json json = tiny_config("llama");
  json["num_key_value_heads"] = 3;
  EXPECT_THAT(model_error(json),
              HasSubstr("num_key_value_heads=3 must divide num_attention_heads=4"));
  json = tiny_config("llama");
  json["hidden_size"] = 33;
  EXPECT_THAT(model_error(json), HasSubstr("num_attention_heads=4 must divide hidden_size=33"));
  json["head_dim"] = 7;
  EXPECT_THAT(model_error(json), HasSubstr("even head_dim, got 7"));
  json = tiny_config("baichuan");
  json["num_key_value_heads"] = 2;
  EXPECT_THAT(model_error(json),
              HasSubstr("num_key_value_heads=2 must equal num_attention_heads=4"));
}

TEST(ModelConfigErrors, UnsupportedArchitecturesListTheSupportedAndTheNearest) {
  const std::string ministral = model_error({{"model_type", "ministral"}});
  EXPECT_THAT(
      ministral,
      HasSubstr("unsupported architecture \"ministral\"; supported: llama, aquila, qwen2, qwen3, "
                "mistral, baichuan, internlm2, mixtral, qwen2_moe, qwen3_moe, glm4_moe, "
                "phimoe, qwen2_vl, "
                "qwen2_5_vl"));
  EXPECT_THAT(ministral, HasSubstr("nearest supported one is mistral"));
  EXPECT_THAT(model_error({{"model_type", "internlm2_reward_model"}}),
              HasSubstr("nearest supported one is internlm2"));
  EXPECT_THAT(model_error({{"model_type", "gpt_neox"}}),
              HasSubstr("unsupported architecture \"gpt_neox\""));
  // A known body under another head is another model.
  EXPECT_THAT(
      model_error({{"model_type", "llama"}, {"architectures", {"LlamaForSequenceClassification"}}}),
      HasSubstr("unsupported architecture \"LlamaForSequenceClassification\""));
}

TEST(ModelConfigErrors, FilesAreNamed) {
  const test::TemporaryDirectory directory;
  EXPECT_THAT(error_of<ModelError>([&] { load_model_config(directory.path()); }),
              HasSubstr("no config.json"));
  write_file_atomic(directory / "config.json", "{\"model_type\": ");
  EXPECT_THAT(error_of<ModelError>([&] { load_model_config(directory.path()); }),
              HasSubstr("config.json:1:"));
  write_file_atomic(directory / "config.json", "[1]");
  EXPECT_THAT(error_of<ModelError>([&] { load_model_config(directory.path()); }),
              HasSubstr("config.json: the file must be a JSON object, got [1]"));
}

TEST(Parameters, InternLm2NamesAndFusedRows) {
  const auto specs = parameters_of(parse(tiny_config("internlm2")));
  EXPECT_EQ(specs[0].name, "model.tok_embeddings.weight");
  EXPECT_EQ(specs[2].name, "model.layers.0.attention.wqkv.weight");
  // 4 query heads + 2 keys + 2 values of 8.
  EXPECT_THAT(specs[2].shape, ElementsAre(64, 32));
  EXPECT_EQ(specs[2].cut, Cut::kKvGroups);
  EXPECT_EQ(specs[3].name, "model.layers.0.attention.wo.weight");
  EXPECT_EQ(specs[5].name, "model.layers.0.feed_forward.w1.weight");
  EXPECT_EQ(specs[5].role, Role::kGate);
  EXPECT_EQ(specs[6].name, "model.layers.0.feed_forward.w3.weight");
  EXPECT_EQ(specs[7].name, "model.layers.0.feed_forward.w2.weight");
  EXPECT_EQ(specs.back().name, "output.weight");
}

TEST(Parameters, BiasOfAColumnSplitProductIsReplicated) {
  Json json = tiny_config("llama");
  json["attention_bias"] = true;
  for (const ParamSpec& spec : parameters_of(parse(json))) {
    if (spec.role == Role::kO) {
      EXPECT_EQ(spec.cut, spec.is_bias ? Cut::kCopiedBetween : Cut::kColumns) << spec.name;
    } else if (spec.role == Role::kQ) {
      EXPECT_EQ(spec.cut, Cut::kKvGroups) << spec.name;
    }
  }
}

TEST(Parameters, ATiedHeadNamesTheEmbedding) {
  Json json = tiny_config("qwen2");
  json["tie_word_embeddings"] = true;
  const auto specs = parameters_of(parse(json));
  EXPECT_EQ(specs.back().name, "lm_head.weight");
  EXPECT_EQ(specs.back().tied_to, "model.embed_tokens.weight");
}

}  // namespace
}  // namespace danlu::arch
