// Conversations with an environment: what of them is learnt, and what by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/temporary_directory.h"
#include "train/objectives/policy.h"
#include "train/rollout_parts.h"
#include "train/rollouts/conversations.h"

namespace danlu::train {
namespace mesh_test {
namespace {

using testing::ElementsAre;

constexpr text::TokenId kTurnEnd = 2, kUser = 60, kAssistant = 61, kTool = 62;

/// Ids between spaces, both ways.
class NumberTokens : public Numbers {
 public:
  void encode_append(std::string_view text, bool, std::vector<text::TokenId>& ids) const override {
    std::istringstream numbers{std::string(text)};
    for (text::TokenId id = 0; numbers >> id;) ids.push_back(id);
  }
  std::string decode(std::span<const text::TokenId> ids, bool skip_special) const override {
    std::vector<text::TokenId> shown(ids.begin(), ids.end());
    if (skip_special) std::erase(shown, kTurnEnd);
    return fmt::format("{}", fmt::join(shown, " "));
  }
};

/// A message is its role's id, its content and the end.
class NumberChat : public text::ChatEncoder {
 public:
  text::EncodedConversation encode(const text::Conversation& talk) const override {
    return {encode_prompt(talk), {}};
  }
  std::vector<text::TokenId> encode_prompt(const text::Conversation& talk) const override {
    std::vector<text::TokenId> ids;
    for (const text::Message& message : talk.messages) {
      ids.push_back(message.role == "user" ? kUser : message.role == "tool" ? kTool : kAssistant);
      NumberTokens().encode_append(message.content, false, ids);
      ids.push_back(kTurnEnd);
    }
    ids.push_back(kAssistant);
    return ids;
  }
  std::string render(const text::Conversation&, bool) const override { return ""; }
  std::vector<text::TokenId> stop_ids() const override { return {kTurnEnd}; }
  std::string description() const override { return "numbers"; }
  uint64_t content_hash() const override { return 1; }
};

/// Says what it was told to say, and remembers what it was asked.
class Script : public eval::Environment {
 public:
  using Say = std::function<eval::Reply(const eval::Talk&)>;
  explicit Script(Say say) : say_(std::move(say)) {}
  std::string name() const override { return "script"; }
  std::vector<eval::Reply> replies(std::span<const eval::Talk> talks) const override {
    asked_.emplace_back(talks.begin(), talks.end());
    std::vector<eval::Reply> replies;
    for (const eval::Talk& talk : talks) replies.push_back(say_(talk));
    return replies;
  }
  const std::vector<std::vector<eval::Talk>>& asked() const { return asked_; }

