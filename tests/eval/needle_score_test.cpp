#include "eval/needle/needle_score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace danlu::eval {
namespace {

using testing::ElementsAre;

// Recorded from a plain recursion in Python 3.11.
TEST(NeedleScore, EditDistanceCountsCharacters) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("炼丹", "炼金丹炉"), 2u);
  EXPECT_EQ(edit_distance("ab", "ba"), 2u);
  EXPECT_EQ(edit_distance("\U0001F600a", "a"), 1u);
  EXPECT_EQ(edit_distance("intention", "execution"), 5u);
  EXPECT_EQ(edit_distance("e\u0301", "\u00e9"), 2u);  // two code points against one
  EXPECT_EQ(edit_distance("babcaacabcacaaabbaaacbacaacccaccbaaacabbacacbccaac",
                          "ccabaccacacabccbbbcbbbaacaacbcbbcbbcaacbababbacaccbbcbcbcbaabbccaaccbc"),
            34u);
  EXPECT_EQ(
      edit_distance("ccbbcbcbabbacabaabacabbbaabbcbabcbcbbcbaaaaaacaabcabbaabcbccbaccccccabccbbbba"
                    "bcbaaaabaabca",
                    "aacacabcaaacbacbbcbbaabbbbbaaacbcbbcacaa"),
      55u);
}

// Recorded from Python 3.11: `keyword in answer`, else 20 * (1 - distance / longer) behind
// re.sub(r"\s+", "", text).
TEST(NeedleScore, EqualsTheRuleInPython) {
  struct Case {
    const char *answer, *keyword, *reference;
    double score;
  };
  const Case cases[] = {
      {"The codex is on the island.", "Alchemist",
       "Hidden on Mosaic Island is the Alchemist's Codex.", 5.7142857142857135},
      {"alchemist", "Alchemist", "Alchemist", 17.77777777777778},  // case counts
      {"", "x", "", 20.0},
      {" \u3000\n", "x", "\t", 20.0},
      {"", "key", "a b c", 0.0},
      {"完全不对的回答", "炼金术士", "隐藏在马赛克岛上的是炼金术士的手稿。", 1.1111111111111116},
      {"隐藏在马赛克岛的是炼丹术士手稿。", "炼金术士", "隐藏在马赛克岛上的是炼金术士的手稿。",
       16.666666666666668},
      {"I do not know \U0001F600", "\U0001F409", "the dragon \U0001F432", 1.8181818181818188},
      {"It is the Alchemist's.", "Alchemist", "zzz", 100.0},
      {"a\u00a0b\u200bc", "q", "abc", 15.0},  // U+00A0 is white space, U+200B is none
      {"kitten sits", "no", "sitting kit", 10.0},
  };
  for (const Case& c : cases)
    EXPECT_NEAR(needle_score(c.answer, c.keyword, c.reference), c.score, 1e-12) << c.answer;
}

// Recorded from Python 3.11: 100 / len(words) for each of wanted.lower().split() in answer.lower().
TEST(NeedleScore, WordsOfAnAnswerCountEach) {
  EXPECT_EQ(needle_words_score("The answer is new york CITY", "New York"), 100);
  EXPECT_EQ(needle_words_score("york", "New York"), 50);
  EXPECT_NEAR(needle_words_score("El NIÑO", "El\u3000niño azul"), 200.0 / 3, 1e-9);
  EXPECT_EQ(needle_words_score("它是北京市", "北京"), 100);
  EXPECT_EQ(needle_words_score("anything", "  "), 0);
}

TEST(NeedleScore, AnAnswerMayHoldAnyBytes) {
  EXPECT_NEAR(needle_score("\xff\xfe", "k", "ab"), 0, 1e-12);
  EXPECT_NEAR(needle_score("a\xff", "k", "ab"), 10, 1e-12);
}

TEST(NeedleScore, OfSeveralNeedlesEachIsFoundOrNot) {
  const Json doc = {{"length", 4000},
                    {"keywords", {"red", "blue", "green"}},
                    {"depths", {0, 50, 100}},
                    {"reference", ""}};
  std::vector<double> depths, scores;
  for (const auto& [length, depth, score] : needle_cells(doc, "It was blue, then a reddish one.")) {
    EXPECT_EQ(length, 4000);
    depths.push_back(depth), scores.push_back(score);
  }
  EXPECT_THAT(depths, ElementsAre(0, 50, 100));
  EXPECT_THAT(scores, ElementsAre(100, 100, 0));
  EXPECT_NEAR(needle_item_score(doc, "It was blue, then a reddish one."), 200.0 / 3, 1e-12);
}

TEST(NeedleScore, TheMapHoldsMeansByDepthAndLength) {
  const HeatMap map =
      needle_heat_map("t", {{2000, 50, 100}, {1000, 0, 10}, {1000, 0, 30}, {2000, 100, 7}}, false);
  EXPECT_THAT(map.columns, ElementsAre("1000", "2000"));
  EXPECT_THAT(map.rows, ElementsAre("0", "50", "100"));
  EXPECT_EQ(map.values[0][0], 20);
  EXPECT_EQ(map.values[1][1], 100);
  EXPECT_EQ(map.values[2][1], 7);
  for (const auto& [row, column] : {std::pair{0, 1}, {1, 0}, {2, 0}})
    EXPECT_TRUE(std::isnan(map.values[row][column]));
  EXPECT_EQ(map.column_title, "length of the text (tokens)");
  EXPECT_NE(needle_heat_map("t", {{1, 1, 1}}, true).row_title, map.row_title);
}

}  // namespace
}  // namespace danlu::eval
