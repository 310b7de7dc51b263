// Models as GGUF: the tensors and keys that llama.cpp's own converter writes, and refusals.
#include "weights/gguf/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "support/plain_gguf.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "weights/exported_gguf.h"
#include "weights/gguf/gguf_architecture.h"
#include "weights/gguf/gguf_checkpoint.h"
#include "weights/gguf/gguf_reader.h"

namespace danlu::weights::gguf {
namespace {

using test::error_of;
using test::tiny_config;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

arch::ModelConfig config_of(const Json& json) {
  arch::ModelConfig config = arch::family_of(json).parse(json);
  config.validate();
  return config;
}

TEST(GgufModel, HasTheTensorsOfLlamaCppsOwnConversionBitForBit) {
  DANLU_REQUIRES_SHARED();
  const auto stories = test::shared_dir() / "data" / "models" / "stories260K";
  const Exported ours(stories / "hf", TensorType::kF32);
  const test::PlainGguf written(ours.file()), theirs(stories / "stories260K.gguf");
  // Theirs repeats the tied embedding as output.weight.
  EXPECT_EQ(written.tensors.size() + 1, theirs.tensors.size());
  for (const auto& [name, tensor] : written.tensors) {
    ASSERT_TRUE(theirs.tensors.contains(name)) << name;
    EXPECT_EQ(tensor.shape, theirs.tensors.at(name).shape) << name;
    size_t count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
    EXPECT_EQ(written.floats(name, count), theirs.floats(name, count)) << name;
  }
  for (const char* name :
       {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.attention.layer_norm_rms_epsilon", "llama.rope.dimension_count"})
    EXPECT_EQ(written.numbers.at(name), theirs.numbers.at(name)) << name;
  EXPECT_EQ(written.texts.at("general.architecture"), "llama");
  EXPECT_EQ(written.numbers.at("general.file_type"), 0);
  EXPECT_EQ(written.numbers.at("llama.context_length"), 512);
}

TEST(GgufModel, QwenKeepsItsRowsAndBiases) {
  Json json = tiny_config("qwen2");
  json["tie_word_embeddings"] = true;
  const Exported qwen(json);
  EXPECT_EQ(qwen.gguf->find("output.weight"), nullptr);
  for (const char* part : {"q", "k", "v"}) {
    const std::string ours = std::string("blk.1.attn_") + part,
                      hf = std::string("model.layers.1.self_attn.") + part + "_proj";
    EXPECT_EQ(qwen.numbers_of(ours + ".weight"), Exported::read(*qwen.source, hf + ".weight"));
    EXPECT_EQ(qwen.numbers_of(ours + ".bias"), Exported::read(*qwen.source, hf + ".bias"));
  }
  EXPECT_EQ(qwen.numbers_of("blk.0.ffn_down.weight"),
            Exported::read(*qwen.source, "model.layers.0.mlp.down_proj.weight"));
  EXPECT_EQ(key<std::string>(qwen.plan, "general.architecture"), "qwen2");
  EXPECT_EQ(key<float>(qwen.plan, "qwen2.rope.freq_base"), 10000.0f);
}

TEST(GgufModel, RowsOfFusedAndTurnedMatrices) {
  // InternLM2: 4 query heads of 8 in 2 groups; wqkv has per group 2 query heads, a key, a value.
  // llama.cpp's row 2j of a head is Hugging Face's row j, its row 2j + 1 is row j + 4.
  const Exported intern(tiny_config("internlm2"));
  const std::string fused = "model.layers.0.attention.wqkv.weight";
  EXPECT_EQ(intern.gguf_row("blk.0.attn_q.weight", 0), intern.row(fused, 0));
  EXPECT_EQ(intern.gguf_row("blk.0.attn_q.weight", 1), intern.row(fused, 4));
  EXPECT_EQ(intern.gguf_row("blk.0.attn_q.weight", 2), intern.row(fused, 1));
  EXPECT_EQ(intern.gguf_row("blk.0.attn_q.weight", 7), intern.row(fused, 7));
  // Head 2 is the first of group 1, which begins at row 32.
  EXPECT_EQ(intern.gguf_row("blk.0.attn_q.weight", 17), intern.row(fused, 32 + 4));
  EXPECT_EQ(intern.gguf_row("blk.0.attn_k.weight", 1), intern.row(fused, 16 + 4));
  EXPECT_EQ(intern.gguf_row("blk.0.attn_k.weight", 8), intern.row(fused, 32 + 16));
  EXPECT_EQ(intern.gguf_row("blk.0.attn_v.weight", 1), intern.row(fused, 24 + 1));
  EXPECT_EQ(intern.gguf_row("blk.0.attn_v.weight", 9), intern.row(fused, 32 + 24 + 1));
}

TEST(GgufModel, BaichuanOneIsThirds) {
  Json json = tiny_config("baichuan");
  json.update({{"vocab_size", 64000}, {"num_hidden_layers", 32}});
  const Exported rotary(json);
  const std::string fused = "model.layers.3.self_attn.W_pack.weight";
  EXPECT_EQ(rotary.gguf_row("blk.3.attn_q.weight", 9), rotary.row(fused, 8 + 4));
  EXPECT_EQ(rotary.gguf_row("blk.3.attn_k.weight", 9), rotary.row(fused, 32 + 8 + 4));
  EXPECT_EQ(rotary.gguf_row("blk.3.attn_v.weight", 9), rotary.row(fused, 64 + 9));
  // Without rotary embedding nothing is turned.
  json["num_hidden_layers"] = 40;
  json["model_max_length"] = 64;
  json.erase("max_position_embeddings");
  const Exported alibi(json);
  EXPECT_EQ(alibi.gguf_row("blk.3.attn_k.weight", 9), alibi.row(fused, 32 + 9));
}

TEST(GgufModel, ExpertsAreStackedAndTheirRouterStaysF32) {
  const Exported model(tiny_config("qwen2_moe"), TensorType::kF16);
  const TensorInfo* gates = model.gguf->find("blk.1.ffn_gate_exps.weight");
  EXPECT_THAT(gates->shape, ElementsAre(4, 24, 32));
  EXPECT_EQ(gates->dtype, DType::kF16);
  std::vector<uint16_t> halves(24 * 32);
  model.gguf->read_range("blk.1.ffn_gate_exps.weight", 2 * 24 * 32, 3 * 24 * 32,
                         std::as_writable_bytes(std::span(halves)));
  const auto numbers =
      Exported::read(*model.source, "model.layers.1.mlp.experts.2.gate_proj.weight");
  for (size_t i = 0; i < halves.size(); ++i) EXPECT_EQ(halves[i], float_to_f16(numbers[i]));
  EXPECT_THAT(model.gguf->find("blk.1.ffn_down_exps.weight")->shape, ElementsAre(4, 32, 24));
  EXPECT_EQ(model.gguf->find("blk.1.ffn_gate_inp.weight")->dtype, DType::kF32);
  EXPECT_THAT(model.gguf->find("blk.1.ffn_gate_inp_shexp.weight")->shape, ElementsAre(32));
  EXPECT_THAT(model.gguf->find("blk.1.ffn_up_shexp.weight")->shape, ElementsAre(40, 32));
  EXPECT_EQ(key<std::string>(model.plan, "general.architecture"), "qwen2moe");
  EXPECT_EQ(key<uint32_t>(model.plan, "qwen2moe.expert_count"), 4u);
  EXPECT_EQ(key<uint32_t>(model.plan, "qwen2moe.expert_used_count"), 2u);
  EXPECT_EQ(key<uint32_t>(model.plan, "qwen2moe.expert_feed_forward_length"), 24u);
  EXPECT_EQ(key<uint32_t>(model.plan, "qwen2moe.expert_shared_feed_forward_length"), 40u);
}

TEST(GgufModel, MixtralIsALlamaWithExperts) {
  const Exported model(tiny_config("mixtral"));
  EXPECT_EQ(key<std::string>(model.plan, "general.architecture"), "llama");
  EXPECT_EQ(key<uint32_t>(model.plan, "llama.expert_count"), 4u);
  EXPECT_EQ(find(model.plan.metadata, "llama.expert_feed_forward_length"), nullptr);
  const auto ups = model.numbers_of("blk.0.ffn_up_exps.weight");
  const auto w3 =
      Exported::read(*model.source, "model.layers.0.block_sparse_moe.experts.3.w3.weight");
  EXPECT_TRUE(std::equal(w3.begin(), w3.end(), ups.begin() + 3 * 56 * 32));
}

const Json kLongrope = {{"type", "longrope"},
                        {"short_factor", {1.0, 1.1, 1.25}},
                        {"long_factor", {1.5, 2.5, 4.0}},
                        {"original_max_position_embeddings", 32}};

/// Files of these families come back as the model they were made of, bit for bit.
TEST(GgufModel, JoinedMatricesPostNormsAndFactorsComeBack) {
  Json phi3 = tiny_config("phi3"), minicpm = tiny_config("minicpm"), wide = tiny_config("chatglm");
  phi3.update(
      {{"rope_scaling", kLongrope}, {"partial_rotary_factor", 0.75}, {"sliding_window", 9}});
  minicpm["tie_word_embeddings"] = true;
  wide["rope_ratio"] = 50;
  for (const Json& json : {phi3, minicpm, tiny_config("chatglm"), wide, tiny_config("glm"),
                           tiny_config("glm4"), tiny_config("bloom"), tiny_config("gpt2")}) {
    const Exported model(json);
    const Checkpoint opened = open_checkpoint(model.file());
    EXPECT_EQ(opened.config.family, model.config.family);
    ASSERT_EQ(opened.model->tensors().size(), model.source->tensors().size());
    for (const TensorInfo& info : model.source->tensors()) {
      ASSERT_NE(opened.model->find(info.name), nullptr) << info.name;
      EXPECT_EQ(Exported::read(*opened.model, info.name), Exported::read(*model.source, info.name))
          << info.name;
    }
    const arch::RopeConfig &read = opened.config.rope, &rope = model.config.rope;
    EXPECT_EQ(read.theta, rope.theta);
    EXPECT_EQ(read.rotated_dims, rope.rotated_dims);
    EXPECT_EQ(read.is_pairwise, rope.is_pairwise);
    EXPECT_EQ(read.scaling, rope.scaling);
    EXPECT_EQ(read.short_factors, rope.short_factors);
    EXPECT_EQ(read.long_factors, rope.long_factors);
    EXPECT_EQ(read.original_max_positions, rope.original_max_positions);
    EXPECT_EQ(read.factor, rope.factor);
    EXPECT_EQ(opened.config.sliding_window, model.config.sliding_window);
    EXPECT_EQ(opened.config.embedding_scale, model.config.embedding_scale);
    EXPECT_EQ(opened.config.residual_scale, model.config.residual_scale);
    EXPECT_EQ(opened.config.logit_scale, model.config.logit_scale);
    EXPECT_EQ(opened.config.qkv_bias, model.config.qkv_bias);
    EXPECT_EQ(opened.config.has_post_norms, model.config.has_post_norms);
  }
}

TEST(GgufModel, FurtherFamiliesHaveLlamaCppsNames) {
  const Exported phi3(tiny_config("phi3")), glm(tiny_config("chatglm")), glm4(tiny_config("glm4")),
      minicpm(tiny_config("minicpm"));
  // 4 query heads, 2 keys and 2 values of 8; gate and up of 56.
  EXPECT_THAT(phi3.gguf->find("blk.1.attn_qkv.weight")->shape, ElementsAre(64, 32));
  EXPECT_THAT(phi3.gguf->find("blk.1.ffn_up.weight")->shape, ElementsAre(112, 32));
  EXPECT_EQ(phi3.gguf->find("blk.1.ffn_gate.weight"), nullptr);
  EXPECT_EQ(key<uint32_t>(phi3.plan, "phi3.rope.dimension_count"), 8u);
  EXPECT_THAT(glm.gguf->find("blk.0.attn_qkv.bias")->shape, ElementsAre(64));
  EXPECT_EQ(key<std::string>(glm.plan, "general.architecture"), "chatglm");
  EXPECT_EQ(key<uint32_t>(glm.plan, "chatglm.rope.dimension_count"), 4u);
  EXPECT_EQ(glm4.numbers_of("blk.1.post_attention_norm.weight"),
            Exported::read(*glm4.source, "model.layers.1.post_self_attn_layernorm.weight"));
  EXPECT_EQ(glm4.numbers_of("blk.1.post_ffw_norm.weight"),
            Exported::read(*glm4.source, "model.layers.1.post_mlp_layernorm.weight"));
  EXPECT_EQ(glm4.numbers_of("blk.1.ffn_norm.weight"),
            Exported::read(*glm4.source, "model.layers.1.post_attention_layernorm.weight"));
  EXPECT_EQ(key<float>(minicpm.plan, "minicpm.logit_scale"), 2.0f);  // 32 / 16
  EXPECT_EQ(minicpm.gguf_row("blk.0.attn_q.weight", 1),
            minicpm.row("model.layers.0.self_attn.q_proj.weight", 4));
}

TEST(GgufModel, BloomsRowsAreQueriesKeysAndValues) {
  const Exported bloom(tiny_config("bloom"));
  // The fused matrix has 4 heads of 8: each one's query, key and value, then the next head's.
  const std::string fused = "transformer.h.1.self_attention.query_key_value.weight";
  EXPECT_THAT(bloom.gguf->find("blk.1.attn_qkv.weight")->shape, ElementsAre(96, 32));
  EXPECT_EQ(bloom.gguf_row("blk.1.attn_qkv.weight", 9), bloom.row(fused, 24 + 1));
  EXPECT_EQ(bloom.gguf_row("blk.1.attn_qkv.weight", 32 + 9), bloom.row(fused, 24 + 8 + 1));
  EXPECT_EQ(bloom.gguf_row("blk.1.attn_qkv.weight", 64 + 9), bloom.row(fused, 24 + 16 + 1));
  EXPECT_EQ(bloom.numbers_of("token_embd_norm.bias"),
            Exported::read(*bloom.source, "transformer.word_embeddings_layernorm.bias"));
  EXPECT_EQ(key<std::string>(bloom.plan, "general.architecture"), "bloom");
  EXPECT_EQ(key<float>(bloom.plan, "bloom.attention.layer_norm_epsilon"), 1e-5f);
  EXPECT_EQ(find(bloom.plan.metadata, "bloom.attention.layer_norm_rms_epsilon"), nullptr);
}

TEST(GgufModel, AHeadThatIsTiedIsRepeatedWhereLlamaCppAsksForIt) {
  Json json = tiny_config("internlm2");
  json["tie_word_embeddings"] = true;
  const Exported model(json);
  EXPECT_EQ(model.numbers_of("output.weight"), model.numbers_of("token_embd.weight"));
}

TEST(GgufModel, TypesOfVectorsMatricesAndNarrowRows) {
  // Rows of 56 do not fill blocks of 32: the two down_proj become F16.
  const Exported model(tiny_config("llama"), TensorType::kQ8_0);
  const test::PlainGguf plain(model.file());
  EXPECT_EQ(plain.tensors.at("token_embd.weight").type, 8u);
  EXPECT_EQ(plain.tensors.at("blk.0.attn_q.weight").type, 8u);
  EXPECT_EQ(plain.tensors.at("blk.0.ffn_down.weight").type, 1u);
  EXPECT_EQ(plain.tensors.at("blk.0.attn_norm.weight").type, 0u);
  EXPECT_EQ(plain.numbers.at("general.file_type"), 7);
  EXPECT_THAT(
      model.plan.notes,
      ElementsAre("2 tensors have rows that are no multiple of 32: stored as F16 instead of "
                  "Q8_0: blk.0.ffn_down.weight, blk.1.ffn_down.weight"));
  EXPECT_THAT(model.plan.warnings, IsEmpty());
  // Half a step of the scale, which is a 127th of the block's largest magnitude; F16 scales add
  // 2^-11 of it.
  const auto exact = Exported::read(*model.source, "model.layers.0.mlp.up_proj.weight");
  const auto stored = model.numbers_of("blk.0.ffn_up.weight");
  for (size_t block = 0; block < exact.size(); block += 32) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(exact[block + i]));
    for (size_t i = block; i < block + 32; ++i)
      ASSERT_THAT(stored[i], FloatNear(exact[i], largest * (0.5f / 127 + 0x1p-11f)));
  }
}

/// The bytes that ggml's reference makes of 32 numbers: the one of the largest magnitude becomes -8
/// steps, and quotients are rounded by adding a half.
std::string q4_0_block(const float* numbers) {
  float extreme = 0;
  for (int i = 0; i < 32; ++i)
    if (std::fabs(numbers[i]) > std::fabs(extreme)) extreme = numbers[i];
  const float step = extreme / -8;
  const uint16_t half = float_to_f16(step);
  std::string block(reinterpret_cast<const char*>(&half), 2);
  const auto code = [&](float number) {
    const int rounded = static_cast<int>(step == 0 ? 8.5f : number * (1 / step) + 8.5f);
    return rounded > 15 ? 15 : rounded;
  };
  for (int i = 0; i < 16; ++i)
    block += static_cast<char>(code(numbers[i]) | code(numbers[i + 16]) << 4);
  return block;
}

TEST(GgufModel, Q4_0IsWhatLlamaCppsReferenceMakes) {
  const Exported model(tiny_config("llama"), TensorType::kQ4_0);
  const test::PlainGguf plain(model.file());
  EXPECT_EQ(plain.numbers.at("general.file_type"), 2);
  // The ends of the model get 8 bits, vectors stay F32, rows of 56 are F16.
  EXPECT_EQ(plain.tensors.at("token_embd.weight").type, 8u);
  EXPECT_EQ(plain.tensors.at("output.weight").type, 8u);
  EXPECT_EQ(plain.tensors.at("blk.0.attn_q.weight").type, 2u);
  EXPECT_EQ(plain.tensors.at("blk.0.ffn_down.weight").type, 1u);
  EXPECT_EQ(plain.tensors.at("output_norm.weight").type, 0u);
  EXPECT_THAT(model.plan.notes, ElementsAre(HasSubstr("instead of Q4_0: blk.0.ffn_down.weight")));
  const auto exact = Exported::read(*model.source, "model.layers.0.mlp.up_proj.weight");
  std::string expected;
  for (size_t at = 0; at < exact.size(); at += 32) expected += q4_0_block(exact.data() + at);
  const size_t begin = plain.tensors.at("blk.0.ffn_up.weight").offset;
  EXPECT_EQ(plain.bytes.substr(begin, expected.size()), expected);
}

TEST(GgufModel, AFileIsNotCalledAfterATypeThatNothingInItHas) {
  Json json = tiny_config("llama");
  json["hidden_size"] = 40;
  json["num_attention_heads"] = 2;
  json["num_key_value_heads"] = 1;
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_0}) {
    const Exported model(json, type);
    EXPECT_EQ(test::PlainGguf(model.file()).numbers.at("general.file_type"), 1);  // F16
    EXPECT_EQ(model.plan.type, TensorType::kF16);
    EXPECT_THAT(model.plan.warnings, ElementsAre(HasSubstr("nothing is quantised")));
  }
}

