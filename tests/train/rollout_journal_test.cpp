// What a run that was killed in the midst of a rollout finds again, and prompts that give way to
// others.
#include "train/rollouts/rollout_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "support/temporary_directory.h"
#include "train/objectives/policy.h"
#include "train/rollout_parts.h"

namespace danlu::train {
namespace mesh_test {
namespace {

namespace fs = std::filesystem;

TEST(RolloutJournal, HasWhatWasAddedToTheSameRollout) {
  const danlu::test::TemporaryDirectory run;
  const auto opened = [&](const std::string& origin, int64_t rank = 0, int64_t number = 3,
                          const std::string& weights = "w") {
    RolloutJournal journal(run / "", origin, rank, 2, Mesh::single().tensor());
    journal.begin(number, weights);
    return journal;
  };
  {
    RolloutJournal journal = opened("run");
    EXPECT_EQ(journal.find("a"), nullptr);
    journal.add("a", {1, 2.1, nullptr});
    journal.add("b", {{"text", "\n ü"}});
    journal.add("a", {1, 0.1, nullptr});
  }
  {
    const RolloutJournal again = opened("run");
    ASSERT_NE(again.find("a"), nullptr);
    EXPECT_EQ(*again.find("a"), Json({1, 0.1, nullptr})) << "the last, to the bit";
    EXPECT_EQ(again.find("b")->at("text"), "\n ü");
  }
  EXPECT_EQ(opened("run", 1).find("a"), nullptr) << "another rank's";
  EXPECT_EQ(opened("run", 0, 4).find("a"), nullptr) << "another rollout's";
  EXPECT_NE(opened("run").find("a"), nullptr) << "which harms none";
  EXPECT_EQ(opened("other").find("a"), nullptr);
  EXPECT_EQ(opened("run").find("a"), nullptr) << "what is of another run goes";
}

TEST(RolloutJournal, RanksThatHoldOneModelTogetherKnowTheSame) {
  const danlu::test::TemporaryDirectory run;
  for (const bool is_second : {false, true}) {
    parallel::run_local_ranks(2, [&](parallel::World& world) {
      const Mesh mesh(world, {.tensor = 2});
      RolloutJournal journal(run / "", "run", 0, 1, mesh.tensor());
      journal.begin(0, "w");
      EXPECT_EQ(journal.find("a") != nullptr, is_second);
      if (is_second) {
        EXPECT_EQ(*journal.find("a"), Json({0.1, "x"}));
      } else {
        journal.add("a", {0.1, "x"});
      }
    });
  }
  EXPECT_EQ(journals_of(run / "").size(), 1u) << "the first of them writes";
}

TEST(RolloutJournal, ALineThatWasCutOrDamagedEndsIt) {
  const danlu::test::TemporaryDirectory run;
  const fs::path file = run / kJournalFolder / "rollout-0.rank-0";
  const auto opened = [&] {
    RolloutJournal journal(run / "", "run", 0, 1, Mesh::single().tensor());
    journal.begin(0, "w");
    return journal;
  };
  const auto fill = [&] {
    RolloutJournal journal = opened();
    for (const char* name : {"a", "b", "c"}) journal.add(name, name);
  };
  fill();
  const auto size = fs::file_size(file);
  for (const uintmax_t lost : {1, 3, 20}) {
    fs::resize_file(file, size - lost);
    EXPECT_NE(opened().find("b"), nullptr);
    EXPECT_EQ(opened().find("c"), nullptr) << lost;
    fill();
    EXPECT_EQ(*opened().find("c"), "c") << "what follows a cut line is whole again";
    fs::remove(file);
    fill();
  }
  {
    std::fstream bytes(file, std::ios::in | std::ios::out);
    bytes.seekp(static_cast<std::streamoff>(size / 2));
    bytes.write("\0\0", 2);
  }
  EXPECT_EQ(opened().find("c"), nullptr);
}

TEST(RolloutJournal, IsKeptOnlyAsLongAsItIsOfUse) {
  const danlu::test::TemporaryDirectory run;
  for (int64_t rank = 0; rank < 2; ++rank) {
    RolloutJournal journal(run / "", "run", rank, 2, Mesh::single().tensor());
    for (int64_t number = 0; number < 12; ++number) journal.begin(number, "w");
    if (rank == 1) journal.forget_before(11);
  }
  EXPECT_EQ(journals_of(run / "").size(), 13u);
  std::ofstream(run / kJournalFolder / "mine.jsonl") << "{}\n";
  remove_journals(run / "");
  EXPECT_TRUE(journals_of(run / "").empty());
  EXPECT_TRUE(fs::exists(run / kJournalFolder / "mine.jsonl"));
  RolloutJournal nowhere(run / "gone", "run", 0, 1, Mesh::single().tensor());
  nowhere.begin(0, "w");
  nowhere.add("a", 1);
  EXPECT_FALSE(fs::exists(run / "gone")) << "a directory that was removed is not made again";
}

TEST(RolloutJournal, WeightsThatWereTrainedAreOthers) {
  Made made;
  const std::string before = fingerprint_of_trained(*made.state.model, parallel::Group::alone());
  EXPECT_EQ(fingerprint_of_trained(*made.state.model, parallel::Group::alone()), before);
  RolloutStream stream = made.stream(settings_of(0, 1), told());
  made.state.objective = policy_objective({});
  const TrainConfig config = config_of({"llama", "llama", Json::object()});
  run_step(made.state, stream.next(), config, config.schedule.shape);
  EXPECT_NE(fingerprint_of_trained(*made.state.model, parallel::Group::alone()), before);
}

/// Counts answers that are judged.
class Counting : public Odd {
 public:
  explicit Counting(int64_t* count) : count_(count) {}
  std::vector<eval::Score> scores(std::span<const eval::Completion> all) const override {
    *count_ += std::ssize(all);
    return Odd::scores(all);
  }

