#include "eval/run/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace danlu::eval {
namespace encode_test {

using testing::ElementsAre;
using text::TokenId;

/// A letter is a token; "ab" is one of its own, so is white space in front of a letter ("_a").
/// 1: BOS, 2: EOS.
class Letters : public text::Tokenizer {
 public:
  explicit Letters(bool has_bos = true) {
    if (has_bos) special_.bos = "<s>";
    special_.eos = "</s>";
  }
  void encode_append(std::string_view text, bool add_special,
                     std::vector<TokenId>& ids) const override {
    if (add_special && special_.bos) ids.push_back(1);
    while (!text.empty()) {
      if (text.starts_with("<s>")) {
        ids.push_back(1);
        text.remove_prefix(3);
      } else if (text.starts_with("ab")) {
        ids.push_back(500);
        text.remove_prefix(2);
      } else if (text.size() > 1 && text[0] == ' ') {
        ids.push_back(300 + text[1]);
        text.remove_prefix(2);
      } else {
        ids.push_back(text[0]);
        text.remove_prefix(1);
      }
    }
  }
  std::string decode(std::span<const TokenId> ids, bool) const override {
    return ids[0] == 1 ? "<s>" : "</s>";
  }
  size_t size() const override { return 1000; }
  std::optional<TokenId> token_to_id(std::string_view token) const override {
    return token == "<s>" ? 1 : 2;
  }
  std::optional<std::string> id_to_token(TokenId) const override { return std::nullopt; }
  bool is_special(TokenId id) const override { return id < 3; }
};

Encoder encoder_of(int64_t window = 0, std::optional<bool> add_special = {}, bool has_bos = true) {
  return Encoder(std::make_shared<Letters>(has_bos),
                 {.window = window, .add_special = add_special, .prefix_id = {}});
}

Call likelihood(std::string context, std::string continuation) {
  Call call;
  call.context = std::move(context);
  call.continuation = std::move(continuation);
  return call;
}

TEST(EncodePair, CutsWhereTheContextAloneEnds) {
  const Encoded encoded = encoder_of().pair(likelihood("xy", " b"));
  EXPECT_THAT(encoded.ids, ElementsAre(1, 'x', 'y', 300 + 'b'));
  EXPECT_EQ(encoded.num_context, 3);
}

TEST(EncodePair, ATokenOverTheBorderBelongsToTheContextsLength) {
  // Together "ab" is one id; as many ids as the context has alone are not asked for.
  const Encoded encoded = encoder_of().pair(likelihood("xa", "bc"));
  EXPECT_THAT(encoded.ids, ElementsAre(1, 'x', 500, 'c'));
  EXPECT_EQ(encoded.num_context, 3);
}

TEST(EncodePair, WhiteSpaceAtTheContextsEndGoesToTheContinuation) {
  for (const char* space : {" ", "\n", "\u3000"}) {
    const Encoded encoded = encoder_of().pair(likelihood(std::string("x") + space, "b"));
    EXPECT_EQ(encoded.num_context, 2) << space;
  }
  EXPECT_THAT(encoder_of().pair(likelihood("x ", "b")).ids, ElementsAre(1, 'x', 300 + 'b'));
}

TEST(EncodePair, WithoutContextBosOrEosStandsBefore) {
  EXPECT_THAT(encoder_of().pair(likelihood("", "xy")).ids, ElementsAre(1, 'x', 'y'));
  EXPECT_THAT(encoder_of(0, {}, false).pair(likelihood("", "xy")).ids, ElementsAre(2, 'x', 'y'));
  // What begins with it already has its context.
  const Encoded own = encoder_of().pair(likelihood("", "<s>y"));
  EXPECT_THAT(own.ids, ElementsAre(1, 'y'));
  EXPECT_EQ(own.num_context, 1);
}

TEST(EncodePair, NoSecondBos) {
  EXPECT_THAT(encoder_of().pair(likelihood("<s>x", "y")).ids, ElementsAre(1, 'x', 'y'));
  Call rendered = likelihood("x", "y");
  rendered.has_own_bos = true;
  EXPECT_THAT(encoder_of().pair(rendered).ids, ElementsAre('x', 'y'));
  EXPECT_THAT(encoder_of(0, false).pair(likelihood("x", "y")).ids, ElementsAre('x', 'y'));
  EXPECT_THAT(encoder_of(0, true).pair(likelihood("<s>x", "y")).ids, ElementsAre(1, 'x', 'y'));
}

TEST(EncodePair, WhatTheWindowDoesNotHoldIsCutOnTheLeftAndCounted) {
  const Encoded encoded = encoder_of(3).pair(likelihood("uvwxy", "z"));
  EXPECT_THAT(encoded.ids, ElementsAre('w', 'x', 'y', 'z'));  // three are read, the last is not
  EXPECT_EQ(encoded.num_context, 3);
  EXPECT_EQ(encoded.num_cut, 3);
  EXPECT_THROW(encoder_of(3).pair(likelihood("u", "wxyz")), DataError);
}

TEST(EncodePair, NothingToAskIsAnError) {
  EXPECT_THROW(encoder_of().pair(likelihood("x", "")), DataError);
  EXPECT_THROW(encoder_of().pair(likelihood("", "")), DataError);
  EXPECT_THROW(encoder_of().pair(likelihood("a", "b")), DataError);
}

TEST(EncodePrompt, LeavesRoomForTheAnswer) {
  Call call;
  call.kind = CallKind::kGeneration;
  call.context = "uvwxyz";
  call.rules.max_tokens = 4;
  const Encoded encoded = encoder_of(7).prompt(call);
  EXPECT_THAT(encoded.ids, ElementsAre('x', 'y', 'z'));
  EXPECT_EQ(encoded.num_cut, 4);
  EXPECT_THROW(encoder_of(4).prompt(call), DataError);
  call.context.clear();
  EXPECT_THAT(encoder_of(0, false).prompt(call).ids, ElementsAre(1));
}

/// Every id is predicted once, in order, each window within the model's.
TEST(EncodeRolling, EveryIdIsPredictedOnce) {
  const std::string text = "abcdefghijklmnopqrstuvwxyz";
  Call call = likelihood("", text);
  for (int64_t window = 1; window < 30; ++window) {
    std::vector<TokenId> predicted;
    for (const Encoded& part : encoder_of(window).rolling(call)) {
      EXPECT_LE(std::ssize(part.ids) - 1, window);
      EXPECT_GE(part.num_context, 1);
      predicted.insert(predicted.end(), part.ids.begin() + part.num_context, part.ids.end());
    }
    std::vector<TokenId> all;
    Letters().encode_append(text, false, all);
    EXPECT_EQ(predicted, all) << window;
  }
  // 25 ids ("ab" is one) in windows of 10: 10, 10 and the last 5 after 6 of context.
  const std::vector<Encoded> parts = encoder_of(10).rolling(call);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].num_context, 1);
  EXPECT_EQ(parts[1].num_context, 1);
  EXPECT_EQ(parts[2].num_context, 6);
  EXPECT_EQ(parts[2].ids.size(), 11u);
  EXPECT_THROW(encoder_of(0, false).rolling(likelihood("", "")), DataError);
}

// lm-eval: a tokenizer that writes BOS writes none here unless add_bos_token says so; a score that
// counted it would be too high for every such model.
TEST(EncodeRolling, BosIsContextAlone) {
  for (const std::optional<bool> add_special : {std::optional<bool>(), {true}, {false}}) {
    EncoderSettings settings;
    settings.add_special = add_special;
    const Encoder encoder(std::make_shared<Letters>(), settings);
    for (const char* text : {"abc", "<s>abc"}) {
      const std::vector<Encoded> parts = encoder.rolling(likelihood("", text));
      ASSERT_EQ(parts.size(), 1u);
      EXPECT_THAT(parts[0].ids, ElementsAre(1, 500, 'c')) << text;
      EXPECT_EQ(parts[0].num_context, 1);
    }
  }
}

}  // namespace encode_test
}  // namespace danlu::eval
