// Answers that several rollouts draw, a part in each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "train/objectives/policy.h"
#include "train/rollout_parts.h"
#include "train/rollouts/answer_pool.h"

namespace danlu::train {
namespace mesh_test {
namespace {

using Kind = AnswerPool::Kind;

TEST(AnswerPool, GivesTheOldestWholePromptsAndKeepsTheOthers) {
  AnswerPool pool(2);
  pool.begin_prompts(Kind::kOwn, 3);
  EXPECT_EQ(pool.unfinished().size(), 6u);
  const auto grow = [&](size_t prompt, int32_t tokens, bool is_ended) {
    for (size_t answer = 0; answer < 2; ++answer)
      pool.add({prompt, answer}, std::vector<int32_t>(static_cast<size_t>(tokens), 7), is_ended,
               /*asked=*/3, /*limit=*/6);
  };
  grow(0, 3, false);
  grow(1, 2, true);
  grow(2, 2, false);  // fewer than asked: there was no room
  EXPECT_EQ(pool.num_whole(Kind::kOwn), 2);
  EXPECT_EQ(pool.size(Kind::kOwn), 3);
  EXPECT_EQ(pool.unfinished().size(), 2u);
  for (const auto place : pool.unnoted()) pool.note(place, {-0.1f, -0.2f, -0.3f});
  EXPECT_THAT(pool.take(Kind::kOwn, 1), testing::ElementsAre(1));
  EXPECT_EQ(pool.size(Kind::kOwn), 2);
  pool.remove_taken();
  pool.begin_rollout(9);
  pool.begin_prompts(Kind::kFurther, 1);
  EXPECT_EQ(pool.size(Kind::kFurther), 1);
  grow(0, 3, false);  // the limit of both parts
  EXPECT_TRUE(pool.find(0)->is_whole());
  EXPECT_EQ(pool.find(0)->answers[0].rollouts, 2);
  EXPECT_THAT(pool.take(Kind::kOwn, 2), testing::ElementsAre(0, 2));
}

TEST(AnswerPool, GivesUpFurtherPromptsThatWaitTooLong) {
  AnswerPool pool(1);
  pool.begin_prompts(Kind::kOwn, 1);
  pool.begin_prompts(Kind::kFurther, 2);
  for (size_t prompt : {0, 1, 2}) pool.add({prompt, 0}, {7}, true, 3, 6);
  for (const auto place : pool.unnoted()) pool.note(place, {-0.1f});
  for (int rollout = 0; rollout < 2; ++rollout) {
    pool.begin_rollout(2);
    pool = AnswerPool(1, Json::parse(pool.state().dump()));  // a run that goes on counts further
    EXPECT_EQ(pool.num_whole(Kind::kFurther), 2) << rollout;
  }
  pool.begin_prompts(Kind::kFurther, 1);
  pool.begin_rollout(2);
  EXPECT_EQ(pool.size(Kind::kFurther), 1) << "the one that was begun a rollout ago";
  EXPECT_NE(pool.find(kFurtherPrompts + 2), nullptr);
  EXPECT_EQ(pool.num_whole(Kind::kOwn), 1) << "every prompt of the order is learnt from";
}

TEST(AnswerPool, PromptsOfAnOlderCheckpointWaitFromNowOn) {
  AnswerPool pool(1);
  pool.begin_prompts(Kind::kFurther, 1);
  pool.add({0, 0}, {7}, true, 3, 6);
  pool.note({0, 0}, {-0.1f});
  Json older = pool.state();
  for (Json& prompt : older["prompts"]) EXPECT_EQ(prompt.erase("waited"), 1u);
  AnswerPool again(1, older);
  again.begin_rollout(1);
  EXPECT_EQ(again.num_whole(Kind::kFurther), 1);
  again.begin_rollout(1);
  EXPECT_EQ(again.num_whole(Kind::kFurther), 0);
}

TEST(AnswerPool, IsTheSameToTheBitInAnotherProcess) {
  AnswerPool pool(1, 5);
  pool.begin_prompts(Kind::kOwn, 1);
  pool.begin_prompts(Kind::kFurther, 1);
  pool.add({0, 0}, {3, 2}, true, 4, 8);
  pool.add({1, 0}, {9}, false, 1, 8);
  pool.note({0, 0}, {-0.1f, -INFINITY});
  pool.note({1, 0}, {-1e-30f});
  const AnswerPool again(1, Json::parse(pool.state().dump()));
  EXPECT_EQ(again.state(), pool.state());
  EXPECT_EQ(again.next_own(), 6);
  EXPECT_EQ(again.find(5)->answers[0].old, (std::vector<float>{-0.1f, -INFINITY}));
  EXPECT_EQ(again.find(kFurtherPrompts)->answers[0].ids, (std::vector<int32_t>{9}));
  EXPECT_FALSE(again.find(kFurtherPrompts)->answers[0].is_whole);
  EXPECT_THROW(AnswerPool(2, pool.state()), IoError);
  Json damaged = pool.state();
  damaged["prompts"][0]["answers"][0]["logprob_bits"] = "0badc0de";
  EXPECT_THROW(AnswerPool(1, damaged), IoError);
  EXPECT_THROW(AnswerPool(1, Json::object()), IoError);
}

/// An answer as a step has it: its prompt, its tokens, and whether it ended.
using AsLearnt = std::vector<int64_t>;

std::vector<AsLearnt> answers_in(const data::StepBatches& step) {
  std::vector<AsLearnt> answers;
  for (const data::Batch& batch : step.micro_batches) {
    for (size_t i = 0; i + 1 < batch.segment_starts.size(); ++i)
      answers.emplace_back(batch.ids.begin() + batch.segment_starts[i],
                           batch.ids.begin() + batch.segment_starts[i + 1]);
  }
  return answers;
}

constexpr int64_t kRollouts = 6;

RolloutSettings in_parts(int64_t parts, int64_t dp_rank = 0, int64_t dp_size = 1) {
  RolloutSettings settings = settings_of(dp_rank, dp_size);
  settings.told.max_new_tokens = 12;
  settings.told.parts = parts;
  settings.rollouts = kRollouts;
  return settings;
}

/// What weights that stay learn from in all rollouts.
std::vector<AsLearnt> all_learnt(int64_t parts, std::map<std::string, double>* most = nullptr,
                                 const std::function<void(RolloutSettings&)>& change = {}) {
  Made made;
  RolloutSettings settings = in_parts(parts);
  if (change) change(settings);
  const auto ranks = std::make_shared<const DrawingRanks>(Mesh::single());
  RolloutStream stream(parts_of(*made.state.model, *made.state.links, ranks), settings, 0);
  std::vector<AsLearnt> answers;
  for (int64_t i = 0; i < kRollouts * settings.told.steps; ++i) {
    const std::vector<AsLearnt> some = answers_in(stream.next());
    answers.insert(answers.end(), some.begin(), some.end());
    for (const auto& [name, value] : stream.figures()) {
      if (most) (*most)[name] = std::max((*most)[name], value);
    }
  }
  return answers;
}

TEST(PartialRollouts, EveryPromptOnceAndTheSameTokens) {
  // Draws depend on the prompt, the answer and the token, and weights stay: whatever rollout drew
  // a token, it is the same.
  std::vector<AsLearnt> whole = all_learnt(1);
  std::sort(whole.begin(), whole.end());
  for (const int64_t parts : {2, 3, 5, 12}) {
    SCOPED_TRACE(parts);
    std::map<std::string, double> most;
    std::vector<AsLearnt> got = all_learnt(parts, &most);
    EXPECT_GT(most.at("partial/ratio"), 0) << "some are drawn by several rollouts";
    EXPECT_GE(most.at("partial/max_rollouts"), 2);
    EXPECT_LE(most.at("partial/max_rollouts"), static_cast<double>(parts));
    EXPECT_GE(most.at("partial/waiting_prompts"), 1);
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, whole);
  }
}

TEST(PartialRollouts, ARolloutThatHasItsAnswersDoesNotWaitForALongOne) {
  // The answers to prompt 1 have 12 tokens, others one. It is drawn by the second rollout, too.
  Made made;
  int64_t asked = 0;
  const Generator some_long = [&](const std::vector<Request>& requests) {
    std::vector<Answer> answers;
    for (const Request& request : requests) {
      ++asked;
      Answer answer;
      const bool is_long = request.stream / 4 == 1;
      const int64_t whole = is_long ? 12 : 1;
      const int64_t tokens = std::min(request.max_new_tokens, whole - request.answered);
      EXPECT_GT(tokens, 0);
      answer.ids.assign(static_cast<size_t>(tokens), static_cast<int32_t>(7 + request.stream % 4));
      if (!is_long) answer.stopped_by = 2;
      answers.push_back(answer);
    }
    return answers;
  };
  RolloutSettings settings = in_parts(3);
  RolloutStream stream(parts_of(*made.state.model, *made.state.links, some_long), settings, 0);
  const auto first_tokens = [&] {
    std::set<int64_t> firsts;
    for (const AsLearnt& answer : answers_in(stream.next())) firsts.insert(answer.front());
    return firsts;
  };
  EXPECT_EQ(first_tokens(), (std::set<int64_t>{3, 5})) << "prompt 2 in the place of prompt 1";
  EXPECT_EQ(asked, 8 + 8) << "a second part of prompt 1's beside prompt 2's answers";
  EXPECT_EQ(stream.figures().at("partial/waiting_prompts"), 1);
  EXPECT_EQ(first_tokens(), (std::set<int64_t>{4, 6}));
  EXPECT_EQ(asked, 8 + 8 + 8);
  EXPECT_EQ(stream.figures().at("partial/max_rollouts"), 2);
  EXPECT_EQ(stream.figures().at("partial/ratio"), 0.5);
  EXPECT_EQ(stream.figures().at("completions/max_length"), 12);
  // The last rollout has none to leave it to.
  settings.rollouts = 1;
  RolloutStream last(parts_of(*made.state.model, *made.state.links, some_long), settings, 0);
  std::set<int64_t> firsts;
  for (const AsLearnt& answer : answers_in(last.next())) firsts.insert(answer.front());
  EXPECT_EQ(firsts, (std::set<int64_t>{3, 4}));
  EXPECT_EQ(last.figures().at("partial/waiting_prompts"), 0);
}

/// Steps of weights that learn.
void learn_from(TrainState& state, const data::StepBatches& step) {
  static const TrainConfig config = config_of({"llama", "llama", Json::object()});
  run_step(state, step, config, config.schedule.shape);
}

/// What is known of an answer's tokens from when each was drawn.
struct NotedTokens {
  std::vector<int64_t> rollouts;
  std::vector<float> logprobs;
};

TEST(PartialRollouts, EachPartHasTheLogProbabilitiesOfTheWeightsThatDrewIt) {
  Made made;
  made.state.objective = policy_objective({});
  const models::CausalLM& model = *made.state.model;
  const Generator draws =
      drawing_of(*made.state.model, std::make_shared<DrawingRanks>(Mesh::single()), 4).generate;
  int64_t rollout = 0;
  std::map<uint64_t, NotedTokens> of_stream;
  std::map<AsLearnt, NotedTokens> of_answer;
  const Generator noting = [&](const std::vector<Request>& requests) {
    const std::vector<Answer> answers = draws(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      NotedTokens& noted = of_stream[requests[i].stream];
      EXPECT_EQ(std::ssize(noted.rollouts), requests[i].answered);
      std::vector<int32_t> whole = requests[i].prompt, ids = answers[i].ids;
      if (answers[i].stopped_by) ids.push_back(*answers[i].stopped_by);
      whole.insert(whole.end(), ids.begin(), ids.end());
      const std::vector<float> now = logprobs_now(model, whole, ids.size());
      noted.rollouts.insert(noted.rollouts.end(), ids.size(), rollout);
      noted.logprobs.insert(noted.logprobs.end(), now.begin(), now.end());
      of_answer[AsLearnt(whole.begin(), whole.end())] = noted;
    }
    return answers;
  };
  RolloutSettings settings = in_parts(3);
  settings.told.loss = {};
  RolloutStream stream(parts_of(*made.state.model, *made.state.links, noting), settings, 0);
  int64_t of_several = 0;
  double moved = 0;
  for (; rollout < kRollouts; ++rollout) {
    const data::StepBatches step = stream.next();
    for (const data::Batch& batch : step.micro_batches) {
      const std::vector<float>& old = batch.token_columns.at(kOldColumn);
      for (size_t i = 0; i + 1 < batch.segment_starts.size(); ++i) {
        const int64_t begin = batch.segment_starts[i], end = batch.segment_starts[i + 1];
        const AsLearnt whole(batch.ids.begin() + begin, batch.ids.begin() + end);
        ASSERT_TRUE(of_answer.contains(whole)) << "as it was drawn, token for token";
        const NotedTokens& noted = of_answer.at(whole);
        const size_t tokens = noted.rollouts.size();
        of_several += noted.rollouts.front() != noted.rollouts.back() ? 1 : 0;
        const std::vector<float> now =
            logprobs_now(model, std::vector<int32_t>(whole.begin(), whole.end()), tokens);
        for (size_t t = 0; t < tokens; ++t) {
          const float got = old[static_cast<size_t>(end - 1) - tokens + t];
          EXPECT_NEAR(got, noted.logprobs[t], 1e-5)
              << "token " << t << ", drawn in rollout " << noted.rollouts[t]
              << " and learnt from in " << rollout;
          moved = std::max(moved, std::fabs(static_cast<double>(now[t] - got)));
        }
      }
    }
    learn_from(made.state, step);
  }
  EXPECT_GT(of_several, 0);
  EXPECT_GT(moved, 1e-3) << "weights say other things by then";
}

TEST(PartialRollouts, SeveralStepsAndPassesOfARollout) {
  std::vector<AsLearnt> whole = all_learnt(1, nullptr, [](auto& settings) {
    settings.told.steps = 2;
    settings.rollouts = kRollouts;
  });
  std::vector<AsLearnt> got = all_learnt(3, nullptr, [](auto& settings) {
    settings.told.steps = 2;
    settings.rollouts = kRollouts;
  });
  std::sort(whole.begin(), whole.end());
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, whole);
}

/// Answers to prompts that begin with an odd id are all worth the same.
class EqualForOdd : public Odd {
 public:
  std::vector<eval::Score> scores(std::span<const eval::Completion> all) const override {
    std::vector<eval::Score> scores;
    for (size_t i = 0; i < all.size(); ++i)
      scores.emplace_back(all[i].prompt_ids.front() % 2 == 1 ? 1 : static_cast<double>(i % 4));
    return scores;
  }
};

TEST(PartialRollouts, PromptsOfEqualRewardsGiveWayToOthersThatAreWhole) {
  Made made;
  RolloutSettings settings = in_parts(4);
  settings.told.max_resamples = 20;
  const auto ranks = std::make_shared<const DrawingRanks>(Mesh::single());
  RolloutParts parts = parts_of(*made.state.model, *made.state.links, ranks);
  parts.rewards = {std::make_shared<EqualForOdd>()};
  RolloutStream stream(std::move(parts), settings, 0);
  double further = 0;
  std::set<AsLearnt> seen;
  for (int64_t i = 0; i < kRollouts; ++i) {
    const std::vector<AsLearnt> answers = answers_in(stream.next());
    ASSERT_EQ(answers.size(), 8u);
    for (const AsLearnt& answer : answers) EXPECT_EQ(answer.front() % 2, 0);
    EXPECT_EQ(stream.figures().at("frac_reward_zero_std"), 0);
    further += stream.figures().at("resampled_prompts");
    seen.insert(answers.begin(), answers.end());
  }
  EXPECT_GE(further, kRollouts / 2);
  EXPECT_EQ(stream.state().at("next").at(0), 2 * kRollouts) << "each of its own was begun once";
}

TEST(PartialRollouts, AStreamGoesOnWithWhatACheckpointKeeps) {
  const auto learnt = [](int64_t stops) {
    Made made;
    made.state.objective = policy_objective({});
    const auto ranks = std::make_shared<const DrawingRanks>(Mesh::single());
    RolloutSettings settings = in_parts(3);
    std::vector<data::StepBatches> steps;
    auto stream = std::make_unique<RolloutStream>(
        parts_of(*made.state.model, *made.state.links, ranks), settings, 0);
    for (int64_t i = 0; i < kRollouts; ++i) {
      if (i == stops) {
        // A step that was given back belongs to the next process, with what its rollout began
        // with.
        stream->put_back(stream->next());
        settings.state = Json::parse(stream->state().dump());
        const int64_t consumed = stream->consumed();
        stream = std::make_unique<RolloutStream>(
            parts_of(*made.state.model, *made.state.links, ranks), settings, consumed);
      }
      steps.push_back(stream->next());
      learn_from(made.state, steps.back());
    }
    return steps;
  };
  RolloutSettings others = in_parts(3);
  others.state = AnswerPool(4, 5).state();
  Made made;
  EXPECT_THROW(made.stream(others, told()), IoError) << "prompts 0 to 4 would be learnt by nobody";
  const auto whole = learnt(-1);
  for (const int64_t stops : {1, 3, 5}) {
    SCOPED_TRACE(stops);
    const auto got = learnt(stops);
    for (size_t step = 0; step < whole.size(); ++step) {
      EXPECT_EQ(answers_in(got[step]), answers_in(whole[step])) << step;
      for (size_t i = 0; i < whole[step].micro_batches.size(); ++i) {
        EXPECT_EQ(got[step].micro_batches[i].token_columns,
                  whole[step].micro_batches[i].token_columns)
            << step;
      }
    }
  }
}

/// Losses, rewards and shares of answers that several rollouts drew.
struct LearntInParts {
  std::vector<double> losses, rewards, ratios;
};

LearntInParts learn_in_parts(const Case& c) {
  LearntInParts learnt;
  std::mutex mutex;
  const auto rank = [&](const Mesh& mesh, const std::shared_ptr<const DrawingRanks>& ranks) {
    TrainState state = state_of(c, mesh);
    const TrainConfig config = config_of(c);
    RolloutSettings settings = in_parts(3, mesh.shape().data_rank(mesh.rank()), mesh.shape().data);
    state.objective = policy_objective(settings.told.loss, frozen_beside(c, mesh));
    RolloutStream stream(parts_of(*state.model, *state.links, ranks), settings, 0);
    for (int64_t step = 0; step < kRollouts; ++step) {
      const StepResult result = run_step(state, stream.next(), config, config.schedule.shape);
      if (mesh.rank() != 0) continue;
      const std::lock_guard lock(mutex);
      learnt.losses.push_back(result.loss);
      learnt.rewards.push_back(stream.figures().at("reward"));
      learnt.ratios.push_back(stream.figures().at("partial/ratio"));
    }
  };
  on_drawing_ranks(c.shape, rank);
  return learnt;
}

TEST(PartialRollouts, RanksOfEveryAxisDrawAsOneDoes) {
  Case c{"llama", "llama", {{"num_hidden_layers", 4}}};
  const LearntInParts one = learn_in_parts(c), again = learn_in_parts(c);
  EXPECT_EQ(one.losses, again.losses) << "the same bits";
  EXPECT_GT(*std::max_element(one.ratios.begin(), one.ratios.end()), 0);
  MeshShape cp2, sp;
  cp2.context = {1, 2, 2};
  sp.tensor = 2;
  sp.sequence_parallel = true;
  for (const MeshShape& shape :
       {MeshShape{.data = 2}, MeshShape{.tensor = 2}, MeshShape{.pipeline = 2}, cp2, sp,
        MeshShape{.tensor = 2, .data = 2}, MeshShape{.data = 2, .pipeline = 2}}) {
    for (const auto sharding : {parallel::Sharding::kNone, parallel::Sharding::kParameters}) {
      if (shape.data == 1 && sharding != parallel::Sharding::kNone) continue;
      SCOPED_TRACE(fmt::format("tp{} dp{} pp{} cp{} sp{} shard {}", shape.tensor, shape.data,
                               shape.pipeline, shape.context.size(), shape.sequence_parallel,
                               static_cast<int>(sharding)));
      c.shape = shape;
      c.sharding = sharding;
      const LearntInParts got = learn_in_parts(c);
      EXPECT_EQ(got.rewards, one.rewards);
      EXPECT_EQ(got.ratios, one.ratios);
      ASSERT_EQ(got.losses.size(), one.losses.size());
      for (size_t step = 0; step < one.losses.size(); ++step)
        EXPECT_NEAR(got.losses[step], one.losses[step], 1e-5) << step;
    }
  }
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
