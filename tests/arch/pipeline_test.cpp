// Schedules, run without ranks: actions take the times that the formulas assume.
#include "arch/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace danlu::arch {
namespace pipeline_test {

constexpr double kForwardTime = 1, kInputTime = 1, kWeightTime = 1;
constexpr double kBackwardTime = kInputTime + kWeightTime;
using Maker = Schedule (*)(int64_t stage, int64_t stages, int64_t num_micro_batches);

/// All stages' schedules run against each other: what is sent is there at once, and waited for.
/// A receiver takes what its neighbour has sent in that order, whatever it names.
class Simulation {
 public:
  Simulation(Maker make, int64_t stages, int64_t micro_batches) : stages_(stages) {
    for (int64_t s = 0; s < stages; ++s) ranks_.push_back({make(s, stages, micro_batches)});
    run();
  }
  using ChunkMaker = Schedule (*)(int64_t stage, int64_t stages, int64_t chunks, int64_t m);
  Simulation(ChunkMaker make, int64_t stages, int64_t chunks, int64_t m) : stages_(stages) {
    for (int64_t s = 0; s < stages; ++s) ranks_.push_back({make(s, stages, chunks, m)});
    run();
  }
  void run() {
    while (advance()) {
    }
  }
  bool is_complete() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.next == rank.schedule.size(); });
  }
  double makespan() const {
    double latest = 0;
    for (const Rank& rank : ranks_) latest = std::max(latest, rank.clock);
    return latest;
  }
  int64_t most_in_flight(int64_t stage) const {
    return ranks_[static_cast<size_t>(stage)].most_in_flight;
  }

 private:
  struct Rank {
    Schedule schedule;
    size_t next = 0;
    double clock = 0;
    int64_t in_flight = 0, most_in_flight = 0;
  };
  /// One action of any rank that need not wait; false: none is left, or all wait.
  bool advance() {
    for (int64_t s = 0; s < stages_; ++s) {
      Rank& rank = ranks_[static_cast<size_t>(s)];
      if (rank.next < rank.schedule.size() && take(s, rank, rank.schedule[rank.next])) {
        ++rank.next;
        return true;
      }
    }
    return false;
  }
  bool take(int64_t stage, Rank& rank, const Action& action) {
    // What lies between place - 1 and place of all stages' chunks.
    const int64_t place = action.chunk * stages_ + stage;
    const auto receive = [&](bool hidden, int64_t border) {
      auto& queue = sent_[{hidden, border % stages_}];
      if (queue.empty()) return false;
      EXPECT_EQ(queue.front().what, std::pair(action.micro_batch, border));
      rank.clock = std::max(rank.clock, queue.front().at);
      queue.pop_front();
      return true;
    };
    const auto send = [&](bool hidden, int64_t border) {
      sent_[{hidden, border % stages_}].push_back({{action.micro_batch, border}, rank.clock});
      return true;
    };
    switch (action.work) {
      case Work::kReceiveHidden:
        return receive(true, place);
      case Work::kReceiveGrad:
        return receive(false, place + 1);
      case Work::kSendHidden:
        return send(true, place + 1);
      case Work::kSendGrad:
        return send(false, place);
      case Work::kForward:
        rank.clock += kForwardTime;
        rank.most_in_flight = std::max(rank.most_in_flight, ++rank.in_flight);
        return true;
      case Work::kBackward:
        rank.clock += kBackwardTime;
        --rank.in_flight;
        return true;
      case Work::kBackwardInput:
        rank.clock += kInputTime;
        return true;
      case Work::kBackwardWeight:
        rank.clock += kWeightTime;
        --rank.in_flight;
        return true;
    }
    return false;
  }

  struct Sent {
    std::pair<int64_t, int64_t> what;  ///< micro-batch, border
    double at;
  };
  int64_t stages_;
  std::vector<Rank> ranks_;
  /// By direction, and by the link that borders use.
  std::map<std::pair<bool, int64_t>, std::deque<Sent>> sent_;
};

std::vector<int64_t> counted(int64_t from, int64_t to) {
  std::vector<int64_t> numbers;
  for (int64_t i = from; i < to; ++i) numbers.push_back(i);
  return numbers;
}

