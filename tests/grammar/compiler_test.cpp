#include "grammar/compiler.h"

#include <gtest/gtest.h>

#include <thread>

#include "grammar/follow.h"
#include "grammar/random_schema.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "text/fake_tokenizer.h"

namespace danlu::grammar {
namespace {

constexpr text::TokenId kEnd = 256, kMark = 257, kFirstWord = 258;

std::shared_ptr<text::FakeTokenizer> words_tokenizer() {
  return std::make_shared<text::FakeTokenizer>(
      std::vector<std::string>{"<end>", "[TOOL_CALLS]"},
      std::vector<std::string>{"yes", "no", "not", "\": ", "{\"", "\"}", "\"a\": 1", "}}", "é",
                               "\",\"", " {", "a\"", "tru", "e}", "\n  "});
}

TEST(Constraint, AllowsTokensThatGoOnAndTheEndWhereATextMayEnd) {
  const Compiler compiler(words_tokenizer(), {kEnd});
  const std::vector<std::string> choices = {"no", "nothing", "yes"};
  const auto constraint = compiler.begin(compiler.choice(choices));
  EXPECT_EQ(ids_of(constraint->allowed()),
            (std::vector<text::TokenId>{'n', 'y', kFirstWord, kFirstWord + 1, kFirstWord + 2}));
  constraint->accept(kFirstWord + 1);
  EXPECT_EQ(ids_of(constraint->allowed()), (std::vector<text::TokenId>{'t', kEnd}));
  const auto other = constraint->clone();
  constraint->accept('t');
  EXPECT_EQ(ids_of(constraint->allowed()), (std::vector<text::TokenId>{'h'}));
  other->accept(kEnd);
  EXPECT_EQ(ids_of(other->allowed()), (std::vector<text::TokenId>{kEnd}));
  EXPECT_NE(test::error_of<InternalError>([&] { constraint->accept('x'); }), "");
}

/// The mask by its definition: a token may come if its bytes can.
TEST(Constraint, MasksAreWhatEachTokenAloneGives) {
  const auto tokenizer = words_tokenizer();
  const Compiler compiler(tokenizer, {kEnd});
  RandomSchemas schemas(5);
  std::mt19937 random(6);
  for (int round = 0; round < 150; ++round) {
    const Json schema = round % 3 == 0 ? Json(true) : schemas.schema();
    const auto grammar = compiler.json_schema(schema);
    const auto constraint = compiler.begin(grammar);
    auto place = grammar->start();
    std::string text;
    for (int step = 0; step < 60; ++step) {
      const auto mask = constraint->allowed();
      const auto ids = ids_of(mask);
      for (text::TokenId id = 0; id < static_cast<text::TokenId>(tokenizer->size()); ++id) {
        auto next = place;
        const bool expected = id == kEnd ? grammar->accepts(text) : grammar->advance(next, id);
        ASSERT_EQ(is_allowed(mask, id), expected) << schema.dump() << "\n" << text << " + " << id;
      }
      ASSERT_FALSE(ids.empty());
      const text::TokenId chosen = ids[random() % ids.size()];
      if (chosen == kEnd) break;
      constraint->accept(chosen);
      ASSERT_TRUE(grammar->advance(place, chosen));
      text += *tokenizer->id_to_token(chosen);
    }
  }
}

TEST(Constraint, SpecialTokensAreMarksAndNeverText) {
  const Compiler compiler(words_tokenizer(), {kEnd});
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}])");
  const auto constraint =
      compiler.begin(compiler.tool_calls({.format = text::ToolFormat::kMistral, .tools = tools}));
  EXPECT_EQ(ids_of(constraint->allowed()), (std::vector<text::TokenId>{kMark}));
  constraint->accept(kMark);
  EXPECT_EQ(ids_of(constraint->allowed()), (std::vector<text::TokenId>{'['}));
  const auto string = compiler.begin(compiler.json_schema({{"type", "string"}}));
  string->accept('"');
  EXPECT_FALSE(is_allowed(string->allowed(), kMark));
}

TEST(Constraint, GrammarsAreKept) {
  const Compiler compiler(words_tokenizer(), {kEnd});
  const auto first = compiler.regex("a+");
  EXPECT_EQ(compiler.regex("a+"), first);
  for (int i = 0; i < 40; ++i) compiler.regex("b{" + std::to_string(i) + "}");
  EXPECT_NE(compiler.regex("a+"), first);
}