/// A model whose file holds one matrix in blocks of another type, any bits with scales of 1.
struct WithBlocks {
  std::string bytes;
  std::filesystem::path file;
  WithBlocks(Exported& model, const std::string& name, uint32_t type) {
    ModelPlan& plan = model.plan;
    const auto at = std::find_if(plan.tensors.begin(), plan.tensors.end(),
                                 [&](const PlannedTensor& tensor) { return tensor.name == name; });
    ConstantTensor constant{.tensor = *at, .bytes = {}};
    constant.tensor.type = static_cast<TensorType>(type);
    uint32_t state = type;
    for (uint64_t i = 0; i < gguf::size_bytes(constant.tensor); ++i) {
      state = state * 1103515245u + 12345u;
      // No half made of two such bytes is infinite.
      bytes += static_cast<char>((state >> 16) & 0x3Bu);
    }
    constant.bytes = bytes;
    plan.layout.tensors.erase(plan.layout.tensors.begin() + (at - plan.tensors.begin()));
    plan.tensors.erase(at);
    plan.constants.push_back(constant);
    file = model.file_with("general.name", std::string("blocks"));
  }
};

TEST(GgufModel, BlocksThatNoProductTakesAreWidenedAndCounted) {
  Json json = tiny_config("llama");
  json["intermediate_size"] = 256;
  for (const BlockType type : {BlockType::kQ4_1, BlockType::kQ5_0, BlockType::kQ5_1,
                               BlockType::kQ2_K, BlockType::kQ3_K, BlockType::kQ5_K}) {
    SCOPED_TRACE(block_traits(type).name);
    Exported model(json);
    uint32_t number = 0;
    while (block_type(number) != type) ++number;
    const WithBlocks made(model, "blk.1.ffn_down.weight", number);
    const Checkpoint opened = open_checkpoint(made.file);
    const std::string name = "model.layers.1.mlp.down_proj.weight";
    std::vector<float> expected(static_cast<size_t>(opened.model->find(name)->num_elements()));
    dequantize(type, reinterpret_cast<const std::byte*>(made.bytes.data()), expected.size(),
               expected.data());
    EXPECT_EQ(Exported::read(*opened.model, name), expected);
    EXPECT_FALSE(opened.blocks);
    EXPECT_THAT(opened.widened.types, ElementsAre(std::string(block_traits(type).name)));
    EXPECT_EQ(opened.widened.tensors, 1);
    EXPECT_EQ(opened.widened.elements, static_cast<int64_t>(expected.size()));
    EXPECT_EQ(opened.model->storage(name).size_bytes, made.bytes.size());
  }
}