 private:
  int64_t* count_;
};

struct Killed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Steps of a stream whose process ends after `groups` of two answers, and the work of the next.
struct GoesOn {
  danlu::test::TemporaryDirectory run;
  int64_t drawn = 0, judged = 0;

  std::vector<std::vector<data::StepBatches>> steps(int64_t groups, int64_t want) {
    std::vector<std::vector<data::StepBatches>> found(1);
    Made made;
    int64_t left = groups;
    const Generator draws =
        drawing_of(*made.state.model, std::make_shared<DrawingRanks>(Mesh::single()), 2).generate;
    RolloutSettings settings = settings_of(0, 1);
    settings.run_directory = run / "";
    settings.origin = "run";
    settings.answers_together = 2;
    RolloutParts parts =
        parts_of(*made.state.model, *made.state.links, [&](const std::vector<Request>& requests) {
          if (left-- == 0) throw Killed("killed");
          drawn += std::ssize(requests);
          return draws(requests);
        });
    parts.rewards = {std::make_shared<Counting>(&judged)};
    RolloutStream stream(std::move(parts), settings, 0);
    try {
      while (std::ssize(found[0]) < want) found[0].push_back(stream.next());
    } catch (const Killed&) {
    }
    return found;
  }
};

TEST(RolloutJournal, AStreamThatWasKilledDrawsAndJudgesOnlyWhatIsMissing) {
  // Two rollouts of eight answers, drawn in four groups each, of weights that stay.
  GoesOn undisturbed;
  const auto wanted = undisturbed.steps(-1, 2)[0];
  EXPECT_EQ(undisturbed.drawn, 16);
  EXPECT_EQ(undisturbed.judged, 16);
  for (const int64_t killed : {1, 3, 4, 6}) {
    SCOPED_TRACE(killed);
    GoesOn run;
    EXPECT_EQ(std::ssize(run.steps(killed, 2)[0]), killed / 4);
    EXPECT_EQ(run.drawn, 2 * killed);
    const auto got = run.steps(-1, 2)[0];
    EXPECT_EQ(run.drawn, 16) << "none is drawn twice";
    EXPECT_EQ(run.judged, 16) << "none is judged twice";
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t step = 0; step < got.size(); ++step) {
      for (size_t i = 0; i < got[step].micro_batches.size(); ++i) {
        const data::Batch &one = got[step].micro_batches[i], &other = wanted[step].micro_batches[i];
        EXPECT_EQ(one.ids, other.ids);
        EXPECT_EQ(one.targets, other.targets);
        EXPECT_EQ(one.token_columns, other.token_columns);
      }
    }
  }
}

/// Judges no answer.
class Silent : public Counting {
 public:
  using Counting::Counting;
  std::vector<eval::Score> scores(std::span<const eval::Completion> all) const override {
    return std::vector<eval::Score>(Counting::scores(all).size());
  }
};

TEST(RolloutJournal, WhereOneRanksAnswersCannotBeJudgedNoneIsJudgedAgain) {
  const danlu::test::TemporaryDirectory run;
  std::array<int64_t, 2> judged{};
  const auto roll_out = [&] {
    judged = {};
    parallel::run_local_ranks(2, [&](parallel::World& world) {
      const Mesh mesh(world, {.data = 2});
      TrainState state = state_of({"llama", "llama", Json::object()}, mesh);
      RolloutSettings settings = settings_of(mesh.rank(), 2);
      settings.run_directory = run / "";
      settings.origin = "run";
      RolloutParts parts = parts_of(*state.model, *state.links, told());
      int64_t* count = &judged[static_cast<size_t>(mesh.rank())];
      if (mesh.rank() == 0) {
        parts.rewards = {std::make_shared<Counting>(count)};
      } else {
        parts.rewards = {std::make_shared<Silent>(count)};
      }
      RolloutStream(std::move(parts), settings, 0).next();
    });
  };
  roll_out();
  EXPECT_EQ(judged, (std::array<int64_t, 2>{4, 4}));
  roll_out();
  EXPECT_EQ(judged, (std::array<int64_t, 2>{0, 0}));
}

TEST(RolloutJournal, WhereOneRankHasLostItsScoresAllJudgeAgain) {
  const danlu::test::TemporaryDirectory run;
  std::array<int64_t, 2> judged{};
  std::array<std::vector<int64_t>, 2> ids;
  const auto roll_out = [&] {
    judged = {};
    parallel::run_local_ranks(2, [&](parallel::World& world) {
      const Mesh mesh(world, {.data = 2});
      const auto rank = static_cast<size_t>(mesh.rank());
      TrainState state = state_of({"llama", "llama", Json::object()}, mesh);
      RolloutSettings settings = settings_of(mesh.rank(), 2);
      settings.run_directory = run / "";
      settings.origin = "run";
      RolloutParts parts = parts_of(*state.model, *state.links, told());
      parts.rewards = {std::make_shared<Counting>(&judged[rank])};
      RolloutStream stream(std::move(parts), settings, 0);
      ids[rank] = stream.next().micro_batches[0].ids;
    });
  };
  roll_out();
  const auto first = ids;
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(judged, (std::array<int64_t, 2>{4, 4}));
  ASSERT_EQ(journals_of(run / "").size(), 2u) << "one of each rank";
  roll_out();
  EXPECT_EQ(judged, (std::array<int64_t, 2>{0, 0}));
  EXPECT_EQ(ids, first);
  const fs::path file = run / kJournalFolder / "rollout-0.rank-1";
  fs::resize_file(file, fs::file_size(file) - 3);
  roll_out();
  EXPECT_EQ(judged, (std::array<int64_t, 2>{4, 4}))
      << "a reward model asks all ranks, whoever knows the scores already";
  EXPECT_EQ(ids, first);
}

/// Answers to prompts that begin with an id which `equal` names are all worth the same.
class EqualFor : public Odd {
 public:
  explicit EqualFor(std::function<bool(int32_t)> equal) : equal_(std::move(equal)) {}
  std::vector<eval::Score> scores(std::span<const eval::Completion> all) const override {
    std::vector<eval::Score> scores;
    for (size_t i = 0; i < all.size(); ++i)
      scores.emplace_back(equal_(all[i].prompt_ids.front()) ? 1 : static_cast<double>(i % 4));
    return scores;
  }

