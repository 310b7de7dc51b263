// Answers that a policy draws: what a stream of them gives, and that it does not depend on the
// mesh.
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "support/slow.h"
#include "train/batch_input.h"
#include "train/mesh.h"
#include "train/objectives/drawn_tokens.h"
#include "train/objectives/policy.h"
#include "train/objectives/value.h"
#include "train/rollout_parts.h"
#include "train/rollouts/answer_passes.h"
#include "train/rollouts/model_reward.h"

namespace danlu::train {
namespace mesh_test {
namespace {

TEST(RolloutStream, StepsAreOfTheAnswersThatWereDrawn) {
  Made made;
  RolloutStream stream = made.stream(settings_of(0, 1), told());
  EXPECT_TRUE(stream.is_resumable());
  const data::StepBatches step = stream.next();
  EXPECT_TRUE(stream.is_resumable());
  EXPECT_EQ(stream.consumed(), 8);
  EXPECT_NEAR(stream.epoch(), 2.0 / 6, 1e-12) << "two prompts of six";
  ASSERT_EQ(step.micro_batches.size(), 4u);
  const data::Batch& first = step.micro_batches[0];
  // Answers 0 (cut) and 1 (ended by 2) to the prompt 3 4.
  EXPECT_THAT(first.ids, testing::ElementsAre(3, 4, 3, 3, 4, 4, 5, 2));
  EXPECT_THAT(first.targets, testing::ElementsAre(-100, 3, -100, -100, 4, 5, 2, -100));
  EXPECT_EQ(first.token_columns.count(kOldColumn), 0u) << "one step: the policy is its own old one";
  const auto figures = stream.figures();
  EXPECT_NEAR(figures.at("completions/clipped_ratio"), 3.0 / 8, 1e-12);
  EXPECT_EQ(figures.at("completions/max_length"), 5);
  EXPECT_EQ(figures.at("completions/min_length"), 1);
  // The first answer is not judged, and is worth nothing.
  EXPECT_EQ(first.token_columns.at(kAdvantageColumn)[1], 0);
  EXPECT_NE(first.token_columns.at(kAdvantageColumn)[4], 0);
}

TEST(RolloutStream, AnswersOfOneRolloutGoThroughSeveralSteps) {
  Made made;
  RolloutSettings settings = settings_of(0, 1);
  settings.told.steps = 2;
  settings.told.iterations = 2;
  RolloutStream stream = made.stream(settings, told());
  std::vector<data::StepBatches> steps;
  for (int i = 0; i < 5; ++i) {
    steps.push_back(stream.next());
    EXPECT_EQ(stream.is_resumable(), i == 3) << i;
    EXPECT_EQ(stream.figures().empty(), i != 0 && i != 4) << i;
  }
  const auto ids = [&](size_t step) { return steps[step].micro_batches[1].ids; };
  EXPECT_EQ(ids(0), ids(2));
  EXPECT_EQ(ids(1), ids(3));
  EXPECT_NE(ids(0), ids(1));
  EXPECT_NE(ids(0), ids(4));
  const auto& columns = steps[0].micro_batches[1].token_columns;
  ASSERT_EQ(columns.count(kOldColumn), 1u);
  for (size_t i = 0; i < ids(0).size(); ++i) {
    const bool is_target = steps[0].micro_batches[1].targets[i] >= 0;
    EXPECT_EQ(columns.at(kOldColumn)[i] < 0, is_target) << i;
  }
  EXPECT_EQ(columns.at(kOldColumn), steps[2].micro_batches[1].token_columns.at(kOldColumn));
}

TEST(RolloutStream, AStepThatIsPutBackComesAgain) {
  Made made;
  RolloutStream stream = made.stream(settings_of(0, 1), told());
  const data::StepBatches step = stream.next();
  stream.put_back(step);
  EXPECT_EQ(stream.consumed(), 0);
  EXPECT_EQ(stream.next().micro_batches[0].ids, step.micro_batches[0].ids);
  EXPECT_EQ(stream.consumed(), 8);
  EXPECT_NE(stream.next().micro_batches[0].ids, step.micro_batches[0].ids);
}

TEST(RolloutStream, GoesOnWhereARolloutBegins) {
  Made made;
  RolloutSettings settings = settings_of(0, 1);
  const Generator generate =
      drawing_of(*made.state.model, std::make_shared<DrawingRanks>(Mesh::single()), 3).generate;
  RolloutStream whole = made.stream(settings, generate);
  whole.next();
  const data::StepBatches second = whole.next();
  RolloutStream later = made.stream(settings, generate, 8);
  EXPECT_EQ(later.next().micro_batches[2].ids, second.micro_batches[2].ids);
  settings.told.steps = 2;
  EXPECT_THROW(made.stream(settings, generate, 8), UsageError) << "the midst of a rollout";
  settings.told.answers = 3;
  EXPECT_THROW(made.stream(settings, generate, 0), UsageError);
}

TEST(RolloutStream, AnswersThatWereCutAreMasked) {
  Made made;
  RolloutSettings settings = settings_of(0, 1);
  settings.told.masks_truncated = true;
  RolloutStream stream = made.stream(settings, told());
  const data::StepBatches step = stream.next();
  EXPECT_THAT(step.micro_batches[0].targets,
              testing::ElementsAre(-100, -100, -100, -100, 4, 5, 2, -100));
}

TEST(RolloutStream, AStepWhoseAnswersWereAllCutLearnsNothingAndGoesOn) {
  Made made;
  RolloutSettings settings = settings_of(0, 1);
  settings.told.masks_truncated = true;
  settings.told.loss.kl = 0;
  settings.told.loss.mean = settings::LossMean::kTokens;
  RolloutStream stream = made.stream(settings, [](const std::vector<Request>& requests) {
    std::vector<Answer> answers(requests.size());
    for (size_t i = 0; i < answers.size(); ++i)
      answers[i].ids = {7, static_cast<int32_t>(8 + i), 9};
    return answers;
  });
  made.state.objective = policy_objective(settings.told.loss);
  const TrainConfig config = config_of({"llama", "llama", Json::object()});
  const StepResult result = run_step(made.state, stream.next(), config, config.schedule.shape);
  EXPECT_EQ(stream.figures().at("completions/clipped_ratio"), 1);
  EXPECT_GT(stream.figures().at("reward_std"), 0) << "they differ, and are worth nothing";
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.grad_norm, 0);
}

TEST(RolloutStream, GoesOnWhereAnswersCannotBeWrittenDown) {
  Made made;
  const danlu::test::TemporaryDirectory folder;
  RolloutSettings settings = settings_of(0, 1);
  settings.samples_file = folder / "gone" / "samples.jsonl";
  RolloutStream stream = made.stream(settings, told());
  EXPECT_FALSE(stream.next().micro_batches.empty());
}

TEST(RolloutStream, EveryAnswerIsWrittenDown) {
  Made made;
  const danlu::test::TemporaryDirectory folder;
  RolloutSettings settings = settings_of(0, 1);
  settings.samples_file = folder / "samples.jsonl";
  RolloutStream stream = made.stream(settings, told());
  stream.next();
  stream.next();
  std::ifstream file(settings.samples_file);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 16u);
  EXPECT_EQ(lines[1].at("prompt"), "3 4");
  EXPECT_EQ(lines[1].at("completion"), "4 5 2");
  EXPECT_EQ(lines[0].at("rewards").at("odd"), Json());
  EXPECT_EQ(lines[8].at("step"), 2);
}

TEST(RolloutStream, HeldOutPromptsGetTheirLikeliestAnswers) {
  Made made;
  const danlu::test::TemporaryDirectory folder;
  RolloutSettings settings = settings_of(0, 1);
  settings.samples_file = folder / "samples.jsonl";
  std::vector<bool> draws;
  const Generator answers = told();
  RolloutStream stream = made.stream(settings, [&](const std::vector<Request>& requests) {
    for (const Request& request : requests) draws.push_back(request.sampling.do_sample);
    return answers(requests);
  });
  stream.next();
  EXPECT_THAT(draws, testing::Each(true));
  draws.clear();
  const Evaluation held = stream.evaluate(Prompts(5), {});
  EXPECT_THAT(draws, testing::ElementsAre(false, false, false, false, false)) << "one to each";
  EXPECT_EQ(held.num_samples, 5);
  std::ifstream file(settings.samples_file);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 13u);
  EXPECT_FALSE(lines[7].contains("held_out"));
  EXPECT_TRUE(lines[8].at("held_out"));
  EXPECT_EQ(lines[8].at("step"), 1);
  EXPECT_FALSE(lines[8].contains("advantage"));
}