TEST(GgufModelErrors, BlocksOfATypeThatIsNotRead) {
  Exported model(tiny_config("llama"));
  const WithBlocks made(model, "blk.0.ffn_up.weight", 20);
  const Checkpoint opened = open_checkpoint(made.file);
  EXPECT_THAT(error_of<ModelError>(
                  [&] { Exported::read(*opened.model, "model.layers.0.mlp.up_proj.weight"); }),
              HasSubstr("tensor blk.0.ffn_up.weight is stored as IQ4_NL; F32, F16, BF16, Q8_0"));
}

TEST(GgufModel, EveryIdThatEndsAnAnswerIsTaken) {
  const Exported model(tiny_config("llama"));
  EXPECT_THAT(
      open_checkpoint(model.file_with("tokenizer.ggml.eot_token_id", uint32_t{5})).config.eos_ids,
      ElementsAre(5));
  // As old converters write that there is none.
  EXPECT_THAT(
      open_checkpoint(model.file_with("tokenizer.ggml.eos_token_id", 4294967295u)).config.eos_ids,
      IsEmpty());
}

TEST(GgufModel, WithoutABaseOfTheRotaryEmbeddingItIsLlamaCpps) {
  // Mixtral's own default is a million.
  Exported model(tiny_config("mixtral"));
  std::erase_if(model.plan.metadata,
                [](const auto& pair) { return pair.first == "llama.rope.freq_base"; });
  log::set_verbose(true);  // other tests have used up the notices that are shown
  testing::internal::CaptureStderr();
  const auto file = model.file_with("general.name", std::string("old"));
  EXPECT_EQ(open_checkpoint(file).config.rope.theta, 10000);
  EXPECT_EQ(open_checkpoint(file).config.rope.theta, 10000);
  const std::string said = testing::internal::GetCapturedStderr();
  log::set_verbose(false);
  EXPECT_THAT(said, HasSubstr("no llama.rope.freq_base in it: 10000 is taken"));
  EXPECT_EQ(said.find("freq_base"), said.rfind("freq_base"));  // once
}

