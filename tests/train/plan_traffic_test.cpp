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

arch::ModelConfig model(const Json& changes = Json::object()) {
  Json json = danlu::test::tiny_config("llama");
  json.update({{"hidden_size", 64},
               {"intermediate_size", 96},
               {"num_attention_heads", 8},
               {"num_key_value_heads", 2},
               {"num_hidden_layers", 3},
               {"vocab_size", 96},
               {"max_position_embeddings", 128}});
  json.update(changes);
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

/// A model of four layers whose embedding is its head; less than 0.5 % of what a rank holds is
/// padding.
plan::Request tied_request(const settings::MeshShape& mesh, settings::Sharding sharding,
                           int64_t passes, bool tied = true) {
  plan::Request request = request_of(mesh, {});
  request.model = model({{"hidden_size", 128},
                         {"intermediate_size", 192},
                         {"num_hidden_layers", 4},
                         {"vocab_size", 512},
                         {"tie_word_embeddings", tied}});
  request.pipeline.stages = mesh.pipeline;
  request.sharding = sharding;
  request.num_micro_batches = passes;
  return request;
}

struct Sent {
  double context = 0, tensor = 0, pipeline = 0, data = 0;
};

/// By a rank of `stage` on average, in one step.
Sent counted(const plan::Request& request, int64_t stage = 0) {
  Sent sum;
  std::mutex mutex;
  const auto ranks = static_cast<double>(request.mesh.stage_size());
  parallel::run_local_ranks(request.mesh.size(), [&](parallel::World& world) {
    const parallel::Mesh mesh(world, request.mesh);
    auto model = std::make_unique<models::CausalLM>(
        request.model,
        arch::stages_of(request.model, request.pipeline)[static_cast<size_t>(mesh.stage())], mesh,
        at::kFloat, at::Device(at::kCPU));
    models::initialize(*model, 7);
    model->memory().set_recompute(request.recompute);
    TrainConfig settings;
    settings.schedule.shape.kind = settings::ScheduleKind::kConstant;
    settings.keeping.sharding = request.sharding;
    settings.order = request.order;
    TrainState state = test::make_state(std::move(model), settings);
    data::Sample sample;
    for (int64_t i = 0; i < request.tokens; ++i)
      sample.ids.push_back(static_cast<int32_t>(i * 7 % 90));
    sample.labels = sample.ids;
    const auto source = std::make_shared<data::VectorSource>(std::vector<data::Sample>(4, sample));
    const auto sent = [&mesh] {
      const auto of = [](const parallel::Group& group) {
        return static_cast<double>(group.traffic().bytes);
      };
      Sent bytes{static_cast<double>(mesh.context().traffic().bytes), of(mesh.tensor()),
                 of(mesh.ends()), of(mesh.batch_ranks()) + of(mesh.background().batch_ranks())};
      for (const auto way : {parallel::Mesh::Way::kHidden, parallel::Mesh::Way::kGrad}) {
        if (mesh.shape().pipeline == 1) break;
        if (mesh.stage() + 1 < mesh.shape().pipeline) bytes.pipeline += of(mesh.with_next(way));
        if (mesh.stage() > 0) bytes.pipeline += of(mesh.with_previous(way));
      }
      return bytes;
    };
    const Sent before = sent();
    run_step(state, test::step_of(source, 1, request.num_micro_batches, 0, 0), settings,
             settings.schedule.shape);
    state.model->memory().settle();  // what of the update is on its way
    const Sent after = sent();
    if (mesh.stage() != stage) return;
    const std::lock_guard lock(mutex);
    sum.context += (after.context - before.context) / ranks;
    sum.tensor += (after.tensor - before.tensor) / ranks;
    sum.pipeline += (after.pipeline - before.pipeline) / ranks;
    sum.data += (after.data - before.data) / ranks;
  });
  return sum;
}

std::vector<RecomputeFlags> kinds() {
  return {{.granularity = "selective"},
          {.granularity = "full"},
          {.granularity = "full", .method = "block", .num_layers = 1, .norm = true},
          {.activation_function = true},
          {.norm = true},
          {.activation_function = true, .norm = true}};
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

TEST(TiedTraffic, ATiedTableIsSummedBetweenTheEndsOfAPipeline) {
  using settings::Sharding;
  for (const auto& [mesh, sharding] : std::vector<std::pair<settings::MeshShape, Sharding>>{
           {{.pipeline = 2}, Sharding::kNone},
           {{.pipeline = 4}, Sharding::kNone},
           {{.tensor = 2, .pipeline = 2}, Sharding::kNone},
           {{.data = 2, .pipeline = 2}, Sharding::kNone},
           {{.data = 2, .pipeline = 2}, Sharding::kState}}) {
    const plan::Request request = tied_request(mesh, sharding, 2);
    const std::vector<arch::Stage> stages = arch::stages_of(request.model, request.pipeline);
    for (int64_t stage = 0; stage < mesh.pipeline; ++stage) {
      const plan::Traffic planned = plan::traffic_of(request, stages[static_cast<size_t>(stage)]);
      EXPECT_NEAR(counted(request, stage).pipeline / planned.pipeline, 1, 0.005)
          << "stage " << stage << " of " << mesh.pipeline << ", " << mesh.data << " copies, tp "
          << mesh.tensor;
    }
  }
}

TEST(TiedTraffic, OfSharedParametersIsWhatIsSent) {
  struct Row {
    settings::MeshShape mesh;
    int64_t virtual_stages, passes;
  };
  for (const bool tied : {true, false}) {
    // A table that is copied to the last stage is needed there at the head alone; the last layer of
    // an earlier stage stays from one pass to the next.
    for (const Row& row : std::vector<Row>{{{.data = 2}, 0, 2},
                                           {{.data = 2, .pipeline = 2}, 0, 1},
                                           {{.data = 2, .pipeline = 2}, 0, 3},
                                           {{.data = 2, .pipeline = 2, .ring = true}, 2, 4}}) {
      plan::Request request =
          tied_request(row.mesh, settings::Sharding::kParameters, row.passes, tied);
      request.pipeline.virtual_stages = row.virtual_stages;
      if (row.virtual_stages > 0) request.order = arch::PipelineOrder::kInterleaved;
      const std::vector<arch::Stage> stages = arch::stages_of(request.model, request.pipeline);
      for (int64_t stage = 0; stage < row.mesh.pipeline; ++stage) {
        const plan::Traffic planned = plan::traffic_of(request, stages[static_cast<size_t>(stage)]);
        EXPECT_NEAR(counted(request, stage).data / planned.data, 1, 0.005)
            << "stage " << stage << " of " << row.mesh.pipeline << ", " << row.passes << " passes"
            << (tied ? ", tied" : "");
      }
    }
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