TEST(DrawnAnswers, ComeInTheOrderOfTheirPlaces) {
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const Mesh mesh(world, {.data = 2});
    // Each rank drew in two rounds.
    std::vector<DrawnAnswer> own(4);
    for (size_t i = 0; i < 4; ++i) {
      own[i].place = static_cast<int64_t>(i / 2 * 4 + i % 2) + 2 * mesh.rank();
      own[i].ids = {static_cast<int32_t>(own[i].place + 3)};
    }
    const std::vector<DrawnAnswer> all = answers_of_all(mesh.batch_ranks(), own);
    ASSERT_EQ(all.size(), 8u);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(all[static_cast<size_t>(i)].place, i);
      EXPECT_EQ(all[static_cast<size_t>(i)].ids.front(), i + 3);
    }
  });
}

TEST(AnswerPasses, NumbersAreReadWhereTokensArePredicted) {
  Made made;
  DrawnAnswer answer;
  answer.prompt = {3, 4, 5};
  answer.ids = {7, 9, 11, 2};
  std::vector<DrawnAnswer> answers = {answer, answer};
  answers[1].ids = {8};
  find_for_tokens(ForwardPasses(*made.state.model, *made.state.links), true, logprobs_at(0.5),
                  &DrawnAnswer::old, answers);
  for (const DrawnAnswer& one : answers) {
    const data::Batch batch = data::make_batch({sample_of(one, false)});
    const at::NoGradGuard no_grad;
    const models::ForwardInput input = evaluation_input(*made.state.model, batch);
    const at::Tensor hidden = made.state.model->forward(input);
    const DrawnTokens drawn(batch, at::kCPU);
    const at::Tensor expected =
        made.state.model
            ->token_logprobs(hidden, input, drawn.rows_M, drawn.ids_M, {.temperature = 0.5})
            .logprobs_M;
    ASSERT_EQ(one.old.size(), one.ids.size());
    for (size_t t = 0; t < one.ids.size(); ++t)
      EXPECT_NEAR(one.old[t], expected[static_cast<int64_t>(t)].item<float>(), 1e-5) << t;
  }
}