 private:
  std::function<bool(int32_t)> equal_;
};

struct Resampled {
  std::vector<int32_t> prompts;  ///< the first id of each answer's prompt, in order
  std::map<std::string, double> figures;
};

/// One rollout of two prompts (3 and 4 of 3 … 8).
Resampled resample(const std::function<bool(int32_t)>& equal, int64_t rounds) {
  Made made;
  RolloutSettings settings = settings_of(0, 1);
  settings.told.max_resamples = rounds;
  RolloutParts parts = parts_of(*made.state.model, *made.state.links, told());
  parts.rewards = {std::make_shared<EqualFor>(equal)};
  RolloutStream stream(std::move(parts), settings, 0);
  Resampled found;
  for (const data::Batch& batch : stream.next().micro_batches) {
    for (size_t i = 0; i + 1 < batch.segment_starts.size(); ++i)
      found.prompts.push_back(batch.ids[static_cast<size_t>(batch.segment_starts[i])]);
  }
  found.figures = stream.figures();
  return found;
}

TEST(DynamicSampling, PromptsWhoseAnswersAreWorthTheSameGiveWay) {
  const auto odd = [](int32_t id) { return id % 2 == 1; };
  const Resampled as_it_is = resample(odd, 0);
  EXPECT_THAT(as_it_is.prompts, testing::ElementsAre(3, 3, 3, 3, 4, 4, 4, 4));
  EXPECT_EQ(as_it_is.figures.at("frac_reward_zero_std"), 0.5);
  EXPECT_EQ(as_it_is.figures.count("resampled_prompts"), 0u);
  const Resampled found = resample(odd, 20);
  EXPECT_EQ(found.figures.at("frac_reward_zero_std"), 0);
  EXPECT_GE(found.figures.at("resampled_prompts"), 1);
  ASSERT_EQ(found.prompts.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(found.prompts[i] % 2, 0) << i;
    EXPECT_EQ(found.prompts[i], found.prompts[i / 4 * 4]) << "groups are whole";
  }
  EXPECT_EQ(found.prompts[0], 4) << "of its own prompts those that differ stay";
}

TEST(DynamicSampling, WhereRoundsDoNotSufficeTheRestIsWorthNothing) {
  const Resampled found = resample([](int32_t) { return true; }, 2);
  EXPECT_THAT(found.prompts, testing::ElementsAre(3, 3, 3, 3, 4, 4, 4, 4));
  EXPECT_EQ(found.figures.at("resampled_prompts"), 4);
  EXPECT_EQ(found.figures.at("frac_reward_zero_std"), 1);
  EXPECT_EQ(resample([](int32_t) { return false; }, 2).figures.at("resampled_prompts"), 0);
}

/// Losses of four steps, and prompts that two rollouts drew again, on ranks of the data axis.
std::pair<std::vector<double>, std::vector<double>> learn_resampled(Case c) {
  std::vector<double> losses, resampled;
  std::mutex mutex;
  const auto rank = [&](const Mesh& mesh, const std::shared_ptr<const DrawingRanks>& ranks) {
    TrainState state = state_of(c, mesh);
    const TrainConfig config = config_of(c);
    RolloutSettings settings = settings_of(mesh.shape().data_rank(mesh.rank()), mesh.shape().data);
    settings.told.max_resamples = 3;
    settings.told.steps = 2;  // which answers a step has depends on their order
    state.objective = policy_objective(settings.told.loss, frozen_beside(c, mesh));
    RolloutParts parts = parts_of(*state.model, *state.links, ranks);
    parts.rewards = {std::make_shared<EqualFor>([](int32_t id) { return id % 2 == 1; })};
    RolloutStream stream(std::move(parts), settings, 0);
    for (int step = 0; step < 4; ++step) {
      const StepResult result = run_step(state, stream.next(), config, config.schedule.shape);
      if (mesh.rank() != 0) continue;
      const std::lock_guard lock(mutex);
      losses.push_back(result.loss);
      const auto figures = stream.figures();
      if (step % 2 == 0) resampled.push_back(figures.at("resampled_prompts"));
    }
  };
  on_drawing_ranks(c.shape, rank);
  return {losses, resampled};
}

TEST(DynamicSampling, RanksChooseAsOneDoes) {
  Case c{"llama", "llama", Json::object()};
  const auto [losses, resampled] = learn_resampled(c);
  for (const double further : resampled) EXPECT_GE(further, 1);
  const auto expect_the_same = [&] {
    const auto [got, again] = learn_resampled(c);
    EXPECT_EQ(again, resampled);
    for (size_t step = 0; step < losses.size(); ++step)
      EXPECT_NEAR(got[step], losses[step], 1e-5) << step;
  };
  for (const auto sharding : {parallel::Sharding::kNone, parallel::Sharding::kParameters}) {
    c.shape.data = 2;
    c.sharding = sharding;
    expect_the_same();
  }
  c.shape = {.data = 2, .pipeline = 2};
  expect_the_same();
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
