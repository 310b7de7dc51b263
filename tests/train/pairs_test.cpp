// A second objective: pairs of answers, of which the first is to be likelier than before by more
// than the second. What an objective may need is in it: passes before the step, without adapters;
// log-probabilities of whole sequences, whose tokens ranks share; weights that are not tokens; and
// metrics of its own.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "models/adapters.h"
#include "models/weight_files.h"
#include "support/temporary_directory.h"
#include "train/batch_input.h"
#include "train/mesh.h"
#include "train/report/metrics_log.h"
#include "train/run.h"
#include "train/segment_sums.h"

namespace danlu::train {
namespace mesh_test {
namespace {

TEST(SegmentSums, AreThoseOfALoopAndSoIsTheirGradient) {
  const std::vector<int64_t> segments = {1, 0, 1, 1, 3};
  const at::Tensor values =
      at::tensor({0.5, 1.0, 2.0, 3.0, 0.25, 5.0, 6.0, 7.0, 8.0, 9.0}, at::kDouble)
          .view({5, 2})
          .requires_grad_(true);
  const at::Tensor sums = sums_of_segments(values, at::tensor(segments, at::kLong), 4);
  ASSERT_EQ(sums.sizes(), (at::IntArrayRef{4, 2}));
  std::vector<double> expected(8);
  for (size_t row = 0; row < segments.size(); ++row) {
    for (size_t column = 0; column < 2; ++column)
      expected[2 * static_cast<size_t>(segments[row]) + column] +=
          values[static_cast<int64_t>(row)][static_cast<int64_t>(column)].item<double>();
  }
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(sums.flatten()[static_cast<int64_t>(i)].item<double>(), expected[i]) << i;
  const at::Tensor weights = at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble).unsqueeze(1);
  torch::autograd::backward({(sums * weights).sum()});
  for (int64_t row = 0; row < 5; ++row)
    EXPECT_EQ(values.grad()[row][1].item<double>(),
              static_cast<double>(segments[static_cast<size_t>(row)] + 1));
}

/// A sample is two segments. Over pairs: -log sigmoid(beta (d - r)), where d is by how much the
/// model has the first likelier than the second, and r the same without adapters.
class Pairs : public Objective {
 public:
  std::vector<std::string> metrics() const override { return {"margin", "preferred"}; }
  double weight(const data::Batch& batch) const override {
    return static_cast<double>(batch.segment_starts.size() - 1) / 2;
  }
  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& batches) const override {
    std::vector<Columns> columns(batches.size());
    const OwnParts parts(passes.stage().mesh(), batches);
    passes.run(parts.batches(), {.adapters = false},
               [&](size_t i, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
                 columns[i] = Columns::of(
                     segment_logprobs(passes.stage(), hidden_nH, input, *parts.batches()[i]));
               });
    return columns;
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns& columns,
                double scale) const override {
    constexpr double kBeta = 0.5;
    const auto differences = [](const at::Tensor& of_S) {
      const at::Tensor of_P2 = of_S.view({-1, 2});
      return of_P2.select(1, 0) - of_P2.select(1, 1);
    };
    const at::Tensor margin_P = differences(segment_logprobs(policy, hidden_nH, input, batch)) -
                                differences(columns.as<at::Tensor>());
    at::Tensor sum = -at::log_sigmoid(margin_P * kBeta).sum();
    // Every rank of the context axis has the whole; it counts once.
    const bool is_first = policy.mesh().context().rank() == 0;
    if (!is_first) sum = sum - sum.detach();
    const double counts = is_first ? 1 : 0;
    const at::Tensor pairs = at::ones({}, margin_P.options()) * (counts * weight(batch));
    return {sum,
            at::ones({}, sum.options()) * scale,
            {{"margin", {margin_P.detach().sum() * counts, pairs}},
             {"preferred", {(margin_P.detach() > 0).sum() * counts, pairs}}}};
  }
};

/// Pairs of unequal length.
std::shared_ptr<const data::SampleSource> pairs() {
  const std::vector<data::Sample> toys = test::toy_samples(128);
  std::vector<data::Sample> samples;
  for (size_t i = 0; i < 64; ++i) {
    data::Sample pair = toys[i];
    const data::Sample& second = toys[127 - i];
    pair.segments = {0, static_cast<int32_t>(pair.ids.size())};
    pair.ids.insert(pair.ids.end(), second.ids.begin(), second.ids.end());
    pair.labels.insert(pair.labels.end(), second.labels.begin(), second.labels.end());
    samples.push_back(pair);
  }
  return std::make_shared<data::VectorSource>(samples);
}

Case pair_case(const char* family = "qwen2") {
  static const auto samples = pairs();
  Case c{family, family, Json::object(), Tuning::kLora};
  c.objective = std::make_shared<Pairs>();
  c.samples = samples;
  return c;
}

void expect_pairs_as_alone(const Case& c) {
  SCOPED_TRACE(name_of({c, 0}));
  constexpr int64_t kSteps = 4;
  const Outcome one = train(without_schemes(c), {}, kSteps), got = train(c, c.shape, kSteps);
  expect_numbers_of(one, got);
  for (size_t step = 0; step < kSteps; ++step) {
    ASSERT_EQ(got.metrics[step].size(), 2u);
    for (const auto& [name, value] : one.metrics[step])
      EXPECT_NEAR(got.metrics[step].at(name), value, 1e-5 * std::max(1.0, std::fabs(value)))
          << name;
  }
}

TEST(PairsMesh, GiveTheNumbersOfOneRank) {
  const auto on = [](MeshShape shape, parallel::Sharding sharding = parallel::Sharding::kNone) {
    Case c = pair_case();
    c.shape = shape;
    c.sharding = sharding;
    return c;
  };
  expect_pairs_as_alone(on({.data = 2}));
  expect_pairs_as_alone(on({.tensor = 2}));
  expect_pairs_as_alone(on({.tensor = 2, .sequence_parallel = true}));
  expect_pairs_as_alone(on({.pipeline = 2}));
  expect_pairs_as_alone(on({.context = {.ring = 2, .window = 2}}));
  expect_pairs_as_alone(on({.context = {.ulysses = 2}}));
  expect_pairs_as_alone(on({.data = 2}, parallel::Sharding::kParameters));
  expect_pairs_as_alone(on({.tensor = 2, .data = 2, .pipeline = 2}, parallel::Sharding::kState));
}

// Modules that are trained whole are for the reference what they were.
TEST(PairsMesh, TheReferenceHasModulesAsTheyWere) {
  for (const auto& [shape, sharding] : std::vector<std::pair<MeshShape, parallel::Sharding>>{
           {{.data = 2}, parallel::Sharding::kParameters},
           {{.pipeline = 2}, parallel::Sharding::kNone},
           {{.tensor = 2, .data = 2, .pipeline = 2}, parallel::Sharding::kState}}) {
    Case c = pair_case();
    c.shape = shape;
    c.sharding = sharding;
    c.modules_to_save = {"embed_tokens", "lm_head", "post_attention_layernorm"};
    expect_pairs_as_alone(c);
  }
}

arch::ModelConfig llama() {
  const Json json = danlu::test::tiny_config("llama");
  return arch::family_of(json).parse(json);
}

/// The same weights each time; adapters whose B is not 0.
std::unique_ptr<models::CausalLM> wide_model(bool with_adapters,
                                             const std::vector<std::string>& saved = {}) {
  auto model = std::make_unique<models::CausalLM>(llama(), Mesh::single(), at::kDouble,
                                                  at::Device(at::kCPU));
  models::initialize(*model, 3);
  weights::PeftConfig lora = settings::new_adapters();
  lora.rank = 3;
  lora.modules_to_save = saved;
  if (with_adapters) models::add_lora(*model, lora, 5);
  randomise(*model, at::kDouble);
  return model;
}

/// The log-probability of one segment's targets, by a pass of its own and all of its logits.
double logprob_alone(const models::CausalLM& model, const data::Batch& batch, size_t segment) {
  data::Sample alone;
  const int32_t begin = batch.segment_starts[segment], end = batch.segment_starts[segment + 1];
  for (int32_t i = begin; i < end; ++i)
    alone.ids.push_back(static_cast<int32_t>(batch.ids[static_cast<size_t>(i)]));
  alone.labels = alone.ids;
  const data::Batch one = data::make_batch({alone});
  const at::Tensor logprobs_NV =
      at::log_softmax(model.logits(model.forward_hidden(evaluation_input(model, one))), 1);
  double sum = 0;
  for (int32_t i = begin; i < end; ++i) {
    const int64_t target = batch.targets[static_cast<size_t>(i)];
    if (target >= 0) sum += logprobs_NV[i - begin][target].item<double>();
  }
  return sum;
}

void expect_definition(const std::vector<std::string>& saved) {
  const auto policy = wide_model(true, saved), reference = wide_model(false);
  const std::vector<data::Sample> samples = {pairs()->get(1), pairs()->get(8)};
  const data::Batch batch = data::make_batch(samples);
  StageLinks links(*policy);
  const Pairs objective;
  const auto loss_of_policy = [&] {
    const auto columns = objective.prepare(ForwardPasses(*policy, links), {&batch});
    const models::ForwardInput input = evaluation_input(*policy, batch);
    return objective.evaluate(*policy, policy->forward(input), input, batch, columns[0], 1);
  };
  const Loss loss = loss_of_policy();
  double expected = 0;
  {
    const at::NoGradGuard no_grad;
    for (size_t pair = 0; pair < samples.size(); ++pair) {
      const auto difference = [&](const models::CausalLM& model) {
        return logprob_alone(model, batch, 2 * pair) - logprob_alone(model, batch, 2 * pair + 1);
      };
      const double margin = difference(*policy) - difference(*reference);
      EXPECT_GT(std::fabs(margin), 0.01) << "adapters that change nothing prove nothing";
      expected += std::log1p(std::exp(-0.5 * margin));
    }
  }
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-9);

