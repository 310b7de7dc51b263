// Calls divided among ranks, answers kept and found again.
#include "eval/run/ask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "base/error.h"
#include "support/temporary_directory.h"

namespace danlu::eval {
namespace ask_test {

/// Answers with the length of a call's context; `fails_at`: throws instead of its answer number n.
class Lengths : public Model {
 public:
  explicit Lengths(int fails_at = -1) : fails_at_(fails_at) {}
  void answer(const std::vector<Call>& calls, const OnAnswer& on_answer) override {
    // Not in order: the last first.
    for (size_t i = calls.size(); i-- > 0;) {
      if (num_asked == fails_at_) throw NumericError("the model is broken");
      ++num_asked;
      Answer answer;
      answer.log_likelihood = -static_cast<double>(calls[i].context.size()) / 3;
      answer.text = calls[i].continuation;
      on_answer(i, answer);
    }
  }
  std::string chat_text(const std::vector<text::Message>&) const override { return ""; }
  bool chat_text_has_bos() const override { return false; }
  int64_t count_tokens(const std::string&) const override { return 0; }
  Json identity() const override { return "lengths"; }

  int num_asked = 0;

 private:
  int fails_at_;
};

std::vector<Item> items_of(int count) {
  std::vector<Item> items;
  for (int i = 0; i < count; ++i) {
    Item& item = items.emplace_back();
    for (int j = 0; j <= i % 3; ++j) {
      Call& call = item.calls.emplace_back();
      call.context = std::string(static_cast<size_t>(10 * i + j + 1), 'x');
      call.continuation = std::to_string(i) + "/" + std::to_string(j) + "\xff";
    }
  }
  return items;
}

void expect_answers(const std::vector<Item>& items,
                    const std::vector<std::vector<Answer>>& answers) {
  ASSERT_EQ(answers.size(), items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    ASSERT_EQ(answers[i].size(), items[i].calls.size());
    for (size_t j = 0; j < answers[i].size(); ++j) {
      EXPECT_EQ(answers[i][j].log_likelihood,
                -static_cast<double>(items[i].calls[j].context.size()) / 3);
      EXPECT_EQ(answers[i][j].text, items[i].calls[j].continuation);
    }
  }
}

TEST(Asker, EveryRankHasTheAnswersToAllCallsAndAskedItsPart) {
  const std::vector<Item> items = items_of(11);
  for (const int64_t size : {1, 2, 3, 12}) {
    std::vector<std::string> said(static_cast<size_t>(size));
    std::barrier meeting(static_cast<std::ptrdiff_t>(size));
    std::atomic<int> num_asked = 0;
    std::vector<std::thread> ranks;
    for (int64_t rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        Lengths model;
        Asker asker(model, nullptr,
                    {rank, size,
                     [&, rank](const std::string& text) {
                       said[static_cast<size_t>(rank)] = text;
                       meeting.arrive_and_wait();
                       return said;
                     }},
                    11);
        expect_answers(items, asker.ask(items));
        num_asked += model.num_asked;
      });
    }
    for (std::thread& rank : ranks) rank.join();
    EXPECT_EQ(num_asked, 21) << size;  // 11 items with 1, 2, 3, 1, … calls
  }
}

TEST(Asker, WhatTheJournalKnowsIsNotAskedAgain) {
  const test::TemporaryDirectory directory;
  const std::vector<Item> items = items_of(6);
  {
    Journal journal(directory.path() / "answers.jsonl", "model");
    Lengths breaks(7);
    Asker asker(breaks, &journal, {}, 6);
    EXPECT_THROW(asker.ask(items), NumericError);
  }
  Journal journal(directory.path() / "answers.jsonl", "model");
  Lengths model;
  Asker asker(model, &journal, {}, 6);
  expect_answers(items, asker.ask(items));
  EXPECT_EQ(model.num_asked, 5);  // of 12
  EXPECT_EQ(asker.num_known(), 7);
  expect_answers(items, asker.ask(items));
  EXPECT_EQ(model.num_asked, 5);
}

}  // namespace ask_test
}  // namespace danlu::eval