/// Rows of q and k lie in another order in the file, and internlm2's are parts of one matrix.
TEST(GgufModel, BlocksUnderHuggingFacesNamesAreWhatItsReaderDecodes) {
  for (const char* family : {"llama", "qwen2", "internlm2", "bloom", "gpt2"}) {
    const Exported model(tiny_config(family), TensorType::kQ8_0);
    const Checkpoint opened = open_checkpoint(model.file());
    ASSERT_TRUE(opened.blocks) << family;
    for (const TensorInfo& info : opened.model->tensors()) {
      const bool is_held = opened.blocks->types.count(info.name) > 0;
      const bool is_multiplied = info.name != "transformer.wpe.weight";
      EXPECT_EQ(is_held, is_multiplied && info.shape.size() == 2 && info.shape[1] % 32 == 0)
          << info.name;
      if (!is_held) continue;
      const std::vector<float> decoded = Exported::read(*opened.model, info.name);
      std::vector<std::byte> bytes(opened.blocks->bytes->find(info.name)->size_bytes());
      opened.blocks->bytes->read_rect(
          info.name, matrix_of(opened.blocks->bytes->find(info.name)->shape), bytes.data(),
          opened.blocks->bytes->find(info.name)->shape[1]);
      std::vector<float> numbers(decoded.size());
      dequantize(opened.blocks->types.at(info.name), bytes.data(), numbers.size(), numbers.data());
      EXPECT_EQ(numbers, decoded) << family << " " << info.name;
    }
  }
}

