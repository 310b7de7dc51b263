// BLEU and ROUGE against numbers of another program: the formulas of NLTK's sentence_bleu and of
// the packages rouge-chinese and rouge, written in Python over their regular expressions.
#include "eval/scoring/text_overlap.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace danlu::eval {
namespace {

/// Figures of one pair: bleu4, rouge1, rouge2, rougeL.
using Figures = std::vector<double>;

struct Compared {
  ComparedTexts texts;
  Figures whole, swift;  ///< swift empty: the row is left out
};

const std::vector<Compared>& compared() {
  static const std::vector<Compared> list = {
      {{"The cat sat on the mat.", "The cat is on the mat. It sat."},
       {68.0345, 87.5, 53.3333, 70.5882},
       {33.10175185585074, 85.7142852244898, 49.9999995138889, 85.7142852244898}},
      {{"今天天气很好。我们去公园！", "今天天气真好，我们去公园玩。好吗？"},
       {37.4444, 74.0741, 50.0, 66.6667},
       {37.44441964717362, 74.07407358024692, 49.99999951020409, 66.66666617283951}},
      {{"Costs 50% of 3.14 dollars... don't\n\nask? C++ or a-b",
        "It costs 3.14 dollars.\nDon't ask?\n\n50% a-b"},
       {51.8657, 66.6667, 31.25, 52.9412},
       {14.02577516008147, 70.96774144016649, 48.275861574316295, 70.96774144016649}},
      {{"yes", "no"}, {0, 0, 0, 0}, {0, 0, 0, 0}},
      {{"abc", "abcd"}, {60.2529, 0, 0, 0}, {0, 0, 0, 0}},
      {{"a", "a"}, {35.3553, 100, 0, 100}, {35.35533905932738, 99.9999995, 0, 99.9999995}},
      {{"", "text"}, {0, 0, 0, 0}, {}},
      {{"多 行？\n答案……说\r\n“好。”完......\n end", "多行？ 答案 说“好。”完.......end"},
       {47.3207, 89.6552, 62.069, 83.871},
       {30.928520903947522, 95.9999995008, 83.33333283680557, 95.9999995008}}};
  return list;
}

void expect_figures(const Overlap& got, const Figures& wanted) {
  EXPECT_NEAR(got.bleu4, wanted[0], 1e-4);
  EXPECT_NEAR(got.rouge1, wanted[1], 1e-4);
  EXPECT_NEAR(got.rouge2, wanted[2], 1e-4);
  EXPECT_NEAR(got.rougeL, wanted[3], 1e-4);
}

TEST(TextOverlap, IsThatOfNltkAndOfTheRougePackages) {
  std::vector<ComparedTexts> all;
  for (const Compared& one : compared()) {
    SCOPED_TRACE(one.texts.found);
    expect_figures(overlap_of({one.texts}, OverlapStyle::kLlamaFactory), one.whole);
    if (!one.swift.empty())
      expect_figures(overlap_of({one.texts}, OverlapStyle::kSwift), one.swift);
    all.push_back(one.texts);
  }
  expect_figures(overlap_of(all, OverlapStyle::kLlamaFactory),
                 {37.5341875, 52.237, 24.5815375, 46.7583875});
  expect_figures(overlap_of(all, OverlapStyle::kSwift),
                 {21.550829518054393, 60.96515703510046, 33.08702763360212, 59.9069559768994});
  expect_figures(overlap_of({}, OverlapStyle::kSwift), {0, 0, 0, 0});
}

TEST(TextOverlap, CutsWordsAsJiebaDoesWhereThereIsNoChinese) {
  EXPECT_EQ(
      words_for_overlap("don't pay 3.14, 50%! café a.5 1.2.3 C++ 我爱\r\n你"),
      (std::vector<std::string>{"don", "'", "t",   " ", "pay", " ",   "3.14", ",",   " ", "50%",
                                "!",   " ", "caf", "é", " ",   "a.5", " ",    "1.2", ".", "3",
                                " ",   "C", "++",  " ", "我",  "爱",  "\r\n", "你"}));
  EXPECT_EQ(characters_of("aé好"), (std::vector<std::string>{"a", "é", "好"}));
}

TEST(TextOverlap, RefusesTextsWhoseTableWouldNotFit) {
  const std::vector<std::string> many(40000, "w");
  EXPECT_THROW(rouge_of(many, many, RougeKind::kWhole), DataError);
}

}  // namespace
}  // namespace danlu::eval