/// Micro-batches of each kind of work, in the order of the schedule.
std::map<Work, std::vector<int64_t>> by_work(const Schedule& schedule) {
  std::map<Work, std::vector<int64_t>> seen;
  for (const Action& action : schedule) seen[action.work].push_back(action.micro_batch);
  return seen;
}

void expect_every_micro_batch_once(Maker make, const std::vector<Work>& backward) {
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t m = 0; m <= 9; ++m) {
      for (int64_t stage = 0; stage < stages; ++stage) {
        auto seen = by_work(make(stage, stages, m));
        const std::vector<int64_t> all = counted(0, m), none;
        const bool first = stage == 0, last = stage + 1 == stages;
        EXPECT_EQ(seen[Work::kForward], all);
        for (const Work work : backward) EXPECT_EQ(seen[work], all);
        EXPECT_EQ(seen[Work::kReceiveHidden], first ? none : all);
        EXPECT_EQ(seen[Work::kSendHidden], last ? none : all);
        EXPECT_EQ(seen[Work::kReceiveGrad], last ? none : all);
        EXPECT_EQ(seen[Work::kSendGrad], first ? none : all);
      }
    }
  }
}

TEST(OneForwardOneBackward, EveryMicroBatchOnceInOrder) {
  expect_every_micro_batch_once(one_forward_one_backward, {Work::kBackward});
}

TEST(ZeroBubble, EveryMicroBatchOnceInOrder) {
  expect_every_micro_batch_once(zero_bubble, {Work::kBackwardInput, Work::kBackwardWeight});
}

// A weight's gradient needs what its input's has left, which waits for a forward.
TEST(ZeroBubble, PartsOfAMicroBatchInTheirOrder) {
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      std::map<int64_t, std::vector<Work>> seen;
      for (const Action& action : zero_bubble(stage, stages, 9))
        seen[action.micro_batch].push_back(action.work);
      for (const auto& [i, works] : seen) {
        const auto place = [&list = works](Work work) {
          return std::find(list.begin(), list.end(), work);
        };
        EXPECT_LT(place(Work::kForward), place(Work::kBackwardInput));
        EXPECT_LT(place(Work::kBackwardInput), place(Work::kBackwardWeight));
      }
    }
  }
}

TEST(ZeroBubble, EndsWithTheBubbleAndTheActivationsOfTheFormulas) {
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t m = 1; m <= 13; ++m) {
      const Simulation run(zero_bubble, stages, m);
      ASSERT_TRUE(run.is_complete()) << stages << " stages wait for each other";
      for (int64_t stage = 0; stage < stages; ++stage)
        EXPECT_LE(run.most_in_flight(stage), std::min(stages, m));
      // The formula's pipeline is full once.
      if (m < stages) continue;
      EXPECT_EQ(run.makespan(),
                static_cast<double>(m) * (kForwardTime + kBackwardTime) +
                    static_cast<double>(stages - 1) * (kForwardTime + kInputTime - kWeightTime));
    }
  }
}

TEST(OneForwardOneBackward, EndsWithTheBubbleAndTheActivationsOfTheFormulas) {
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t m = 1; m <= 9; ++m) {
      const Simulation run(one_forward_one_backward, stages, m);
      ASSERT_TRUE(run.is_complete()) << stages << " stages wait for each other";
      EXPECT_EQ(run.makespan(),
                static_cast<double>(m + stages - 1) * (kForwardTime + kBackwardTime));
      for (int64_t stage = 0; stage < stages; ++stage)
        EXPECT_EQ(run.most_in_flight(stage), std::min(stages - stage, m));
    }
  }
}

TEST(Interleaved, EveryMicroBatchThroughEveryChunkOnce) {
  for (int64_t stages = 1; stages <= 5; ++stages) {
    for (int64_t chunks = 2; chunks <= 4; ++chunks) {
      for (int64_t m = stages; m <= 3 * stages + 2; ++m) {
        for (int64_t stage = 0; stage < stages; ++stage) {
          std::map<std::pair<Work, int64_t>, std::vector<int64_t>> seen;
          for (const Action& action : interleaved(stage, stages, chunks, m))
            seen[{action.work, action.chunk}].push_back(action.micro_batch);
          for (int64_t chunk = 0; chunk < chunks; ++chunk) {
            const std::vector<int64_t> all = counted(0, m), none;
            const bool first = stage == 0 && chunk == 0;
            const bool last = stage + 1 == stages && chunk + 1 == chunks;
            const auto of = [&](Work work) { return seen[{work, chunk}]; };
            EXPECT_EQ(of(Work::kForward), all);
            EXPECT_EQ(of(Work::kBackward), all);
            EXPECT_EQ(of(Work::kReceiveHidden), first ? none : all);
            EXPECT_EQ(of(Work::kSendHidden), last ? none : all);
            EXPECT_EQ(of(Work::kReceiveGrad), last ? none : all);
            EXPECT_EQ(of(Work::kSendGrad), first ? none : all);
          }
        }
      }
    }
  }
}