TEST(GgufModel, WhatIsReadAsF32IsDescribedAsItIsStored) {
  // A row of 32 numbers is a block of 34 bytes; rows of 56 are F16, vectors F32.
  for (const char* family : {"llama", "qwen2", "internlm2"}) {
    const Exported model(tiny_config(family), TensorType::kQ8_0);
    const auto opened = open_checkpoint(model.file()).model;
    uint64_t all = 0, in_file = 0;
    for (const TensorInfo& info : opened->tensors()) {
      const auto numbers = static_cast<uint64_t>(info.num_elements());
      const bool is_matrix = info.shape.size() == 2, in_blocks = info.shape.back() % 32 == 0;
      const Storage storage = opened->storage(info.name);
      EXPECT_EQ(storage.type, !is_matrix ? "F32" : in_blocks ? "Q8_0" : "F16") << info.name;
      EXPECT_EQ(storage.size_bytes, !is_matrix  ? numbers * 4
                                    : in_blocks ? numbers / 32 * 34
                                                : numbers * 2)
          << family << " " << info.name;
      all += storage.size_bytes;
    }
    for (const TensorInfo& info : model.gguf->tensors())
      in_file += model.gguf->storage(info.name).size_bytes;
    EXPECT_EQ(all, in_file) << family;
    EXPECT_EQ(open_blocks(model.file())->storage("token_embd.weight").type, "U8");
  }
}

