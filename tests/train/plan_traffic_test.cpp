// What danlu plan says ranks send each other, against the bytes that the transport counts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "models/training_memory.h"
#include "models/weight_files.h"
#include "parallel/comm/local.h"
#include "plan/traffic.h"
#include "support/tiny_model.h"
#include "train/support.h"

namespace danlu::train {
namespace plan_traffic_test {

using settings::RecomputeFlags;

struct Case {
  const char* name;
  settings::MeshShape mesh;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

arch::ModelConfig model() {
  Json json = danlu::test::tiny_config("llama");
  json.update({{"hidden_size", 64},
               {"intermediate_size", 96},
               {"num_attention_heads", 8},
               {"num_key_value_heads", 2},
               {"num_hidden_layers", 3},
               {"vocab_size", 96},
               {"max_position_embeddings", 128}});
  return arch::parse_model_config(json, "test");
}

plan::Request request_of(const settings::MeshShape& mesh, const RecomputeFlags& recompute) {
  plan::Request request;
  request.model = model();
  request.mesh = mesh;
  request.recompute = recompute;
  request.precision = settings::Precision::kF32;
  request.tokens = 128;
  return request;
}

struct Sent {
  double context = 0, tensor = 0;
};

/// By a rank on average, in one step of one micro-batch.
Sent counted(const plan::Request& request) {
  Sent sum;
  std::mutex mutex;
  parallel::run_local_ranks(request.mesh.size(), [&](parallel::World& world) {
    const parallel::Mesh mesh(world, request.mesh);
    auto model = std::make_unique<models::CausalLM>(request.model, arch::whole_of(request.model),
                                                    mesh, at::kFloat, at::Device(at::kCPU));
    models::initialize(*model, 7);
    model->memory().set_recompute(request.recompute);
    TrainConfig settings;
    settings.schedule.shape.kind = settings::ScheduleKind::kConstant;
    TrainState state = test::make_state(std::move(model), settings);
    data::Sample sample;
    for (int64_t i = 0; i < request.tokens; ++i)
      sample.ids.push_back(static_cast<int32_t>(i * 7 % 90));
    sample.labels = sample.ids;
    const auto source = std::make_shared<data::VectorSource>(std::vector<data::Sample>(4, sample));
    const auto sent = [&mesh] {
      return Sent{static_cast<double>(mesh.context().traffic().bytes),
                  static_cast<double>(mesh.tensor().traffic().bytes)};
    };
    const Sent before = sent();
    run_step(state, test::step_of(source, 1, 1, 0, 0), settings, settings.schedule.shape);
    const Sent after = sent();
    const std::lock_guard lock(mutex);
    sum.context += (after.context - before.context) / static_cast<double>(request.mesh.size());
    sum.tensor += (after.tensor - before.tensor) / static_cast<double>(request.mesh.size());
  });
  return sum;
}

std::vector<RecomputeFlags> kinds() {
  return {{.granularity = "selective"},
          {.granularity = "full"},
          {.granularity = "full", .method = "block", .num_layers = 1, .norm = true},
          {.activation_function = true},
          {.norm = true}};
}

class PlanTraffic : public testing::TestWithParam<Case> {};

TEST_P(PlanTraffic, OfTheContextAxisIsWhatIsSent) {
  const settings::MeshShape& mesh = GetParam().mesh;
  std::vector<RecomputeFlags> all = kinds();
  all.push_back({});
  for (const RecomputeFlags& recompute : all) {
    const plan::Request request = request_of(mesh, recompute);
    EXPECT_EQ(counted(request).context,
              plan::traffic_of(request, arch::whole_of(request.model)).context)
        << settings::recompute_text(recompute);
  }
}

TEST_P(PlanTraffic, OfTheTensorAxisGrowsByWhatIsSentAgain) {
  const settings::MeshShape& mesh = GetParam().mesh;
  const plan::Request none = request_of(mesh, {});
  const arch::Stage whole = arch::whole_of(none.model);
  const double sent = counted(none).tensor, planned = plan::traffic_of(none, whole).tensor;
  for (const RecomputeFlags& recompute : kinds()) {
    const plan::Request request = request_of(mesh, recompute);
    EXPECT_EQ(counted(request).tensor - sent, plan::traffic_of(request, whole).tensor - planned)
        << settings::recompute_text(recompute);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, PlanTraffic,
    testing::Values(
        Case{"ring2", {.context = {.ring = 2}}}, Case{"ulysses4", {.context = {.ulysses = 4}}},
        Case{"hybrid4", {.context = {.ulysses = 2, .ring = 2}}}, Case{"tp2", {.tensor = 2}},
        Case{"tp2sp", {.tensor = 2, .sequence_parallel = true}},
        Case{"tp2sp_ring2", {.tensor = 2, .context = {.ring = 2}, .sequence_parallel = true}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace plan_traffic_test
}  // namespace danlu::train