struct Learnt {
  std::vector<double> losses, rewards, shares;  ///< shares of clipped ratios
};

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5) << i;
}

/// Three steps of answers that the policy draws itself.
Learnt learn(const Case& c, int64_t iterations = 1, bool is_greedy = false,
             const settings::PolicyLoss& how = {}) {
  Learnt learnt;
  std::mutex mutex;
  const auto rank = [&](const Mesh& mesh, const std::shared_ptr<const DrawingRanks>& ranks) {
    TrainState state = state_of(c, mesh);
    const TrainConfig config = config_of(c);
    RolloutSettings settings = settings_of(mesh.shape().data_rank(mesh.rank()), mesh.shape().data);
    settings.told.loss = how;
    settings.told.loss.kl = 0.05;
    settings.told.loss.longest = settings.told.max_new_tokens;
    settings.told.iterations = iterations;
    if (is_greedy) settings.told.top_k = 1;
    state.objective = policy_objective(
        settings.told.loss, c.tuning == Tuning::kFull ? frozen_beside(c, mesh) : nullptr);
    RolloutStream stream(parts_of(*state.model, *state.links, ranks), settings, 0);
    for (int step = 0; step < 3; ++step) {
      const StepResult result = run_step(state, stream.next(), config, config.schedule.shape);
      if (mesh.rank() != 0) continue;
      const std::lock_guard lock(mutex);
      learnt.losses.push_back(result.loss);
      learnt.shares.push_back(result.metrics.at("clip_ratio/region_mean"));
      const auto figures = stream.figures();
      learnt.rewards.push_back(figures.count("reward") ? figures.at("reward") : 0);
    }
  };
  on_drawing_ranks(c.shape, rank);
  return learnt;
}

