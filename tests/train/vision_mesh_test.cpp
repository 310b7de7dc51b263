// Promise 4 of models that see pictures: the numbers do not depend on the mesh. The oracle is one
// rank.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <set>

#include "train/batch_input.h"
#include "train/mesh.h"
#include "train/mesh_cases.h"
#include "train/objectives/distillation.h"
#include "train/run_dir/progress.h"

namespace danlu::train {
namespace mesh_test {
namespace {

using parallel::Sharding;

constexpr int32_t kStart = 90, kEnd = 91, kPicture = 92, kVideo = 93;

void add_text(int64_t count, int64_t number, data::Sample& sample) {
  for (int64_t t = 0; t < count; ++t) {
    const auto token = static_cast<int32_t>(3 + (number * 7 + t * 13 + t * t) % 89);
    sample.ids.push_back(token);
    sample.labels.push_back(t < 2 ? -100 : token);
  }
}

/// Placeholders of one picture or video, and what stands around them.
void add_picture(const media::Grid& grid, bool is_video, data::Sample& sample) {
  const auto put = [&](int32_t token) {
    sample.ids.push_back(token);
    sample.labels.push_back(-100);
  };
  put(kStart);
  data::MediaSpan span;
  span.kind = is_video ? text::MediaKind::kVideo : text::MediaKind::kImage;
  span.grid = grid;
  span.begin = static_cast<int64_t>(sample.ids.size());
  span.count = grid.visual_tokens(2);
  span.second_per_grid = is_video ? 0.75 : 0;
  span.row = "row " + std::to_string(sample.ids.size()) + " " + std::to_string(grid.h) + " " +
             std::to_string(sample.ids[0]);
  for (int64_t i = 0; i < span.count; ++i) put(is_video ? kVideo : kPicture);
  put(kEnd);
  sample.media.push_back(span);
}

/// Texts, pictures of several sizes, two pictures, videos; every second step of 8 samples begins
/// with text alone.
std::shared_ptr<const data::SampleSource> samples_with_pictures() {
  static const auto source = [] {
    std::vector<data::Sample> samples;
    for (int64_t i = 0; i < 64; ++i) {
      data::Sample sample;
      add_text(3 + i % 3, i, sample);
      const int64_t kind = i / 8 % 2 == 1 && i % 8 < 4 ? 0 : i % 5;
      if (kind == 1) add_picture({1, 4, 6}, false, sample);
      if (kind == 2) add_picture({1, 6, 2}, false, sample);
      if (kind == 3) {
        add_picture({1, 2, 2}, false, sample);
        add_text(2, i, sample);
        add_picture({1, 4, 4}, false, sample);
      }
      if (kind == 4) add_picture({3, 2, 4}, true, sample);
      add_text(4 + i % 4, i + 1, sample);
      samples.push_back(std::move(sample));
    }
    return std::make_shared<data::VectorSource>(std::move(samples));
  }();
  return source;
}

Case seeing(const char* family, MeshShape shape = {}, Sharding sharding = Sharding::kNone) {
  Json config = danlu::test::tiny_config(family);
  config["vision_config"]["depth"] = 4;
  if (config["vision_config"].contains("fullatt_block_indexes"))
    config["vision_config"]["fullatt_block_indexes"] = {1, 3};
  Case c{family, family, {{"vision_config", config["vision_config"]}}};
  c.layers = 4;
  c.shape = shape;
  c.sharding = sharding;
  c.samples = samples_with_pictures();
  return c;
}

const Outcome& outcome_alone(const Case& c) {
  static std::map<std::string, Outcome> known;
  const Case plain = without_schemes(c);
  const std::string name = name_of({plain, 0}) + plain.changes.dump();
  const auto [found, is_new] = known.try_emplace(name);
  if (is_new) found->second = train(plain, {}, few_steps(), {2, 48});
  return found->second;
}

void expect_one_rank(const Case& c, const Cut& cut = {2, 48}) {
  SCOPED_TRACE(name_of({c, 0}));
  const Outcome &one = outcome_alone(c), got = train(c, c.shape, few_steps(), cut);
  if (c.tuning == Tuning::kFull) {
    EXPECT_GT(one.gradients.at("visual.patch_embed.proj.weight").abs().max().item<double>(), 0);
  } else {
    for (const std::string part : {"visual.blocks.0.", "visual.merger.", "model.layers.0."}) {
      const bool is_there =
          std::any_of(one.gradients.begin(), one.gradients.end(),
                      [&](const auto& item) { return item.first.find(part) != item.first.npos; });
      EXPECT_EQ(is_there, c.adapts_tower || part == "model.layers.0.") << part;
    }
  }
  expect_numbers_of(one, got);
}

TEST(VisionMesh, TrainsOnEveryAxisAsOnOneRank) {
  for (const char* family : {"qwen2_vl", "qwen2_5_vl"}) {
    expect_one_rank(seeing(family, {.data = 2}));
    expect_one_rank(seeing(family, {.data = 2}, Sharding::kState));
    expect_one_rank(seeing(family, {.data = 2}, Sharding::kGradients));
    expect_one_rank(seeing(family, {.data = 4}, Sharding::kParameters));
    expect_one_rank(seeing(family, {.tensor = 2}));
    expect_one_rank(seeing(family, {.tensor = 2, .sequence_parallel = true}));
    expect_one_rank(seeing(family, {.context = {.ring = 2, .window = 2}}));
    expect_one_rank(seeing(family, {.context = {.ulysses = 2}}));
  }
}

TEST(VisionMesh, StagesMayDivideTheTower) {
  for (const char* family : {"qwen2_vl", "qwen2_5_vl"}) {
    Case c = seeing(family, {.pipeline = 2});
    c.block_lists = {{4, 0}};
    c.layer_lists = {{1, 3}};
    expect_one_rank(c);
    c.layer_lists = {{0, 4}};
    expect_one_rank(c);
    c.block_lists = {{3, 1}};
    expect_one_rank(c);
    c.shape = {.tensor = 2, .data = 2, .pipeline = 2, .sequence_parallel = true};
    c.sharding = Sharding::kState;
    expect_one_rank(c);
    c.sharding = Sharding::kParameters;
    expect_one_rank(c);
  }
}

/// MindSpeed-MM's nested lists: [chunk][stage].
TEST(VisionMesh, VirtualStagesMayDivideTheTower) {
  Case c = seeing("qwen2_5_vl", {.pipeline = 2});
  c.chunks = 2;
  c.block_lists = {{2, 2}, {0, 0}};
  c.layer_lists = {{0, 1}, {2, 1}};
  expect_one_rank(c);
}

TEST(VisionMesh, IsRecomputedAndTakesAdapters) {
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const models::Recompute recompute :
         {models::Recompute::kSelective, models::Recompute::kFull}) {
      Case c = seeing("qwen2_5_vl", {.data = 2}, Sharding::kParameters);
      c.tuning = tuning;
      c.recompute = recompute;
      expect_one_rank(c);
    }
    for (const MeshShape& shape :
         std::vector<MeshShape>{{.tensor = 2}, {.tensor = 2, .sequence_parallel = true}}) {
      Case c = seeing("qwen2_5_vl", shape);
      c.tuning = tuning;
      expect_one_rank(c);
    }
    Case c = seeing("qwen2_5_vl", {.context = {.ring = 2, .window = 2}});
    c.tuning = tuning;
    expect_one_rank(c);
    c.shape = {.pipeline = 2};
    c.block_lists = {{3, 1}};
    c.layer_lists = {{0, 4}};
    expect_one_rank(c);
  }
}

/// Ranks of a context axis share what ZeRO divides, and each has other pictures.
TEST(VisionMesh, ContextRanksShareState) {
  for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
    for (const Sharding sharding :
         {Sharding::kState, Sharding::kGradients, Sharding::kParameters}) {
      Case c = seeing("qwen2_5_vl", {.context = {.ring = 2, .window = 2}}, sharding);
      c.tuning = tuning;
      expect_one_rank(c);
      if (sharding != Sharding::kParameters) continue;
      c.shape.data = 2;
      c.shape.context = {.ulysses = 2};
      expect_one_rank(c);
    }
  }
}