// Times are of a chunk: the whole of a stage's micro-batch takes `chunks` of them.
TEST(Interleaved, EndsWithTheBubbleAndTheActivationsOfTheFormulas) {
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t chunks = 2; chunks <= 4; ++chunks) {
      for (int64_t m = stages; m <= 4 * stages + 3; ++m) {
        SCOPED_TRACE(testing::Message() << stages << " stages, " << chunks << " chunks, " << m);
        const Simulation run(interleaved, stages, chunks, m);
        ASSERT_TRUE(run.is_complete()) << "stages wait for each other";
        const double ideal = static_cast<double>(m * chunks) * (kForwardTime + kBackwardTime);
        const double bubble = static_cast<double>(stages - 1) / static_cast<double>(chunks * m);
        EXPECT_NEAR(run.makespan() / ideal - 1, bubble, 1e-12);
        const int64_t largest_group = (m + m / stages - 1) / (m / stages);
        for (int64_t stage = 0; stage < stages; ++stage) {
          EXPECT_EQ(
              run.most_in_flight(stage),
              std::min(2 * (stages - stage - 1) + (chunks - 1) * largest_group + 1, m * chunks));
        }
      }
    }
  }
}

// The schedule of Megatron-LM: forwards of (chunk, micro-batch), backwards with the last chunk
// first.
TEST(Interleaved, TakesGroupsOfAsManyMicroBatchesAsStages) {
  std::string text;
  for (const Action& action : interleaved(/*stage=*/1, /*stages=*/2, /*chunks=*/2, 4)) {
    if (action.work != Work::kForward && action.work != Work::kBackward) continue;
    text += (action.work == Work::kForward ? " F" : " B") + std::to_string(action.micro_batch) +
            (action.chunk == 0 ? "a" : "b");
  }
  EXPECT_EQ(text, " F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a");
}

TEST(Interleaved, ForwardAloneFillsThePipelineOnce) {
  for (int64_t stages = 1; stages <= 5; ++stages) {
    for (int64_t chunks = 1; chunks <= 3; ++chunks) {
      for (int64_t m = 0; m <= 3 * stages; ++m) {
        SCOPED_TRACE(testing::Message() << stages << " stages, " << chunks << " chunks, " << m);
        const Simulation run(forward_only, stages, chunks, m);
        ASSERT_TRUE(run.is_complete());
        if (m < stages) continue;
        EXPECT_EQ(run.makespan(), static_cast<double>(m * chunks + stages - 1) * kForwardTime);
      }
    }
  }
}

std::string stages_text(const ModelConfig& config, const PipelineLayers& split) {
  std::string text;
  for (const Stage& stage : stages_of(config, split)) {
    text += text.empty() ? "" : " ";
    for (int64_t number = 0; number < stage.num_chunks(); ++number) {
      const LayerRange chunk = stage.layers_of(number);
      text +=
          (number == 0 ? "" : "+") + std::to_string(chunk.first) + "-" + std::to_string(chunk.end);
    }
    text += std::string() + (stage.has_embedding() ? "e" : "") + (stage.has_head() ? "h" : "") +
            (stage.copies_embedding ? "c" : "");
  }
  return text;
}