TEST(Constraint, AnswersThatAreManyStatesLongGoOn) {
  // More sets than are kept: they are forgotten in between and found again.
  const Compiler compiler(words_tokenizer(), {kEnd});
  const auto grammar = compiler.regex("(abcdefgh){3000}");
  const auto early = compiler.begin(grammar), constraint = compiler.begin(grammar);
  early->accept('a');
  for (int i = 0; i < 24000; ++i) {
    const text::TokenId id = 'a' + i % 8;
    ASSERT_TRUE(is_allowed(constraint->allowed(), id)) << i;
    constraint->accept(id);
  }
  EXPECT_EQ(ids_of(constraint->allowed()), std::vector<text::TokenId>{kEnd});
  EXPECT_EQ(ids_of(early->allowed()), std::vector<text::TokenId>{'b'});
}

TEST(Constraint, ManyThreadsFollowOneGrammar) {
  const auto tokenizer = words_tokenizer();
  const Compiler compiler(tokenizer, {kEnd});
  const auto grammar = compiler.json_object();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 20; ++i) {
        const auto constraint = compiler.begin(grammar);
        const std::string text =
            tokenizer->decode(draw(*constraint, *tokenizer, kEnd, random, 40), false);
        EXPECT_TRUE(Json::accept(text)) << text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Constraint, RefusesWhatCannotBeFollowed) {
  EXPECT_NE(test::error_of<UsageError>([] {
              Compiler(words_tokenizer(), {});
            }).find("without a token that ends them"),
            std::string::npos);
  const Compiler compiler(words_tokenizer(), {kEnd});
  EXPECT_EQ(test::error_of<GrammarError>([&] { compiler.choice({}); }),
            "there is nothing to choose from");
  const std::vector<std::string> empty = {""};
  EXPECT_EQ(test::error_of<GrammarError>([&] { compiler.choice(empty); }),
            "a choice must not be empty");
  const Json tools = Json::parse(R"([{"name": "f"}])");
  EXPECT_EQ(
      test::error_of<GrammarError>([&] {
        compiler.tool_calls({.format = text::ToolFormat::kHermes, .tools = tools, .name = "g"});
      }),
      "no tool is called 'g'");
  const Json choices = Json::parse(R"([{"name": "f", "parameters": {"anyOf": [{}, {}]}}])");
  EXPECT_EQ(test::error_of<GrammarError>([&] {
              compiler.tool_calls({.format = text::ToolFormat::kGlm45, .tools = choices});
            }),
            "[tools/f/parameters] #: in this form arguments are the properties of one object");
}

/// What a token spells, from the tokenizer alone: all ids of a text together spell it.
TEST(Vocabulary, TokensOfRealTokenizersSpellTheirTexts) {
  DANLU_REQUIRES_SHARED();
  for (const char* name :
       {"qwen2_5", "llama3", "llama2", "mistral_v1", "gpt2", "internlm2", "baichuan2", "yi"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = text::Tokenizer::load(test::unpacked("tokenizers") / name);
    const Vocabulary vocabulary(*tokenizer, {});
    const std::string text =
        "x {\"né\": [1, \"中文😀\x01\"],\n\t \"b\":null}  \xF0\x9F\x80\x84 <tool_call> ÿ";
    std::string spelled;
    const auto ids = tokenizer->encode(text, false);
    for (const text::TokenId id : ids) spelled += vocabulary.bytes(id);
    EXPECT_EQ(spelled.substr(spelled.starts_with(" ") ? 1 : 0), tokenizer->decode(ids));
    size_t with_bytes = 0, plain = 0;
    for (size_t id = 0; id < tokenizer->size(); ++id) {
      const auto token = static_cast<text::TokenId>(id);
      plain += tokenizer->id_to_token(token).has_value() && !tokenizer->is_special(token);
      with_bytes += !vocabulary.bytes(token).empty();
    }
    // Eight bytes are in no UTF-8.
    EXPECT_GE(with_bytes + 3 + 8, plain);
    // Every byte that UTF-8 has can be said, so that no answer is stuck.
    std::vector<bool> single(256, false);
    for (size_t n = 1; n < vocabulary.num_nodes(); ++n) {
      const auto& node = vocabulary.nodes()[n];
      if (node.depth == 1 && !vocabulary.tokens_at(n).empty()) single[node.byte] = true;
    }
    for (int byte = 0x20; byte < 0xF5; ++byte) {
      if (byte != 0xC0 && byte != 0xC1) {
        EXPECT_TRUE(single[byte]) << byte;
      }
    }
  }
}

}  // namespace
}  // namespace danlu::grammar