/// The tower is passed forward alone: no gradient leaves the embedding.
TEST(VisionMesh, TheDecoderAloneTakesAdapters) {
  const auto expect = [](const MeshShape& shape, Sharding sharding = Sharding::kNone) {
    Case c = seeing("qwen2_5_vl", shape, sharding);
    c.tuning = Tuning::kLora;
    c.adapts_tower = false;
    if (shape.pipeline > 1) {
      c.block_lists = {{4, 0}};
      c.layer_lists = {{1, 3}};
    }
    expect_one_rank(c);
  };
  expect({.data = 2});
  expect({.data = 4}, Sharding::kState);
  expect({.data = 2}, Sharding::kParameters);
  expect({.tensor = 2});
  expect({.tensor = 2, .sequence_parallel = true});
  expect({.pipeline = 2});
  expect({.tensor = 2, .data = 2, .pipeline = 2}, Sharding::kParameters);
  expect({.context = {.ring = 2, .window = 2}});
  expect({.context = {.ulysses = 2}}, Sharding::kParameters);
}

/// In every second step the samples of the first rank are text alone, in which its stages of the
/// tower pass nothing while those of the second rank pass pictures.
TEST(VisionMesh, ARankMayHaveTextAlone) {
  for (int64_t i = 0; i < kGlobalBatch / 2; ++i)
    EXPECT_TRUE(samples_with_pictures()->get(kGlobalBatch + i).media.empty());
  for (const Sharding sharding : {Sharding::kNone, Sharding::kState, Sharding::kParameters}) {
    for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
      Case c = seeing("qwen2_vl", {.data = 2, .pipeline = 2}, sharding);
      c.tuning = tuning;
      c.block_lists = {{3, 1}};
      c.layer_lists = {{0, 4}};
      expect_one_rank(c, {kGlobalBatch / 2, 48});
    }
  }
}