TEST(StagesOf, FollowTheListAndPassOverNoOps) {
  ModelConfig config;
  config.num_layers = 6;
  EXPECT_EQ(stages_text(config, {}), "0-6eh");
  EXPECT_EQ(stages_text(config, {.stages = 3}), "0-2e 2-4 4-6h");
  EXPECT_EQ(stages_text(config, {.stages = 3, .layer_list = {1, 3, 2}}), "0-1e 1-4 4-6h");
  EXPECT_EQ(stages_text(config, {.stages = 4, .noop_layers = {0, 7}}), "0-1e 1-3 3-5 5-6h");
  const PipelineLayers by_length{.stages = 3, .layers_per_virtual_stage = 1};
  EXPECT_EQ(stages_text(config, by_length), "0-1+3-4e 1-2+4-5 2-3+5-6h");
  EXPECT_EQ(stages_text(config, {.stages = 3, .virtual_stages = 2}), "0-1+3-4e 1-2+4-5 2-3+5-6h");
  EXPECT_EQ(stages_text(config, {.stages = 1, .virtual_stages = 2}), "0-3+3-6eh");
  EXPECT_EQ(stages_text(config, {.stages = 2, .virtual_stages = 2, .noop_layers = {0, 7}}),
            "0-1+3-5e 1-3+5-6h");
  try {
    stages_of(config, {.stages = 4});
    FAIL() << "four stages of six layers";
  } catch (const UsageError& error) {
    EXPECT_NE(error.hint().find("--num-layer-list 2,2,1,1"), std::string::npos) << error.hint();
  }
  EXPECT_THROW(stages_of(config, {.stages = 2, .layer_list = {6, 0}}), UsageError);
  EXPECT_THROW(stages_of(config, {.stages = 4, .noop_layers = {0, 1}}), UsageError);
  EXPECT_THROW(stages_of(config, {.stages = 3, .virtual_stages = 3}), UsageError);
  EXPECT_THROW(stages_of(config, {.stages = 3, .layers_per_virtual_stage = 3}), UsageError);
  EXPECT_THROW(
      stages_of(config, {.stages = 2, .layers_per_virtual_stage = 1, .layer_list = {3, 3}}),
      UsageError);
  EXPECT_EQ(stages_text(config, {.stages = 2, .virtual_stages = 4, .noop_layers = {0, 7}}),
            "0-0+1-2+3-4+5-6e 0-1+2-3+4-5+6-6h");
  EXPECT_THROW(stages_of(config, {.stages = 4, .virtual_stages = 2, .noop_layers = {3, 7}}),
               UsageError);
}

TEST(StagesOf, ATiedHeadBringsTheTableToTheLastStage) {
  ModelConfig config;
  config.num_layers = 4;
  config.tie_embeddings = true;
  EXPECT_EQ(stages_text(config, {}), "0-4eh");
  EXPECT_EQ(stages_text(config, {.stages = 2}), "0-2e 2-4hc");
  ParamSpec table{};
  table.role = Role::kEmbedding;
  const std::vector<Stage> stages = stages_of(config, {.stages = 4});
  for (size_t s = 0; s < stages.size(); ++s) {
    EXPECT_EQ(stages[s].holds(table), s == 0 || s == 3);
    EXPECT_EQ(stages[s].is_copy(table), s == 3);
  }
}

TEST(SplitBeside, IsTheSameOfAsManyLayersElseAsEqualAsCanBe) {
  const PipelineLayers list{.stages = 2, .layer_list = {1, 3}},
      noops{.stages = 2, .virtual_stages = 2, .noop_layers = {0, 7}};
  EXPECT_EQ(split_beside(list, 4, 4).layer_list, list.layer_list);
  EXPECT_EQ(split_beside(noops, 6, 6).noop_layers, noops.noop_layers);
  const auto sizes = [](const PipelineLayers& split, int64_t own, int64_t layers) {
    std::vector<size_t> of_stages;
    for (const auto& stage : place_layers(split_beside(split, own, layers), layers)) {
      EXPECT_EQ(stage.size(), 1u);
      of_stages.push_back(stage.front().size());
    }
    return of_stages;
  };
  EXPECT_EQ(sizes(list, 4, 6), (std::vector<size_t>{3, 3}));
  EXPECT_EQ(sizes(list, 4, 7), (std::vector<size_t>{4, 3}));
  EXPECT_EQ(sizes(noops, 6, 5), (std::vector<size_t>{3, 2}));
  EXPECT_EQ(sizes({.stages = 3}, 6, 8), (std::vector<size_t>{3, 3, 2}));
  EXPECT_EQ(sizes({}, 6, 8), (std::vector<size_t>{8}));
}

}  // namespace pipeline_test
}  // namespace danlu::arch