TEST(RolloutMesh, DrawsAndLearnsAsOneRankDoes) {
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    Case c{"llama", "llama", Json::object(), tuning};
    const Learnt one = learn(c), again = learn(c);
    EXPECT_EQ(one.losses, again.losses) << "the same bits";
    EXPECT_NE(one.rewards[0], one.rewards[1]);
    for (const auto sharding : {parallel::Sharding::kNone, parallel::Sharding::kGradients,
                                parallel::Sharding::kParameters}) {
      SCOPED_TRACE(static_cast<int>(sharding));
      c.shape.data = 2;
      c.sharding = sharding;
      const Learnt got = learn(c);
      ASSERT_EQ(got.losses.size(), 3u);
      EXPECT_EQ(got.rewards, one.rewards);
      for (size_t step = 0; step < 3; ++step)
        EXPECT_NEAR(got.losses[step], one.losses[step], 1e-5) << step;
    }
  }
}

TEST(RolloutMesh, TensorRanksDrawTogetherAsOneRankDoes) {
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const bool is_greedy : {true, false}) {
      Case c{"llama", "llama", Json::object(), tuning};
      // The same answers, as long as no two tokens are equally likely, and no draw falls between
      // two, to rounding.
      const Learnt one = learn(c, 2, is_greedy);
      for (const int64_t data : {1, 2}) {
        for (const auto sharding : {parallel::Sharding::kNone, parallel::Sharding::kParameters}) {
          SCOPED_TRACE(fmt::format("dp {} shard {}", data, static_cast<int>(sharding)));
          c.shape = {};
          c.shape.tensor = 2;
          c.shape.data = data;
          c.sharding = sharding;
          const Learnt got = learn(c, 2, is_greedy);
          EXPECT_EQ(got.rewards, one.rewards);
          ASSERT_EQ(got.losses.size(), 3u);
          for (size_t step = 0; step < 3; ++step)
            EXPECT_NEAR(got.losses[step], one.losses[step], 1e-5) << step;
        }
      }
    }
  }
}

/// Meshes whose ranks do not hold whole layers, or parts of all of them, or not all tokens.
std::vector<MeshShape> cut_otherwise() {
  MeshShape cp2, sp, cp2pp2, tp2pp2sp;
  cp2.context = {1, 2, 2};
  sp.tensor = 2;
  sp.sequence_parallel = true;
  cp2pp2.context = {1, 2, 2};
  cp2pp2.pipeline = 2;
  tp2pp2sp = {.tensor = 2, .pipeline = 2, .sequence_parallel = true};
  return {{.pipeline = 2}, cp2,     sp, {.tensor = 2, .pipeline = 2}, {.data = 2, .pipeline = 2},
          cp2pp2,          tp2pp2sp};
}

std::string named(const MeshShape& shape) {
  return fmt::format("tp{} dp{} pp{} cp{} ep{} sp{}", shape.tensor, shape.data, shape.pipeline,
                     shape.context.size(), shape.expert, shape.sequence_parallel);
}