TEST(GgufModel, RopeScalingKeysAndTheFactorsOfLlama3) {
  Json json = tiny_config("llama");
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  std::vector<std::string> notes;
  const auto keys = [&] {
    ModelPlan plan;
    plan.metadata = model_metadata(config_of(json), TensorType::kF32, "", notes);
    return plan;
  };
  EXPECT_EQ(key<std::string>(keys(), "llama.rope.scaling.type"), "linear");
  EXPECT_EQ(key<float>(keys(), "llama.rope.scaling.factor"), 2.0f);
  json["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  EXPECT_EQ(key<std::string>(keys(), "llama.rope.scaling.type"), "yarn");
  EXPECT_EQ(key<uint32_t>(keys(), "llama.rope.scaling.original_context_length"), 32u);
  json["head_dim"] = 16;
  EXPECT_EQ(key<uint32_t>(keys(), "llama.attention.key_length"), 16u);
  EXPECT_EQ(key<uint32_t>(keys(), "llama.rope.dimension_count"), 16u);
  EXPECT_THAT(notes, IsEmpty());

  json["rope_theta"] = 500000.0;
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 64}};
  // transformers' formula in numpy: frequencies 500000^(-2i/16), turns within 64 positions
  // 10.186, 1.9753, 0.3830, …: the first is kept, the second lies between, the rest are divided.
  EXPECT_THAT(llama3_frequency_factors(config_of(json)),
              ElementsAre(1, FloatNear(2.44226f, 1e-3f), 8, 8, 8, 8, 8, 8));
  const Exported model(json);
  EXPECT_EQ(model.numbers_of("rope_freqs.weight"), llama3_frequency_factors(config_of(json)));
}

