// A model with other positions or more tokens is the one that config.json would describe.
#include "arch/config_change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arch/parsed_config.h"
#include "support/tiny_model.h"

namespace danlu::arch {
namespace config_change_test {

using test::error_of;
using test::tiny_config;
using ::testing::HasSubstr;

const Json kYarn = {
    {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};

TEST(PositionChange, IsWhatConfigJsonWouldSay) {
  for (const char* family : {"llama", "qwen2", "qwen3", "mistral"}) {
    Json json = tiny_config(family);
    const ModelConfig plain = parse(json);
    const ModelConfig changed =
        with_positions(plain, {.scaling = kYarn, .theta = 50000.0, .max_positions = 256});
    json["rope_theta"] = 50000.0;
    json["rope_scaling"] = kYarn;
    json["max_position_embeddings"] = 256;
    const ModelConfig told = parse(json);
    EXPECT_EQ(changed.rope.scaling, RopeScaling::kYarn) << family;
    EXPECT_EQ(changed.rope.factor, told.rope.factor);
    EXPECT_EQ(changed.rope.theta, told.rope.theta);
    EXPECT_EQ(changed.rope.original_max_positions, told.rope.original_max_positions);
    EXPECT_EQ(changed.max_positions, 256);
    EXPECT_EQ(changed.raw, told.raw) << family;
    EXPECT_EQ(changed.vocab_size, plain.vocab_size);
    EXPECT_EQ(changed.eos_ids, plain.eos_ids);
  }
}

TEST(PositionChange, NothingIsNoChange) {
  const ModelConfig plain = parse(tiny_config("llama"));
  EXPECT_EQ(with_positions(plain, {}).raw, plain.raw);
}

TEST(PositionChange, SectionsAndTheBaseStay) {
  const ModelConfig seeing = parse(tiny_config("qwen2_vl"));
  const ModelConfig changed = with_positions(seeing, {.scaling = kYarn});
  EXPECT_EQ(changed.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(changed.rope.mrope_section, seeing.rope.mrope_section);
  // transformers 5 has theta in the same object.
  Json json = tiny_config("llama");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7000.0}};
  const ModelConfig newer = with_positions(parse(json), {.scaling = kYarn});
  EXPECT_EQ(newer.rope.theta, 7000.0);
  EXPECT_EQ(newer.rope.factor, 4.0);
  EXPECT_FALSE(newer.raw.contains("rope_scaling"));
}

TEST(PositionChange, ModelsThatCannotSaySo) {
  const auto error = [&](const char* family, const Json& more = Json::object()) {
    Json json = tiny_config(family);
    json.update(more);
    const ModelConfig config = parse(json);
    return error_of<ModelError>([&] { with_positions(config, {.scaling = kYarn}); });
  };
  EXPECT_THAT(error("bloom"), HasSubstr("not rotary"));
  EXPECT_THAT(error("gpt2"), HasSubstr("not rotary"));
  EXPECT_THAT(error_of<ModelError>([&] {
                with_positions(parse(tiny_config("llama")), {.scaling = {{"type", "bent"}}});
              }),
              HasSubstr("rope scaling must be"));
}

TEST(VocabularyChange, GrowsWhereTheKeyIs) {
  const ModelConfig grown = with_vocabulary(parse(tiny_config("qwen2")), 256);
  EXPECT_EQ(grown.vocab_size, 256);
  EXPECT_EQ(grown.raw.at("vocab_size"), 256);
  Json json = tiny_config("qwen2_vl");
  json["text_config"] = {{"hidden_size", json["hidden_size"]}, {"vocab_size", json["vocab_size"]}};
  const ModelConfig seeing = with_vocabulary(parse(json), 256);
  EXPECT_EQ(seeing.vocab_size, 256);
  EXPECT_EQ(seeing.raw.at("text_config").at("vocab_size"), 256);
  const ModelConfig glm = with_vocabulary(parse(tiny_config("chatglm")), 256);
  EXPECT_EQ(glm.vocab_size, 256);
  for (const ParamSpec& spec : parameters_of(grown)) {
    if (spec.role != Role::kEmbedding && spec.role != Role::kHead) continue;
    EXPECT_EQ(spec.shape.front(), 256) << spec.name;
  }
}

}  // namespace config_change_test
}  // namespace danlu::arch