TEST(RolloutMesh, RanksOfEveryAxisDrawAsOneRankDoes) {
  size_t turn = 0;  // in `make test` every third
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora, Tuning::kDora}) {
    Case c{"llama", "llama", {{"num_hidden_layers", 4}}, tuning};
    // The likeliest answers; and drawn ones, which are the same as long as no draw falls between
    // two tokens to rounding.
    const Learnt likeliest = learn(c, 2, /*is_greedy=*/true), drawn = learn(c, 2);
    EXPECT_NE(drawn.rewards[0], drawn.rewards[2]);
    for (const MeshShape& shape : cut_otherwise()) {
      for (const auto sharding : {parallel::Sharding::kNone, parallel::Sharding::kParameters}) {
        if (!danlu::test::is_slow() && turn++ % 3 != 0) continue;
        SCOPED_TRACE(named(shape) + fmt::format(" shard {} tuning {}", static_cast<int>(sharding),
                                                static_cast<int>(tuning)));
        c.shape = shape;
        c.sharding = sharding;
        for (const bool is_greedy : {true, false}) {
          const Learnt got = learn(c, 2, is_greedy), &one = is_greedy ? likeliest : drawn;
          EXPECT_EQ(got.rewards, one.rewards);
          expect_near(got.losses, one.losses);
        }
      }
    }
  }
}

TEST(RolloutMesh, TablesAtBothEndsChunksOfStagesAndModulesThatAreTrainedWhole) {
  Case tied{"qwen2", "qwen2", {{"num_hidden_layers", 4}, {"tie_word_embeddings", true}}};
  Case whole{"llama", "llama", {{"num_hidden_layers", 4}}, Tuning::kLora};
  whole.modules_to_save = {"lm_head"};
  Case nf4{"llama", "llama", {{"num_hidden_layers", 4}}, Tuning::kLora};
  nf4.nf4 = true;
  for (Case c : {tied, whole, nf4}) {
    SCOPED_TRACE(c.nf4);
    const Learnt one = learn(c);
    for (const int64_t chunks : {1, 2}) {
      c.shape = {.pipeline = 2, .ring = chunks > 1};
      c.chunks = chunks;
      const Learnt got = learn(c);
      EXPECT_EQ(got.rewards, one.rewards);
      expect_near(got.losses, one.losses);
    }
  }
}

TEST(RolloutMesh, RanksWithOtherExpertsDrawAsOneRankDoes) {
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    Case c{"qwen3_moe", "qwen3_moe", Json::object(), tuning};
    const Learnt one = learn(c);
    MeshShape dealt{.tensor = 2, .data = 2, .expert = 2, .expert_dealers = 2};
    for (const MeshShape& shape :
         {MeshShape{.data = 2, .expert = 2}, MeshShape{.tensor = 2, .data = 2, .expert = 2}, dealt,
          MeshShape{.data = 2, .pipeline = 2, .expert = 2},
          MeshShape{.tensor = 4, .expert_dealers = 2},
          MeshShape{.tensor = 4, .data = 2, .expert = 2, .expert_dealers = 2}}) {
      SCOPED_TRACE(named(shape));
      c.shape = shape;
      const Learnt got = learn(c);
      EXPECT_EQ(got.rewards, one.rewards);
      expect_near(got.losses, one.losses);
    }
  }
}

TEST(RolloutMesh, MeansOverAnswersWhoseTokensRanksShare) {
  for (const auto ratio : {settings::RatioLevel::kToken, settings::RatioLevel::kSequence}) {
    for (const auto mean :
         {settings::LossMean::kRows, settings::LossMean::kTokens, settings::LossMean::kConstant}) {
      SCOPED_TRACE(fmt::format("{} {}", static_cast<int>(ratio), static_cast<int>(mean)));
      settings::PolicyLoss how;
      how.ratio = ratio;
      how.mean = mean;
      how.clip_low = how.clip_high = 1e-3;  // so that some ratios are clipped
      Case c{"llama", "llama", Json::object()};
      const Learnt one = learn(c, 3, false, how);
      c.shape.context = {1, 2, 2};
      const Learnt got = learn(c, 3, false, how);
      expect_near(got.losses, one.losses);
      expect_near(got.shares, one.shares);
      EXPECT_GT(one.shares.back(), 0);
    }
  }
}