TEST(GgufModel, WindowsThatLlamaCppLeavesOutAreTold) {
  Json json = tiny_config("mistral");
  json["sliding_window"] = 16;
  std::vector<std::string> notes;
  model_metadata(config_of(json), TensorType::kF32, "", notes);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("beyond 16 tokens it attends to all")));
}

TEST(GgufModel, ADoubleOfAnySizeIsTakenAsItIs) {
  const Exported model(tiny_config("llama"));
  const auto file = model.file_with("llama.attention.layer_norm_rms_epsilon", 5e-324);
  EXPECT_EQ(open_checkpoint(file).config.norm_eps, 5e-324);
}

TEST(GgufModelErrors, AnIdThatIsNoWholeNumber) {
  const Exported model(tiny_config("llama"));
  const std::string eos = "tokenizer.ggml.eos_token_id", bos = "tokenizer.ggml.bos_token_id";
  const auto error = [&](const std::string& key, const Value& value) {
    const auto file = model.file_with(key, value);
    return error_of<ModelError>([&] { (void)open_checkpoint(file); });
  };
  EXPECT_THAT(error(eos, 1e30f), HasSubstr("eos_token_id must be a whole number, got 1e+30"));
  EXPECT_THAT(error(eos, 2.5f), HasSubstr("eos_token_id must be a whole number, got 2.5"));
  EXPECT_THAT(error(eos, std::nanf("")), HasSubstr("eos_token_id must be a whole number, got nan"));
  EXPECT_THAT(error(bos, -HUGE_VAL), HasSubstr("bos_token_id must be a whole number, got -inf"));
  // A double cannot tell this one from its neighbour.
  EXPECT_THAT(error(bos, (uint64_t{1} << 53) + 1),
              HasSubstr("bos_token_id must be a whole number"));
  EXPECT_THAT(open_checkpoint(model.file_with(eos, uint32_t{7})).config.eos_ids, ElementsAre(7));
}