 private:
  Say say_;
  mutable std::vector<std::vector<eval::Talk>> asked_;
};

eval::Reply said(const Json& json) { return eval::reply_from(json); }
Json user_says(const std::string& text) {
  return {{"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
}

std::shared_ptr<const Conversations> conversations(
    const std::shared_ptr<const eval::Environment>& environment, int64_t max_turns = 4,
    int64_t max_new_tokens = 10, int64_t positions = 0) {
  settings::Reinforcement told;
  told.max_turns = max_turns;
  told.max_new_tokens = max_new_tokens;
  return std::make_shared<const Conversations>(
      Conversations::Parts{environment,
                           std::make_shared<NumberChat>(),
                           std::make_shared<NumberTokens>(),
                           {kTurnEnd},
                           std::nullopt,
                           positions},
      told);
}

/// Draws these answers, turn by turn, and remembers the requests.
struct Drawer {
  std::vector<std::vector<DrawnAnswer>> turns;
  std::vector<std::vector<Request>> asked = {};
  DrawTurn draw() {
    return [this](int64_t turn, const std::vector<Request>& requests) {
      asked.push_back(requests);
      return turns.at(static_cast<size_t>(turn) - 1);
    };
  }
};

DrawnAnswer answer_ids(std::vector<int32_t> ids, bool is_ended = true) {
  DrawnAnswer answer;
  answer.ids = std::move(ids);
  answer.is_ended = is_ended;
  return answer;
}

AskOnce at_once() {
  return [](int64_t, const std::function<Json()>& ask) { return ask(); };
}

TalkBegin talk_begin(std::vector<int32_t> prompt, uint64_t stream) {
  TalkBegin one;
  one.request.prompt = std::move(prompt);
  one.request.stream = stream;
  one.request.max_new_tokens = 10;
  one.id = "0." + std::to_string(stream);
  one.row = {{"messages", {{{"role", "user"}, {"content", "7"}}}}, {"secret", 5}};
  return one;
}

TEST(Conversations, TokensStayAsTheyWereDrawnAndOthersAreMasked) {
  const auto script = std::make_shared<Script>([](const eval::Talk& talk) {
    if (talk.turn == 1 && talk.id == "0.0") return said(user_says("30 31"));
    return said({{"done", true}, {"reward", 1.5}, {"info", {{"tries", talk.turn}}}});
  });
  // The second answer of the first conversation was ended by a word, not by a token.
  Drawer drawer{
      {{answer_ids({10, 11, kTurnEnd}), answer_ids({12, kTurnEnd})}, {answer_ids({13, 14})}}};
  const std::vector<DrawnAnswer> answers =
      conversations(script)->hold({talk_begin({kUser, 7, kTurnEnd, kAssistant}, 0),
                                   talk_begin({kUser, 8, kTurnEnd, kAssistant}, 1)},
                                  drawer.draw(), at_once());
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_THAT(answers[0].ids,
              ElementsAre(10, 11, kTurnEnd, kUser, 30, 31, kTurnEnd, kAssistant, 13, 14));
  EXPECT_THAT(answers[0].is_drawn, ElementsAre(1, 1, 1, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_EQ(answers[0].num_drawn(), 5);
  EXPECT_EQ(answers[0].turns, 2);
  EXPECT_EQ(answers[0].last_turn, 8);
  EXPECT_TRUE(answers[0].is_ended);
  EXPECT_EQ(answers[0].of_environment, 1.5);
  EXPECT_EQ(answers[1].turns, 1);
  EXPECT_EQ(answers[1].num_drawn(), 2);
  // Conversations that go on are drawn together, others not again, and by other random numbers.
  ASSERT_EQ(drawer.asked.size(), 2u);
  ASSERT_EQ(drawer.asked[1].size(), 1u);
  EXPECT_THAT(drawer.asked[1][0].prompt,
              ElementsAre(kUser, 7, kTurnEnd, kAssistant, 10, 11, kTurnEnd, kUser, 30, 31, kTurnEnd,
                          kAssistant));
  EXPECT_NE(drawer.asked[1][0].stream, drawer.asked[0][0].stream);
  EXPECT_NE(drawer.asked[1][0].stream, drawer.asked[0][1].stream);
  // What the program and rewards are told.
  const eval::Talk& last = script->asked().at(1).at(0);
  EXPECT_EQ(last.messages, Json::parse(R"([{"role": "user", "content": "7"},
      {"role": "assistant", "content": "10 11"}, {"role": "user", "content": "30 31"},
      {"role": "assistant", "content": "13 14"}])"));
  EXPECT_EQ(last.row, Json({{"secret", 5}}));
  EXPECT_EQ(last.answer, "13 14");
  const eval::Completion completion = completion_of(answers[0], NumberTokens());
  EXPECT_EQ(completion.text, "13 14");
  EXPECT_THAT(completion.ids, ElementsAre(13, 14));
  EXPECT_EQ(completion.prompt_ids.size(), 12u);
  EXPECT_EQ(completion.messages, last.messages);
  // Targets of the sample: a label is the token itself.
  const data::Sample sample = sample_of(answers[0], false);
  EXPECT_THAT(sample.labels, ElementsAre(-100, -100, -100, -100, 10, 11, kTurnEnd, -100, -100, -100,
                                         -100, -100, 13, 14));
}

TEST(Conversations, ATurnBehindAWordThatEndedAnAnswerBeginsWithTheTemplatesEnd) {
  const auto script = std::make_shared<Script>([](const eval::Talk& talk) {
    return said(talk.turn == 1 ? user_says("30") : Json{{"done", true}});
  });
  Drawer drawer{{{answer_ids({10})}, {answer_ids({11, kTurnEnd})}}};
  const DrawnAnswer answer = conversations(script)->hold(
      {talk_begin({kUser, 7, kTurnEnd, kAssistant}, 0)}, drawer.draw(), at_once())[0];
  EXPECT_THAT(answer.ids, ElementsAre(10, kTurnEnd, kUser, 30, kTurnEnd, kAssistant, 11, kTurnEnd));
  EXPECT_THAT(answer.is_drawn, ElementsAre(1, 0, 0, 0, 0, 0, 1, 1));
}

TEST(Conversations, AMessageOfTheModelGoesOnWithWhatItDidNotSay) {
  const auto script = std::make_shared<Script>([](const eval::Talk& talk) {
    // "10 11": what is behind the first number goes, with the end.
    if (talk.turn == 1) return said({{"continue", "40 41"}, {"kept_bytes", 2u}});
    return said({{"done", true}});
  });
  Drawer drawer{{{answer_ids({10, 11, kTurnEnd})}, {answer_ids({12, kTurnEnd})}}};
  const DrawnAnswer answer = conversations(script)->hold(
      {talk_begin({kUser, 7, kTurnEnd, kAssistant}, 0)}, drawer.draw(), at_once())[0];
  EXPECT_THAT(answer.ids, ElementsAre(10, 40, 41, 12, kTurnEnd));
  EXPECT_THAT(answer.is_drawn, ElementsAre(1, 0, 0, 1, 1));
  EXPECT_EQ(answer.last_turn, 0) << "one message";
  EXPECT_EQ(script->asked()[1][0].messages.size(), 2u);
  EXPECT_EQ(script->asked()[1][0].answer, "10 40 41 12");
}

TEST(Conversations, EndWhereTurnsTokensOrPositionsDo) {
  const auto script = std::make_shared<Script>([](const eval::Talk&) {
    Json json = user_says("30");
    json["reward"] = 1;
    return said(json);
  });
  const auto held = [&](const Conversations& with, std::vector<std::vector<DrawnAnswer>> turns) {
    Drawer drawer{std::move(turns)};
    return with.hold({talk_begin({kUser, 7, kTurnEnd, kAssistant}, 0)}, drawer.draw(),
                     at_once())[0];
  };
  const DrawnAnswer last =
      held(*conversations(script, 2), {{answer_ids({10, kTurnEnd})}, {answer_ids({11, kTurnEnd})}});
  EXPECT_EQ(last.turns, 2);
  EXPECT_TRUE(last.is_ended);
  EXPECT_EQ(last.of_environment, 2) << "of both turns";
  EXPECT_TRUE(script->asked().back()[0].is_last);
  const DrawnAnswer cut = held(*conversations(script), {{answer_ids({10, 11}, false)}});
  EXPECT_FALSE(cut.is_ended);
  EXPECT_EQ(cut.turns, 1);
  EXPECT_FALSE(script->asked().back()[0].is_ended);
  EXPECT_EQ(cut.of_environment, 1) << "it is asked about cut answers, too";
  // No token of 3 × 2 is left: 2 are the answer's and 4 the question's.
  const DrawnAnswer full = held(*conversations(script, 3, 2), {{answer_ids({10, kTurnEnd})}});
  EXPECT_FALSE(full.is_ended);
  EXPECT_THAT(full.ids, ElementsAre(10, kTurnEnd)) << "no message without an answer";
  const DrawnAnswer no_place =
      held(*conversations(script, 4, 10, 10), {{answer_ids({10, kTurnEnd})}});
  EXPECT_FALSE(no_place.is_ended);
  EXPECT_EQ(no_place.turns, 1);
}

/// Answers to each request: the first turn 10, 11, …, an end; the second one token more.
Generator two_turns() {
  return [](const std::vector<Request>& requests) {
    std::vector<Answer> answers;
    for (const Request& request : requests) {
      Answer answer;
      const auto first = static_cast<int32_t>(20 + request.stream % 7);
      answer.ids = {first, first + 1};
      if (request.prompt.size() > 8) answer.ids.push_back(first + 2);
      answer.reason = infer::FinishReason::kStop;
      answer.stopped_by = kTurnEnd;
      answers.push_back(answer);
    }
    return answers;
  };
}

eval::Reply asks_again(const eval::Talk& talk) {
  if (talk.turn == 1) return said(user_says("50 51"));
  const double reward = static_cast<double>(talk.answer.size() + talk.answer.back() % 5);
  return said({{"done", true}, {"reward", reward}});
}

/// GRPO's loss of a two-turn rollout, from ids and masks alone: of each drawn token its ratio times
/// -A, averaged over the drawn tokens of its answer.
TEST(Conversations, AStepsLossIsThatOfItsDrawnTokens) {
  Made made;
  RolloutSettings settings = settings_of(0, 1);
  settings.told.environment = "script";
  settings.told.max_turns = 3;
  settings.told.max_new_tokens = 12;
  settings.told.loss.kl = 0;
  settings.told.iterations = 2;
  settings.told.loss.clip_low = settings.told.loss.clip_high = 0.9;
  settings.stop_ids = {kTurnEnd};
  RolloutParts parts = parts_of(*made.state.model, *made.state.links, two_turns());
  parts.tokenizer = std::make_shared<NumberTokens>();
  parts.rewards = {eval::make_reward("environment", {})};
  parts.conversations = conversations(std::make_shared<Script>(asks_again), 3, 12);
  RolloutStream stream(parts, settings, 0);
  const data::StepBatches step = stream.next();
  EXPECT_EQ(stream.figures().at("num_turns/mean"), 2);
  EXPECT_EQ(stream.figures().at("completions/mean_length"), 7) << "drawn ones alone";
  const auto objective = policy_objective(settings.told.loss);
  double all = 0;
  for (data::Batch batch : step.micro_batches) {
    // As if the weights had moved since, otherwise at each token.
    std::vector<float>& olds = batch.token_columns.at(kOldColumn);
    const std::vector<float> as_found = olds;
    for (size_t i = 0; i < olds.size(); ++i) olds[i] -= 0.03F * static_cast<float>(i % 7);
    // The oracle: the log-probabilities of one answer at a time, and Σ over drawn tokens.
    double expected = 0, weight = 0;
    size_t targets = 0;
    for (size_t segment = 0; segment + 1 < batch.segment_starts.size(); ++segment) {
      const auto from = static_cast<size_t>(batch.segment_starts[segment]),
                 to = static_cast<size_t>(batch.segment_starts[segment + 1]);
      const std::vector<int32_t> ids(batch.ids.begin() + static_cast<std::ptrdiff_t>(from),
                                     batch.ids.begin() + static_cast<std::ptrdiff_t>(to));
      // By hand: answers are of 3 and 4 tokens, before the last the 5 of a question.
      std::vector<bool> is_drawn(ids.size(), false);
      const size_t n = ids.size();
      for (const size_t back : {1, 2, 3, 4, 10, 11, 12}) is_drawn[n - back] = true;
      const std::vector<float> logprobs = logprobs_now(*made.state.model, ids, n - 1);
      double sum = 0;
      for (size_t t = 1; t < n; ++t) {
        EXPECT_EQ(batch.targets[from + t - 1] >= 0, is_drawn[t]) << t;
        if (!is_drawn[t]) continue;
        const double old = batch.token_columns.at(kOldColumn)[from + t - 1];
        EXPECT_NEAR(as_found[from + t - 1], logprobs[t - 1], 1e-4);
        sum -= std::exp(logprobs[t - 1] - old) *
               batch.token_columns.at(kAdvantageColumn)[from + t - 1];
        ++targets;
      }
      expected += sum / 7;
      weight += 1;
    }
    EXPECT_EQ(batch.num_targets, static_cast<int64_t>(targets));
    EXPECT_EQ(objective->weight(batch), weight);
    const at::NoGradGuard no_grad;
    const models::ForwardInput input = evaluation_input(*made.state.model, batch);
    const Loss loss = objective->evaluate(*made.state.model, made.state.model->forward(input),
                                          input, batch, {}, 1);
    EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-5);
    all += std::abs(expected);
  }
  EXPECT_GT(all, 0.1);
}

TEST(Conversations, ARolloutThatWasBrokenOffAsksNothingTwice) {
  const danlu::test::TemporaryDirectory run;
  Made made;
  RolloutSettings settings = settings_of(0, 1);
  settings.told.environment = "script";
  settings.told.max_turns = 3;
  settings.told.max_new_tokens = 12;
  settings.stop_ids = {kTurnEnd};
  settings.run_directory = run / "";
  const auto first = [&](const Script::Say& say, Generator generate, size_t* asked) {
    const auto script = std::make_shared<Script>(say);
    RolloutParts parts = parts_of(*made.state.model, *made.state.links, std::move(generate));
    parts.tokenizer = std::make_shared<NumberTokens>();
    parts.rewards = {eval::make_reward("environment", {})};
    parts.conversations = conversations(script, 3, 12);
    std::vector<int64_t> ids;
    try {
      RolloutStream stream(parts, settings, 0);
      ids = stream.next().micro_batches[0].ids;
    } catch (const DataError&) {
    }
    *asked = script->asked().size();
    return ids;
  };
  size_t asked = 0;
  // The program dies in the second turn; the first one is known then.
  first(
      [](const eval::Talk& talk) -> eval::Reply {
        if (talk.turn == 2) throw DataError("it died");
        return asks_again(talk);
      },
      two_turns(), &asked);
  EXPECT_EQ(asked, 2u);
  const std::vector<int64_t> again = first(
      asks_again,
      [](const std::vector<Request>&) {
        ADD_FAILURE() << "all answers were drawn";
        return std::vector<Answer>();
      },
      &asked);
  EXPECT_EQ(asked, 1u) << "the second turn alone";
  settings.run_directory.clear();
  EXPECT_EQ(first(asks_again, two_turns(), &asked), again);
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