TEST(RolloutMesh, KeyHeadsThatTensorRanksShareAreCachedByEach) {
  Case c{"llama", "llama", {{"num_attention_heads", 4}, {"num_key_value_heads", 1}}};
  const Learnt one = learn(c, 1, /*is_greedy=*/true);
  c.shape.tensor = 2;
  const Learnt got = learn(c, 1, true);
  EXPECT_EQ(got.rewards, one.rewards);
  for (size_t step = 0; step < 3; ++step) EXPECT_NEAR(got.losses[step], one.losses[step], 1e-5);
}

TEST(RolloutMesh, SeveralPassesOverTheSameAnswers) {
  Case c{"llama", "llama", Json::object()};
  const Learnt one = learn(c, 3);
  c.shape.data = 2;
  c.sharding = parallel::Sharding::kParameters;
  const Learnt got = learn(c, 3);
  for (size_t step = 0; step < 3; ++step) EXPECT_NEAR(got.losses[step], one.losses[step], 1e-5);
}

TrainState scorer_of(Case c, const Mesh& mesh) {
  c.score = arch::ScoreHead{};
  return state_of(c, mesh);
}

constexpr std::array kShown = {"loss/value_avg", "critic/grad_norm", "objective/kl"};

/// Losses of three steps of a policy and of a critic, which learn from what the policy draws.
std::vector<double> criticise(const Case& c, bool is_greedy = false) {
  std::vector<double> figures;
  std::mutex mutex;
  const auto rank = [&](const Mesh& mesh, const std::shared_ptr<const DrawingRanks>& ranks) {
    TrainState policy = state_of(c, mesh), beside = scorer_of(c, mesh);
    const TrainConfig config = config_of(c);
    RolloutSettings settings = settings_of(mesh.shape().data_rank(mesh.rank()), mesh.shape().data);
    settings.told.advantage = settings::Advantage::kCritic;
    settings.told.loss.kl = 0;
    settings.told.loss.mean = settings::LossMean::kTokens;
    settings.told.answers = 2;
    settings.told.iterations = 2;
    if (is_greedy) settings.told.top_k = 1;
    policy.objective = policy_objective(settings.told.loss);
    beside.objective = value_objective(1, 0.2);
    Critic critic(std::move(beside), config, config.schedule.shape);
    RolloutParts parts = parts_of(*policy.model, *policy.links, ranks);
    parts.critic = &critic;
    if (c.tuning == Tuning::kFull) parts.reference = frozen_beside(c, mesh);
    RolloutStream stream(std::move(parts), settings, 0);
    for (int step = 0; step < 3; ++step) {
      const StepResult result = run_step(policy, stream.next(), config, config.schedule.shape);
      if (mesh.rank() != 0) continue;
      const std::lock_guard lock(mutex);
      figures.push_back(result.loss);
      auto shown = stream.figures();
      for (const char* name : kShown)
        shown.insert({name, 0.0});  // what is of a rollout is shown with its first step
      for (const char* name : kShown) figures.push_back(shown.at(name));
    }
  };
  on_drawing_ranks(c.shape, rank);
  return figures;
}

TEST(Critic, ExpectsOfEachTokenWhatItSaysBeforeIt) {
  const Case c{"llama", "llama", Json::object()};
  const TrainState policy = state_of(c, Mesh::single());
  Critic critic(scorer_of(c, Mesh::single()), config_of(c), {});
  DrawnAnswer answer;
  answer.prompt = {3, 4, 5};
  answer.ids = {7, 9, 11, 2};
  std::vector<DrawnAnswer> answers = {answer, answer};
  answers[1].ids = {8, 2, 7, 4};
  critic.find_values(*policy.model, answers);
  const models::CausalLM& model = *critic.state().model;
  for (const DrawnAnswer& one : answers) {
    const data::Batch batch = data::make_batch({sample_of(one, false)});
    const at::NoGradGuard no_grad;
    const models::ForwardInput input = evaluation_input(model, batch);
    const at::Tensor hidden = model.forward(input);
    const at::Tensor said = model.scores(hidden, input, at::tensor({2, 3, 4, 5}, at::kLong));
    ASSERT_EQ(one.values.size(), one.ids.size());
    for (size_t t = 0; t < one.ids.size(); ++t)
      EXPECT_NEAR(one.values[t], said[static_cast<int64_t>(t)].item<float>(), 1e-5) << t;
  }
}

