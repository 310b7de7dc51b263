// What masks cost, counted in places of the automaton that are looked at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/follow.h"
#include "grammar/random_schema.h"
#include "grammar/regex.h"
#include "support/throws.h"
#include "text/fake_tokenizer.h"

namespace danlu::grammar {
namespace mask_work_test {

constexpr text::TokenId kEnd = 256;
/// Places that one step may look at: Runs' kMaxPlaces and kMaxFollowed.
constexpr uint64_t kOneStep = 1024 + 65536;
/// Fits a text in very many ways: each of its characters may begin or go on with a part.
const std::string kManyWays = "(.{0,300}){300}";

std::shared_ptr<text::FakeTokenizer> tokenizer() {
  return std::make_shared<text::FakeTokenizer>(
      std::vector<std::string>{"<end>"},
      std::vector<std::string>{"ab", "abc", "\": ", "{\"", "\"}", "}}", "é", "tru", "\n  ",
                               "aaaa"});
}

/// The next mask, by calls that may spend `each`; how many they were.
int calls_until_prepared(text::TokenConstraint& constraint, int64_t each) {
  for (int calls = 1; calls < 1'000'000; ++calls) {
    int64_t work = each;
    if (constraint.prepare(work)) return calls;
    EXPECT_LE(work, 0) << "what is left could have been spent";
  }
  ADD_FAILURE() << "no end";
  return 0;
}

std::vector<std::shared_ptr<const Grammar>> many_grammars(const Compiler& compiler) {
  RandomSchemas schemas(15);
  std::vector<std::shared_ptr<const Grammar>> grammars = {compiler.json_object(),
                                                          compiler.regex("(a|ab|b){2,40}(é|c)+"),
                                                          compiler.regex("(.{0,9}a){9}")};
  for (int i = 0; i < 30; ++i) grammars.push_back(compiler.json_schema(schemas.schema()));
  return grammars;
}

TEST(MaskWork, MasksThatAreMadeInPartsAreTheWholeOnes) {
  const Compiler compiler(tokenizer(), {kEnd}), other(tokenizer(), {kEnd});
  const auto grammars = many_grammars(compiler), same = many_grammars(other);
  std::mt19937 random(16);
  int in_parts = 0;
  for (size_t g = 0; g < grammars.size(); ++g) {
    // Two answers take turns with one grammar.
    std::vector<std::unique_ptr<text::TokenConstraint>> parts, whole;
    for (int i = 0; i < 2; ++i) {
      parts.push_back(compiler.begin(grammars[g]));
      whole.push_back(other.begin(same[g]));
    }
    std::vector<int> tokens(2, 0);
    for (int turn = 0; turn < 100'000 && tokens[0] + tokens[1] < 80; ++turn) {
      const size_t i = random() % 2;
      if (tokens[i] == 40) continue;
      int64_t work = 1 + random() % 40;
      if (!parts[i]->prepare(work)) {
        ++in_parts;
        continue;
      }
      const auto ids = ids_of(whole[i]->allowed());
      ASSERT_EQ(ids_of(parts[i]->allowed()), ids) << "grammar " << g;
      ++tokens[i];
      const text::TokenId chosen = ids[random() % ids.size()];
      parts[i]->accept(chosen);
      whole[i]->accept(chosen);
      if (chosen == kEnd) tokens[i] = 40;
    }
    EXPECT_EQ(tokens, (std::vector<int>{40, 40})) << "grammar " << g;
  }
  EXPECT_GT(in_parts, 1000);
}

TEST(MaskWork, ACallLooksAtNoMorePlacesThanItIsGiven) {
  const Compiler compiler(tokenizer(), {kEnd});
  const auto grammar = compiler.regex(kManyWays);
  const auto constraint = compiler.begin(grammar);
  constexpr int64_t kGiven = 5000;
  int calls = 0;
  for (int token = 0; token < 12; ++token) {
    while (true) {
      const uint64_t before = grammar->work();
      int64_t work = kGiven;
      const bool is_prepared = constraint->prepare(work);
      ASSERT_LE(grammar->work() - before, kGiven + kOneStep);
      ASSERT_GE(kGiven - work, static_cast<int64_t>(grammar->work() - before)) << "not all is said";
      ++calls;
      if (is_prepared) break;
    }
    const uint64_t before = grammar->work();
    constraint->allowed();
    constraint->accept('a');
    EXPECT_EQ(grammar->work(), before) << "nothing is left to the one who asks";
  }
  EXPECT_GT(calls, 100) << "the pattern costs less than this test thinks";
}

TEST(MaskWork, WhoCostsTooMuchFailsAndNobodyElse) {
  const auto words = tokenizer();
  AutomatonBuilder builder;
  const Rule root = builder.add_rule();
  add_regex(builder, root.begin, root.end, "x|y" + kManyWays, RegexUse::kWhole, Spelling::kPlain);
  const Grammar grammar(std::move(builder).finish(root),
                        std::make_shared<Vocabulary>(*words, std::vector<text::TokenId>{kEnd}),
                        {kEnd}, words->size(), {}, /*max_work=*/20'000);
  auto easy = grammar.start(), hard = grammar.start();
  int64_t work = 100'000;
  ASSERT_TRUE(grammar.allowed(easy, work));
  ASSERT_TRUE(grammar.advance(hard, 'y'));
  ASSERT_TRUE(grammar.advance(easy, 'x'));
  work = 1;
  EXPECT_FALSE(grammar.allowed(hard, work));
  // The other one's call makes the mask under way, and ends it, before its own.
  std::shared_ptr<const Mask> mask;
  for (int i = 0; i < 100'000 && !mask; ++i) {
    work = 10;
    mask = grammar.allowed(easy, work);
  }
  ASSERT_TRUE(mask);
  EXPECT_EQ(ids_of(*mask), std::vector<text::TokenId>{kEnd});
  work = 10;
  EXPECT_THAT(test::error_of<GrammarError>([&] { grammar.allowed(hard, work); }),
              testing::HasSubstr("too many ways: which tokens may come next would take more than "
                                 "20000 steps"));
  // Who comes to the same place later learns it without the work.
  auto later = grammar.start();
  work = 100'000;
  ASSERT_TRUE(grammar.allowed(later, work));
  ASSERT_TRUE(grammar.advance(later, 'y'));
  const uint64_t before = grammar.work();
  work = 100'000;
  EXPECT_THROW(grammar.allowed(later, work), GrammarError);
  EXPECT_EQ(grammar.work(), before);
}

TEST(MaskWork, AMaskThatNobodyWaitsForIsLeft) {
  const Compiler compiler(tokenizer(), {kEnd});
  const auto grammar = compiler.regex("x|y" + kManyWays);
  auto gone = compiler.begin(grammar);
  const auto stays = compiler.begin(grammar);
  gone->accept('y');
  int64_t work = 10;
  ASSERT_FALSE(gone->prepare(work));
  gone.reset();
  stays->accept('x');
  EXPECT_EQ(calls_until_prepared(*stays, 1000), 1);
  EXPECT_EQ(ids_of(stays->allowed()), std::vector<text::TokenId>{kEnd});
}

}  // namespace mask_work_test
}  // namespace danlu::grammar
