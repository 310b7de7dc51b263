// Masks where tokens do not show the text they were made of: tokens that take the blanks beside
// them along, normalizers, decoders that write other characters. Labels are worked out by hand.
#include "text/chat_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/conversation.h"
#include "text/fake_tokenizer.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/trained_part.h"

namespace danlu::text {
namespace {

using test::error_of;
using ::testing::HasSubstr;

/// ASCII characters and `merges` of two as tokens, blanks written as U+2581 as Llama's are.
Json small_tokenizer(const std::vector<std::pair<std::string, std::string>>& merges) {
  Json vocabulary = Json::object(), pairs = Json::array();
  const auto add = [&](const std::string& token) {
    if (!vocabulary.contains(token)) vocabulary[token] = vocabulary.size();
  };
  add("<unk>");
  add("\n");
  add("▁");
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
  for (const auto& [left, right] : merges) {
    add(left + right);
    pairs.push_back({left, right});
  }
  const auto replace = [](const char* from, const char* to) {
    return Json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"normalizer", replace(" ", "▁")},
          {"decoder", replace("▁", " ")},
          {"model",
           {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocabulary}, {"merges", pairs}}}};
}

void add_special(Json* tokenizer, const std::string& content, bool lstrip, bool rstrip) {
  Json& added = (*tokenizer)["added_tokens"];
  added.push_back({{"id", (*tokenizer)["model"]["vocab"].size() + added.size()},
                   {"content", content},
                   {"single_word", false},
                   {"lstrip", lstrip},
                   {"rstrip", rstrip},
                   {"normalized", false},
                   {"special", true}});
}

/// Tokens as the vocabulary writes them, the targets in [ ].
std::string labelled(const Json& tokenizer_json, const std::string& jinja,
                     std::initializer_list<const char*> contents) {
  const std::shared_ptr<const Tokenizer> tokenizer =
      parse_tokenizer_json(tokenizer_json.dump(), "test");
  const test::TemporaryDirectory directory;
  const std::string file = directory.path() / "chat.jinja";
  write_file_atomic(file, jinja);
  Conversation c;
  for (const char* content : contents)
    c.messages.push_back(
        {.role = c.messages.size() % 2 ? "assistant" : "user", .content = content});
  const EncodedConversation encoded = ChatEncoder::create(tokenizer, file)->encode(c);
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    const bool target = encoded.labels[i] != kIgnoreLabel;
    if (target != inside) out += target ? '{' : '}';
    inside = target;
    out += tokenizer->id_to_token(encoded.ids[i]).value_or("?");
  }
  return inside ? out + '}' : out;
}

constexpr char kPhi3[] =
    "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

/// The five tokens of Phi-3 with the flags that Microsoft published.
Json phi3() {
  Json tokenizer = small_tokenizer({});
  for (const char* token : {"<|user|>", "<|assistant|>", "<|end|>"})
    add_special(&tokenizer, token, false, true);
  return tokenizer;
}

TEST(ChatMask, AnswersBehindATokenThatTakesTheBlankAlongAreLearnt) {
  EXPECT_EQ(labelled(phi3(), kPhi3, {"q", "yes it", "r", "no"}),
            "<|user|>q<|end|><|assistant|>{yes▁it<|end|>}<|user|>r<|end|><|assistant|>{no<|end|>}");
}

TEST(ChatMask, BlanksOfTheAnswerThatSuchATokenTakesAreNoTargets) {
  EXPECT_EQ(labelled(phi3(), kPhi3, {"q", "\n \tyes", "r", ""}),
            "<|user|>q<|end|><|assistant|>{yes<|end|>}<|user|>r<|end|><|assistant|>{<|end|>}");
}