  torch::autograd::backward({loss.sum});
  const std::vector<parallel::Parameter> trained = policy->adapter_parameters();
  for (const size_t which : {size_t{0}, size_t{5}, size_t{11}, trained.size() - 1}) {
    const parallel::Parameter& parameter = trained[which];
    const at::NoGradGuard no_grad;
    constexpr double kStep = 1e-5;
    const at::Tensor gradient = parameter.tensor.grad().view({-1}).clone();
    const auto steepest = gradient.abs().argmax().item<int64_t>();
    at::Tensor element = parameter.tensor.view({-1})[steepest];
    const auto at_distance = [&](double distance) {
      element.add_(distance);
      const double result = loss_of_policy().sum.item<double>();
      element.sub_(distance);
      return result;
    };
    const double slope = (at_distance(kStep) - at_distance(-kStep)) / (2 * kStep);
    EXPECT_GT(std::fabs(slope), 1e-6);
    EXPECT_NEAR(gradient[steepest].item<double>(), slope, 1e-6 * std::max(1.0, std::fabs(slope)))
        << parameter.name();
  }
}

TEST(Pairs, TheLossIsThatOfTheDefinition) { expect_definition({}); }

TEST(Pairs, TheReferenceKnowsNothingOfModulesThatAreTrainedWhole) {
  for (const char* one : {"embed_tokens", "norm", "lm_head", "post_attention_layernorm"}) {
    SCOPED_TRACE(one);
    expect_definition({one});
  }
}