TEST(RolloutMesh, ACriticLearnsAsThatOfOneRankDoes) {
  Case c{"llama", "llama", Json::object()};
  const std::vector<double> one = criticise(c);
  EXPECT_GT(one[1], 0);
  EXPECT_NE(one[1], one[5]) << "it learns";
  EXPECT_NE(one[3], 0);
  for (const auto sharding : {parallel::Sharding::kNone, parallel::Sharding::kParameters}) {
    c.shape.data = 2;
    c.sharding = sharding;
    const std::vector<double> got = criticise(c);
    ASSERT_EQ(got.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(got[i], one[i], 1e-5) << i;
  }
  const std::vector<double> greedy = criticise(c = {"llama", "llama", Json::object()}, true);
  c.shape.tensor = c.shape.data = 2;
  expect_near(criticise(c, true), greedy);
  for (const MeshShape& shape : cut_otherwise()) {
    SCOPED_TRACE(named(shape));
    c.shape = shape;
    expect_near(criticise(c, true), greedy);
  }
}

TEST(RolloutMesh, ACriticWhoseExpertsRanksHave) {
  Case c{"qwen3_moe", "qwen3_moe", Json::object()};
  const std::vector<double> greedy = criticise(c, true);
  c.shape = {.data = 2, .expert = 2};
  expect_near(criticise(c, true), greedy);
}

/// Scores, in more than one pass, of `count` answers on each of two ranks of the data axis, or of
/// all on one.
std::vector<double> judged(const Case& c, int64_t count) {
  std::vector<double> scores;
  std::mutex mutex;
  const auto rank = [&](const Mesh& mesh) {
    TrainState policy = state_of(c, mesh);
    Case scorer = c;
    scorer.score = arch::ScoreHead{};
    const auto reward =
        model_reward("judge", frozen_beside(scorer, mesh), *policy.model, *policy.links, {7});
    std::vector<eval::Completion> answers;
    const int64_t data = mesh.shape().data_rank(mesh.rank());
    for (int64_t i = count * data; i < count * (data + 1); ++i) {
      eval::Completion& answer = answers.emplace_back();
      answer.prompt_ids = {3, static_cast<int32_t>(4 + i)};
      answer.ids.assign(static_cast<size_t>(1 + i % 4) * 400, static_cast<int32_t>(9 + i));
      answer.is_ended = i % 2 == 0;
    }
    const std::vector<eval::Score> found = reward->scores(answers);
    const std::lock_guard lock(mutex);
    scores.resize(static_cast<size_t>(count * mesh.shape().data), NAN);
    for (size_t i = 0; i < found.size(); ++i) {
      // Every rank has the scores of its answers.
      double& place = scores[static_cast<size_t>(count * data) + i];
      if (!std::isnan(place)) {
        EXPECT_NEAR(found[i].value(), place, 1e-6);
      }
      place = found[i].value();
    }
  };
  on_ranks(c.shape, rank);
  return scores;
}

TEST(RolloutMesh, ARewardModelJudgesAsOnOneRank) {
  Case c{"llama", "llama", Json::object()};
  const std::vector<double> one = judged(c, 6);
  EXPECT_NE(one[0], one[1]);
  for (const MeshShape& shape : cut_otherwise()) {
    SCOPED_TRACE(named(shape));
    c.shape = shape;
    c.sharding = parallel::Sharding::kParameters;
    expect_near(judged(c, 6 / shape.data), one);
  }
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