TEST(ChatMask, ATokenThatTakesTheBlankBeforeItIsATargetOfItsAnswer) {
  Json tokenizer = small_tokenizer({});
  add_special(&tokenizer, "<|user|>", true, false);
  add_special(&tokenizer, "<|assistant|>", true, false);
  add_special(&tokenizer, "<|end|>", true, false);
  EXPECT_EQ(
      labelled(tokenizer, kPhi3, {"q", "yes  ", "r", " "}),
      "<|user|>\nq<|end|><|assistant|>\n{yes<|end|>}<|user|>\nr<|end|><|assistant|>{<|end|>}\n");
}

constexpr char kInst[] =
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}"
    "{{ m.content }};{% endif %}{% endfor %}";

TEST(ChatMask, ATextThatDecodesToAnotherHidesNoBorder) {
  // "](" is one token: it straddles the border. Decoded, "▁" is a blank; "é" is unknown.
  const Json tokenizer = small_tokenizer({{"]", "("}, {"]", "!"}});
  for (const char* question : {"a b", "a▁b", "aéb"}) {
    const std::string got = labelled(tokenizer, kInst, {question, "(Yes it is)", "c", "!no"});
    EXPECT_EQ(got.substr(got.find("b▁")), "b▁[/INST{](Yes▁it▁is);}[INST]▁c▁[/INST{]!no;}")
        << question;
  }
}

TEST(ChatMask, TokensOfBothSidesAreToldByTheirOwnText) {
  // A character's bytes and the answer's first letter: two tokens between the places that both
  // encodings share.
  const FakeTokenizer bytes({}, {"\xA9]("});
  const std::string text = "▁é](x";
  const auto ids = bytes.encode(text, false);
  const std::vector<ByteSpan> spans(1, ByteSpan{text.size() - 2, text.size()});
  const auto labels = mask_labels(bytes, SpecialIndex(bytes), text, ids, spans);
  ASSERT_EQ(ids.size(), 6u);
  EXPECT_THAT(labels, ::testing::ElementsAre(kIgnoreLabel, kIgnoreLabel, kIgnoreLabel, kIgnoreLabel,
                                             ids[4], ids[5]));
}

/// A tokenizer whose ids depend on the whole text and decode to another one.
class ReversingTokenizer final : public FakeTokenizer {
 public:
  ReversingTokenizer() : FakeTokenizer({}, {}) {}
  void encode_append(std::string_view text, bool, std::vector<TokenId>& ids) const override {
    FakeTokenizer::encode_append(std::string(text.rbegin(), text.rend()), false, ids);
  }
};

TEST(ChatMask, ABorderThatCannotBeToldIsAnError) {
  const ReversingTokenizer tokenizer;
  const std::string text = "what? this";
  const auto ids = tokenizer.encode(text, false);
  const std::vector<ByteSpan> spans(1, ByteSpan{6, text.size()});
  EXPECT_THAT(error_of<DataError>(
                  [&] { mask_labels(tokenizer, SpecialIndex(tokenizer), text, ids, spans); }),
              HasSubstr("near byte 6"));
}

TEST(ChatMask, WhereNoBorderIsAskedForNoneMustBeTold) {
  const auto tokenizer = std::make_shared<ReversingTokenizer>();
  const test::TemporaryDirectory directory;
  const std::string file = directory.path() / "chat.jinja";
  write_file_atomic(file, "{% for m in messages %}{{ m.role }}:{{ m.content }} {% endfor %}");
  const auto encoder = ChatEncoder::create(tokenizer, file);
  Conversation c;
  c.messages = {{.role = "user", .content = "what?"}, {.role = "assistant", .content = "this"}};
  EXPECT_THAT(error_of<DataError>([&] { encoder->encode(c); }), HasSubstr("cannot be told"));
  const std::vector<TokenId> ids = tokenizer->encode(encoder->render(c, false), false);
  EXPECT_EQ(encoder->encode_pair(c), ids);
  const EncodedConversation all =
      with_trained_part(encoder, tokenizer, trained_part_from_name("all", "loss_scale"))->encode(c);
  EXPECT_EQ(all.ids, ids);
  EXPECT_EQ(all.labels, ids);
}

}  // namespace
}  // namespace danlu::text
