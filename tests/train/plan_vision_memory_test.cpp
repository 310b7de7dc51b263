// What the plan says a pass of a model with a vision tower takes, and what its tensor ranks and
// copies send, against what is allocated and counted.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "device/counted_memory.h"
#include "device/select.h"
#include "models/adapters.h"
#include "ops/attention.h"
#include "parallel/comm/local.h"
#include "plan/traffic.h"
#include "train/drawn_pixels.h"
#include "train/precision.h"
#include "train/support.h"
#include "weights/lora/adapter_places.h"

namespace danlu::train {
namespace plan_vision_test {

using settings::Precision;

constexpr int64_t kTokens = 600;
constexpr media::Grid kGrid{1, 32, 48};

struct VisionCase {
  const char* family;
  const char*
      trained;  ///< "all", "decoder", "merger", "adapters" (the decoder's) or "adapters_all"
  Precision precision = Precision::kF32;
  const char* recompute = "none";
};
void PrintTo(const VisionCase& c, std::ostream* out) {
  *out << c.family << " " << c.trained << " " << c.recompute;
}
std::string vision_case_name(const testing::TestParamInfo<VisionCase>& info) {
  const VisionCase& c = info.param;
  return fmt::format("{}_{}_{}_{}", c.family, c.trained, settings::precision_name(c.precision),
                     c.recompute);
}

arch::ModelConfig vision_model(const std::string& family, int64_t vocabulary = 200) {
  Json json = danlu::test::tiny_config(family);
  json.update({{"hidden_size", 64},
               {"intermediate_size", 172},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"num_hidden_layers", 3},
               {"vocab_size", vocabulary},
               {"max_position_embeddings", 1024}});
  json["rope_scaling"]["mrope_section"] = {4, 2, 2};
  Json& vision = json["vision_config"];
  vision.update({{"depth", 5}, {"num_heads", 4}});
  if (family == "qwen2_5_vl") {
    vision.update({{"hidden_size", 48}, {"intermediate_size", 100}, {"out_hidden_size", 64}});
  } else {
    vision.update({{"embed_dim", 48}, {"mlp_ratio", 4}, {"hidden_size", 64}});
  }
  return arch::parse_model_config(json, "test");
}

constexpr const char* kBlocks = R"(^visual\.(patch_embed|blocks)\.)";
constexpr const char* kMerger = R"(^visual\.merger\.)";

plan::Request vision_request(const VisionCase& c) {
  plan::Request request;
  request.model = vision_model(c.family);
  request.recompute.granularity = c.recompute;
  request.precision = c.precision;
  request.tokens = request.longest = kTokens;
  request.patches = request.frame_patches = kGrid.patches();
  request.widens = !device::multiplies_natively(at::kCPU, scalar_type_of(c.precision));
  request.packed_columns = ops::packed_columns(scalar_type_of(c.precision));
  const std::string trained = c.trained;
  if (trained == "decoder") request.freeze = {kBlocks, kMerger};
  if (trained == "merger") request.freeze = {kBlocks};
  if (!trained.starts_with("adapters")) return request;
  request.adapters = settings::new_adapters();
  if (trained == "adapters") weights::keep_out_of_tower(*request.adapters, request.model);
  return request;
}

data::StepBatches batches_with_picture(int64_t passes) {
  data::Sample sample;
  const int64_t count = kGrid.visual_tokens(2);
  for (int64_t i = 0; i < kTokens; ++i) {
    const bool is_visual = i >= 3 && i < 3 + count;
    sample.ids.push_back(is_visual ? 92 : static_cast<int32_t>(i * 7 % 90));
    sample.labels.push_back(is_visual ? -100 : sample.ids.back());
  }
  data::MediaSpan span;
  span.kind = text::MediaKind::kImage;
  span.grid = kGrid;
  span.begin = 3;
  span.count = count;
  span.row = "row";
  sample.media = {span};
  const auto source = std::make_shared<data::VectorSource>(std::vector<data::Sample>(4, sample));
  data::StepBatches batches = test::step_of(source, 1, passes, 0, 0);
  for (data::Batch& batch : batches.micro_batches)
    batch.pixels = std::make_shared<danlu::test::DrawnPixels>(batch.media);
  return batches;
}

TrainConfig vision_settings(const plan::Request& request) {
  TrainConfig settings;
  settings.schedule.shape.kind = settings::ScheduleKind::kConstant;
  settings.schedule.shape.lr = 1e-4;
  settings.keeping.sharding = request.sharding;
  return settings;
}

TrainState vision_state(const plan::Request& request, const arch::Stage& stage,
                        const parallel::Mesh& mesh) {
  auto model = std::make_unique<models::CausalLM>(
      request.model, stage, mesh, scalar_type_of(request.precision), at::Device(at::kCPU));
  models::initialize(*model, 7);
  if (!request.freeze.empty()) model->freeze(request.freeze);
  if (request.adapters) models::add_lora(*model, *request.adapters, 5);
  model->memory().set_recompute(request.recompute);
  return test::make_state(std::move(model), vision_settings(request));
}

/// Bytes above what lies there between steps, at most. Pixels are made by whoever loads them, and
/// are not among them.
int64_t counted_bytes(const plan::Request& request) {
  device::count_host_memory();
  TrainState state = vision_state(request, arch::whole_of(request.model), parallel::Mesh::single());
  const TrainConfig settings = vision_settings(request);
  const data::StepBatches batches = batches_with_picture(1);
  run_step(state, batches, settings, settings.schedule.shape);
  const int64_t before = device::host_memory();
  device::reset_peak_host_memory();
  run_step(state, batches, settings, settings.schedule.shape);
  return device::peak_host_memory() - before;
}

class PlanVisionMemory : public testing::TestWithParam<VisionCase> {};

TEST_P(PlanVisionMemory, OfAPassIsWhatIsAllocated) {
  const plan::Request request = vision_request(GetParam());
  const auto planned = static_cast<double>(plan::memory_by_stage(request)[0].memory.pass()),
             counted = static_cast<double>(counted_bytes(request)),
             pixels = static_cast<double>(kGrid.patches() * danlu::test::kTinyPatch * 4);
  EXPECT_LE(counted, 1.1 * planned) << planned << " bytes planned";
  EXPECT_GE(counted + pixels, 0.9 * planned) << counted << " bytes counted";
  if (std::getenv("DANLU_PRINT_TABLES")) {
    std::printf("%s: planned %.0f counted %.0f (%.3f), pixels %.0f\n",
                vision_case_name({GetParam(), 0}).c_str(), planned, counted, planned / counted,
                pixels);
  }
}

std::vector<VisionCase> vision_cases() {
  std::vector<VisionCase> all;
  for (const char* family : {"qwen2_vl", "qwen2_5_vl"}) {
    for (const char* trained : {"all", "decoder", "merger", "adapters", "adapters_all"}) {
      for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
        for (const char* recompute : {"none", "selective", "full"})
          all.push_back({family, trained, precision, recompute});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, PlanVisionMemory, testing::ValuesIn(vision_cases()),
                         vision_case_name);

struct VisionSent {
  double tensor = 0, pipeline = 0, data = 0;
};

/// By a rank of `stage` on average, in one step.
VisionSent counted_traffic(const plan::Request& request, int64_t stage) {
  VisionSent sum;
  std::mutex mutex;
  const auto ranks = static_cast<double>(request.mesh.stage_size());
  parallel::run_local_ranks(request.mesh.size(), [&](parallel::World& world) {
    const parallel::Mesh mesh(world, request.mesh);
    TrainState state = vision_state(
        request,
        arch::stages_of(request.model, request.pipeline)[static_cast<size_t>(mesh.stage())], mesh);
    const TrainConfig settings = vision_settings(request);
    const auto sent = [&mesh] {
      const auto of = [](const parallel::Group& group) {
        return static_cast<double>(group.traffic().bytes);
      };
      VisionSent bytes{of(mesh.tensor()), 0,
                       of(mesh.batch_ranks()) + of(mesh.background().batch_ranks())};
      for (const auto way : {parallel::Mesh::Way::kHidden, parallel::Mesh::Way::kGrad}) {
        if (mesh.stage() + 1 < mesh.shape().pipeline) bytes.pipeline += of(mesh.with_next(way));
        if (mesh.stage() > 0) bytes.pipeline += of(mesh.with_previous(way));
      }
      return bytes;
    };
    const VisionSent before = sent();
    run_step(state, batches_with_picture(request.num_micro_batches), settings,
             settings.schedule.shape);
    state.model->memory().settle();
    const VisionSent after = sent();
    if (mesh.stage() != stage) return;
    const std::lock_guard lock(mutex);
    sum.tensor += (after.tensor - before.tensor) / ranks;
    sum.pipeline += (after.pipeline - before.pipeline) / ranks;
    sum.data += (after.data - before.data) / ranks;
  });
  return sum;
}

struct VisionMeshCase {
  const char* name;
  settings::MeshShape mesh;
  std::vector<std::vector<int64_t>> blocks = {}, layers = {};
  settings::Sharding sharding = settings::Sharding::kNone;
};
void PrintTo(const VisionMeshCase& c, std::ostream* out) { *out << c.name; }

class PlanVisionTraffic : public testing::TestWithParam<VisionMeshCase> {};

TEST_P(PlanVisionTraffic, IsWhatIsSent) {
  const VisionMeshCase& of = GetParam();
  for (const char* trained : {"all", "decoder"}) {
    plan::Request request = vision_request({"qwen2_vl", trained});
    request.model = vision_model("qwen2_vl", /*vocabulary=*/2000);
    request.mesh = of.mesh;
    request.sharding = of.sharding;
    request.pipeline.stages = of.mesh.pipeline;
    request.pipeline.chunk_list = of.layers;
    request.pipeline.block_list = of.blocks;
    request.num_micro_batches = 2;
    const std::vector<arch::Stage> stages = arch::stages_of(request.model, request.pipeline);
    for (int64_t stage = 0; stage < of.mesh.pipeline; ++stage) {
      const plan::Traffic planned = plan::traffic_of(request, stages[static_cast<size_t>(stage)]);
      const VisionSent sent = counted_traffic(request, stage);
      SCOPED_TRACE(fmt::format("stage {}, {} trained", stage, trained));
      EXPECT_EQ(sent.pipeline, planned.pipeline);
      // Beside them numbers of each row (the loss of a divided vocabulary), gradients of norms, and
      // what fills small parameters up in units.
      EXPECT_NEAR(sent.tensor, planned.tensor, 0.02 * planned.tensor);
      EXPECT_NEAR(sent.data, planned.data, 0.05 * planned.data);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, PlanVisionTraffic,
    testing::Values(VisionMeshCase{"tp2", {.tensor = 2}},
                    VisionMeshCase{"tp2sp", {.tensor = 2, .sequence_parallel = true}},
                    VisionMeshCase{"zero3", {.data = 2}, {}, {}, settings::Sharding::kParameters},
                    VisionMeshCase{"pp2", {.pipeline = 2}, {{5, 0}}, {{1, 2}}},
                    VisionMeshCase{"pp2_tower_decoder", {.pipeline = 2}, {{5, 0}}, {{0, 3}}},
                    VisionMeshCase{"pp2_in_the_tower", {.pipeline = 2}, {{3, 2}}, {{0, 3}}},
                    VisionMeshCase{"pp2_zero3",
                                   {.data = 2, .pipeline = 2},
                                   {{3, 2}},
                                   {{0, 3}},
                                   settings::Sharding::kParameters}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace plan_vision_test
}  // namespace danlu::train