class SlowPixels : public danlu::test::DrawnPixels {
 public:
  static constexpr double kSeconds = 0.25;
  using DrawnPixels::DrawnPixels;
  data::MediaPixels take(double* wait_s, bool = false) override {
    data::MediaPixels made = DrawnPixels::take();
    if (wait_s) *wait_s = kSeconds;
    return made;
  }
};

TEST(VisionMesh, AStepTellsItsVisualTokensAndHowLongItWaitedForPixels) {
  const Case c = seeing("qwen2_vl");
  TrainState state = state_of(c, Mesh::single());
  data::StepBatches batches = batches_of(Mesh::single(), 0, {2, 48}, c.samples);
  int64_t waits = 0, visual = 0;
  for (data::Batch& batch : batches.micro_batches) {
    if (batch.media.empty()) continue;
    batch.pixels = std::make_shared<SlowPixels>(batch.media);
    ++waits;
    for (const data::MediaSpan& span : batch.media) visual += span.count;
  }
  const TrainConfig config = config_of(c);
  const StepResult result = run_step(state, batches, config, config.schedule.shape);
  EXPECT_GT(waits, 1);
  EXPECT_DOUBLE_EQ(result.pixels_wait_s, SlowPixels::kSeconds * static_cast<double>(waits));
  EXPECT_EQ(result.num_visual_tokens, visual);
  LogWindow window;
  window.add(result, 8, 0.5);
  EXPECT_DOUBLE_EQ(window.wait_s, 0.5 + result.pixels_wait_s);
  EXPECT_EQ(window.visual_tokens, visual);
}

TEST(VisionMesh, ATeacherLeavesPixelsToThePassThatLearns) {
  Case c = seeing("qwen2_vl");
  c.objective_beside = [](std::shared_ptr<const FrozenModel> teacher) {
    return distillation_objective({}, std::move(teacher));
  };
  TrainState state = state_of(c, Mesh::single());
  const TrainConfig config = config_of(c);
  // Pixels that are taken for the last time twice fail.
  const data::StepBatches batches = batches_of(Mesh::single(), 0, {2, 48}, c.samples);
  const StepResult result = run_step(state, batches, config, config.schedule.shape);
  EXPECT_GT(result.num_visual_tokens, 0);
  EXPECT_GT(result.loss, 0);
}

/// Two rows of one name, as of two data sets, and one that comes again draw their own masks.
TEST(VisionMesh, DropoutIsKeyedByAPicturesPlaceInTheRun) {
  Case c = seeing("qwen2_5_vl");
  c.tuning = Tuning::kLora;
  const TrainState state = state_of(c, Mesh::single());
  data::Sample sample;
  add_text(3, 1, sample);
  add_picture({1, 4, 4}, false, sample);
  add_picture({1, 4, 4}, false, sample);
  const auto keys_of = [&](const std::vector<data::Sample>& samples,
                           const std::vector<int64_t>& numbers) {
    data::Batch batch = data::make_batch(samples, numbers);
    batch.pixels = std::make_shared<danlu::test::DrawnPixels>(batch.media);
    const at::Tensor keys =
        training_input(*state.model, batch, {.seed = 9}).visuals->dropout_keys_P.contiguous();
    return std::vector<int64_t>(keys.data_ptr<int64_t>(), keys.data_ptr<int64_t>() + keys.numel());
  };
  const std::vector<int64_t> both = keys_of({sample, sample}, {5, 12});
  EXPECT_EQ(std::set<int64_t>(both.begin(), both.end()).size(), 64u);
  const std::vector<int64_t> second = keys_of({sample}, {12});
  EXPECT_EQ(second, std::vector<int64_t>(both.begin() + 32, both.end())) << "in another batch";
}

/// The decoder alone has as many parameters as the text model, and gives its numbers.
TEST(VisionMesh, RowsWithoutPicturesGiveTheNumbersOfTheTextModel) {
  Case seen = seeing("qwen2_vl");
  seen.samples = nullptr;
  Case text{"qwen2", "qwen2", {{"rope_theta", 1e6}}};
  text.layers = 4;
  const Outcome with = train(seen, {}, 3), without = train(text, {}, 3);
  EXPECT_EQ(with.losses, without.losses);
  for (const auto& [name, weight] : without.weights)
    EXPECT_TRUE(at::equal(weight, with.weights.at(name))) << name;
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