TEST(Pairs, APairIsNeverParted) {
  const data::StepBatches step = batches_of(Mesh::single(), 0, {2, 10}, pairs());
  int64_t pairs_seen = 0;
  for (const data::Batch& batch : step.micro_batches) {
    EXPECT_EQ(batch.segment_starts.size() % 2, 1u);
    pairs_seen += static_cast<int64_t>(batch.segment_starts.size() / 2);
  }
  EXPECT_EQ(pairs_seen, kGlobalBatch);
}

/// The number of scalars of that name in the run's event file.
int64_t scalars_in_events(const std::filesystem::path& run, const std::string& name) {
  std::string events;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run / "runs")) {
    if (entry.is_regular_file()) events += read_file(entry.path());
  }
  int64_t count = 0;
  for (size_t at = events.find(name); at != events.npos; at = events.find(name, at + 1)) ++count;
  return count;
}

TEST(Pairs, MetricsByNameArriveInEveryReportOfARun) {
  const danlu::test::TemporaryDirectory folder;
  test::write_run_inputs(folder.path(), DType::kF32, 48);
  danlu::test::write_tiny_model(folder / "pairs", danlu::test::tiny_config("llama"));
  TrainConfig config;
  config.tuner = Tuner::kLora;
  config.lora = settings::new_adapters();
  config.precision = Precision::kF32;
  config.device = "cpu";
  config.model.path = config.model.tokenizer = folder / "pairs";
  config.data.train = {(folder / "data.jsonl").string()};
  config.data.validation = {(folder / "data.jsonl").string()};
  config.data.cache_dir = folder / "cache";
  config.data.max_length = 64;
  config.batch.micro_batch_size = config.batch.eval_batch_size = 2;  // two samples are a pair
  config.data.share_passes = false;
  config.batch.max_steps = 3;
  config.schedule.shape.kind = settings::ScheduleKind::kConstant;
  config.schedule.shape.lr = 1e-3;
  config.output.save = settings::Interval::kNo;
  config.output.logging_steps = 1;
  config.output.eval_steps = 1;
  config.output.directory = folder / "run";
  std::string said;
  {
    testing::internal::CaptureStderr();
    run(config, std::make_shared<Pairs>());
    said = testing::internal::GetCapturedStderr();
  }
  const auto figures = read_metrics(folder / "run" / "logging.jsonl");
  for (const std::string name : {"margin", "preferred"}) {
    ASSERT_EQ(figures.count(name), 1u) << name;
    EXPECT_EQ(figures.at(name).size(), 3u);
    EXPECT_EQ(figures.at("eval_" + name).size(), 3u);
    EXPECT_NE(said.find("  " + name + " "), said.npos) << said;
    EXPECT_EQ(scalars_in_events(folder / "run", "train/" + name), 3);
    EXPECT_EQ(scalars_in_events(folder / "run", "eval/eval_" + name), 3);
    EXPECT_NE(read_file(folder / "run" / "images" / ("train_" + name + ".svg")).find("<svg"),
              std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(folder / "run" / "images" / ("train_" + name + ".png")));
  }
  EXPECT_EQ(figures.count("token_acc"), 0u) << "another objective's";
  EXPECT_EQ(figures.at("margin").front().second, 0) << "adapters begin with nothing";
  EXPECT_GT(std::fabs(figures.at("margin").back().second), 1e-6);
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