TEST(GgufModelErrors, WhatLlamaCppWouldComputeDifferently) {
  const auto error = [](const std::string& family, const Json& keys) {
    Json json = tiny_config(family);
    if (!keys.is_null()) json.update(keys);
    return error_of<ModelError>([&] { architecture_of(config_of(json)); });
  };
  EXPECT_THAT(error("baichuan", {}),
              HasSubstr("[gguf] baichuan: the head's rows are normalised in every forward"));
  EXPECT_THAT(error("baichuan", {{"vocab_size", 64000}}), HasSubstr("this one has 2 and rotary"));
  const Json yarn = {{"type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 32},
                     {"attention_factor", 1.5}};
  EXPECT_THAT(error("qwen2", {{"rope_scaling", yarn}}),
              HasSubstr("attention factor other than 0.1 ln(factor) + 1 = 1.13863"));
  EXPECT_THAT(error("qwen3", {{"attention_bias", true}}), HasSubstr("has no such biases"));
  EXPECT_THAT(error("qwen2", {{"head_dim", 12}}),
              HasSubstr("4 heads of 12 must be as wide as hidden_size 32"));
  EXPECT_THAT(
      error("llama", {{"rope_scaling", kLongrope}, {"head_dim", 6}}),
      HasSubstr("longrope is known to llama.cpp's phi3, phimoe and minicpm only, not to llama"));
  EXPECT_THAT(error("qwen3_moe", {{"norm_topk_prob", false}}),
              HasSubstr("norm_topk_prob false; llama.cpp always takes it as true"));
  EXPECT_THAT(error("qwen2_moe", {{"mlp_only_layers", {0}}}), HasSubstr("some layers are dense"));
  Json json = tiny_config("llama");
  EXPECT_THAT(error_of<ModelError>([&] { plan_model(config_of(json), {}, {}); }),
              HasSubstr("[gguf] no tensor model.embed_tokens.weight"));
}

}  // namespace
}  // namespace danlu::weights::gguf
