// What the plan says of models with experts: the memory of a rank and the bytes that ranks send,
// against what is allocated and counted.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "device/counted_memory.h"
#include "device/select.h"
#include "models/adapters.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "ops/attention.h"
#include "parallel/comm/local.h"
#include "plan/traffic.h"
#include "support/slow.h"
#include "support/tiny_model.h"
#include "train/batch_input.h"
#include "train/precision.h"
#include "train/support.h"

namespace danlu::train {
namespace plan_experts_test {

using settings::Precision, settings::Sharding;

struct ExpertCase {
  const char* family;
  Precision precision = Precision::kF32;
  const char* recompute = "none";
  settings::MeshShape mesh = {};
  Sharding sharding = Sharding::kNone;
  double lora_dropout = -1;  ///< below 0: all is trained
  int64_t predictions = 0;   ///< layers that predict further ahead
};
void PrintTo(const ExpertCase& c, std::ostream* out) { *out << c.family << " " << c.recompute; }
std::string expert_case_name(const testing::TestParamInfo<ExpertCase>& info) {
  const ExpertCase& c = info.param;
  return fmt::format("{}_{}_{}_dp{}ep{}tp{}etp{}{}_zero{}{}", c.family,
                     settings::precision_name(c.precision), c.recompute, c.mesh.data, c.mesh.expert,
                     c.mesh.tensor, c.mesh.expert_tensor(), c.mesh.sequence_parallel ? "sp" : "",
                     static_cast<int>(c.sharding),
                     c.lora_dropout < 0   ? ""
                     : c.lora_dropout > 0 ? "_lora_dropout"
                                          : "_lora") +
         (c.predictions > 0 ? fmt::format("_mtp{}", c.predictions) : "") +
         (c.mesh.overlaps_experts ? "" : "_apart");
}

/// Routers' and latent vectors' sizes tell the families apart.
arch::ModelConfig expert_model(const std::string& family, int64_t hidden = 64, int64_t layers = 5) {
  Json json = danlu::test::tiny_config(family);
  json.update({{"hidden_size", hidden},
               {"intermediate_size", 160},
               {"num_attention_heads", 4},
               {"num_key_value_heads", 2},
               {"num_hidden_layers", layers},
               {"vocab_size", 96},
               {"max_position_embeddings", 1024}});
  if (family == "mixtral") json.update({{"num_local_experts", 8}, {"num_experts_per_tok", 2}});
  if (family.ends_with("_moe")) {
    json.update({{"num_experts", 16}, {"num_experts_per_tok", 4}, {"moe_intermediate_size", 64}});
  }
  if (family == "qwen2_moe") json["shared_expert_intermediate_size"] = 96;
  if (family == "qwen3_moe") json["head_dim"] = 16;
  if (family == "deepseek_v3") {
    json.update({{"num_key_value_heads", 4},
                 {"q_lora_rank", 48},
                 {"kv_lora_rank", 32},
                 {"qk_nope_head_dim", 16},
                 {"qk_rope_head_dim", 8},
                 {"v_head_dim", 16},
                 {"n_routed_experts", 8},
                 {"num_experts_per_tok", 3},
                 {"moe_intermediate_size", 64},
                 {"n_shared_experts", 2},
                 {"n_group", 4},
                 {"topk_group", 2},
                 {"first_k_dense_replace", 1}});
  }
  return arch::parse_model_config(json, "test");
}

plan::Request expert_request(const ExpertCase& c) {
  plan::Request request;
  request.model = expert_model(c.family);
  request.model.experts.prediction_layers = c.predictions;
  request.model.predicts_ahead = c.predictions > 0;
  request.mesh = c.mesh;
  request.pipeline.stages = c.mesh.pipeline;
  request.sharding = c.sharding;
  request.recompute.granularity = c.recompute;
  request.precision = c.precision;
  request.tokens = request.longest = 512;
  request.widens = !device::multiplies_natively(at::kCPU, scalar_type_of(c.precision));
  request.packed_columns = ops::packed_columns(scalar_type_of(c.precision));
  if (c.lora_dropout < 0) return request;
  request.adapters = settings::new_adapters();
  request.adapters->dropout = c.lora_dropout;
  weights::set_targets(*request.adapters, {"all-linear"});
  return request;
}

data::StepBatches expert_batches(const plan::Request& request) {
  data::Sample sample;
  for (int64_t i = 0; i < request.tokens; ++i)
    sample.ids.push_back(static_cast<int32_t>(i * 7 % 90));
  sample.labels = sample.ids;
  const auto source = std::make_shared<data::VectorSource>(std::vector<data::Sample>(4, sample));
  return test::step_of(source, 1, request.num_micro_batches, 0, 0);
}

TrainConfig expert_settings(const plan::Request& request) {
  TrainConfig settings;
  settings.schedule.shape.kind = settings::ScheduleKind::kConstant;
  settings.schedule.shape.lr = 1e-4;
  settings.keeping.sharding = request.sharding;
  settings.prediction.layers = request.model.num_predictions();
  return settings;
}

TrainState expert_state(const plan::Request& request, const parallel::Mesh& mesh) {
  auto model = std::make_unique<models::CausalLM>(
      request.model,
      arch::stages_of(request.model, request.pipeline)[static_cast<size_t>(mesh.stage())], mesh,
      scalar_type_of(request.precision), at::Device(at::kCPU));
  models::initialize(*model, 7);
  if (request.adapters) models::add_lora(*model, *request.adapters, 5);
  model->memory().set_recompute(request.recompute);
  return test::make_state(std::move(model), expert_settings(request));
}

/// Bytes of a rank on average: between steps, and the most above that in a step.
struct ExpertMemory {
  double kept = 0, pass = 0;
};

/// Ranks that are threads hold what they have sent until their group's next exchange.
void let_go_of_rows(const parallel::Mesh& mesh) {
  if (mesh.shape().expert_dealers > 1)
    mesh.neighbours(mesh.shape().expert_tensor()).all_gather(at::zeros({1, 1}), 0);
  const parallel::AsyncExchange* const beside = mesh.experts_beside();
  if (!beside) return;
  const std::vector<int64_t> none(static_cast<size_t>(mesh.shape().expert), 0);
  beside->end(beside->begin(at::zeros({0, 1}), none, none));
}

ExpertMemory counted_memory(const plan::Request& request) {
  device::count_host_memory();
  ExpertMemory memory;
  const auto ranks = static_cast<double>(request.mesh.size());
  const int64_t empty = device::host_memory();
  parallel::run_local_ranks(request.mesh.size(), [&](parallel::World& world) {
    const parallel::Mesh mesh(world, request.mesh);
    TrainState state = expert_state(request, mesh);
    const TrainConfig settings = expert_settings(request);
    const data::StepBatches batches = expert_batches(request);
    run_step(state, batches, settings, settings.schedule.shape);
    state.model->memory().settle();
    let_go_of_rows(mesh);
    mesh.all().barrier();
    const int64_t before = device::host_memory();
    if (world.rank() == 0) device::reset_peak_host_memory();
    mesh.all().barrier();
    // Ranks seldom need the most at one time.
    for (int step = 0; step < (request.mesh.size() > 1 ? 4 : 1); ++step)
      run_step(state, batches, settings, settings.schedule.shape);
    state.model->memory().settle();
    mesh.all().barrier();
    if (world.rank() == 0) {
      memory.kept = static_cast<double>(before - empty) / ranks;
      memory.pass = static_cast<double>(device::peak_host_memory() - before) / ranks;
    }
    mesh.all().barrier();
  });
  return memory;
}

class PlanExpertMemory : public testing::TestWithParam<ExpertCase> {};

TEST_P(PlanExpertMemory, OfARankIsWhatIsAllocated) {
  const plan::Request request = expert_request(GetParam());
  const plan::Memory memory = plan::memory_by_stage(request)[0].memory;
  const auto kept = static_cast<double>(memory.kept()), pass = static_cast<double>(memory.pass());
  const ExpertMemory counted = counted_memory(request);
  if (std::getenv("DANLU_PRINT_TABLES")) {
    std::printf("%s: kept %.0f / %.0f (%.3f), pass %.0f / %.0f (%.3f); working %.0f comm %.0f\n",
                expert_case_name({GetParam(), 0}).c_str(), kept, counted.kept, kept / counted.kept,
                pass, counted.pass, pass / counted.pass, static_cast<double>(memory.working),
                static_cast<double>(memory.communication));
  }
  EXPECT_NEAR(kept / counted.kept, 1, 0.05) << kept << " bytes planned between steps";
  // Ranks seldom need the most at one time.
  const double at_least = request.mesh.size() > 1 ? 0.75 : 0.9;
  // Ranks that are threads hold the rows that they have sent last.
  const int64_t row_bytes = request.model.hidden_size * request.element_bytes();
  const auto held = static_cast<double>(request.sent_rows() * row_bytes);
  EXPECT_LE(counted.pass, 1.1 * pass + (request.mesh.expert > 1 ? held : 0))
      << pass << " bytes planned of a pass";
  EXPECT_GE(counted.pass, at_least * pass) << pass << " bytes planned of a pass";
}

/// Tensor ranks have experts of their own, whole or cut by two; or cut all, and send the rows of
/// their part of the tokens.
std::vector<settings::MeshShape> meshes_that_deal_experts() {
  return {{.tensor = 2, .expert_dealers = 2},
          {.tensor = 2, .data = 2, .expert = 2, .expert_dealers = 2},
          {.tensor = 4, .expert_dealers = 2},
          {.tensor = 4, .data = 2, .sequence_parallel = true, .expert = 2, .expert_dealers = 2},
          {.tensor = 2, .data = 2, .sequence_parallel = true, .expert = 2}};
}

std::vector<ExpertCase> expert_memory_cases() {
  std::vector<ExpertCase> all;
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3"}) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      for (const char* recompute : {"none", "selective", "full"})
        all.push_back({family, precision, recompute});
      all.push_back({family, precision, "none", {.data = 2, .expert = 2}});
      all.push_back({.family = family, .precision = precision, .lora_dropout = 0});
    }
    all.push_back({family, Precision::kBF16, "full", {.data = 2, .expert = 2}});
    all.push_back({family, Precision::kF32, "selective", {.data = 2, .expert = 2}});
  }
  all.push_back({"qwen2_moe", Precision::kF32, "none", {.tensor = 2}});
  for (const char* family : {"qwen2_moe", "deepseek_v3"}) {
    all.push_back({family, Precision::kF32, "full", {.data = 2, .expert = 2}});
    // Gradients wait for the shared expert's where rows travel by themselves.
    all.push_back(
        {family, Precision::kF32, "full", {.data = 2, .expert = 2, .overlaps_experts = false}});
  }
  for (const settings::MeshShape& mesh : meshes_that_deal_experts()) {
    all.push_back({"qwen2_moe", Precision::kF32, "none", mesh});
    all.push_back({"qwen3_moe", Precision::kF32, "full", mesh});
    all.push_back({"qwen3_moe", Precision::kBF16, "none", mesh});
    ExpertCase adapted{"qwen3_moe", Precision::kF32, "none", mesh};
    adapted.lora_dropout = 0;
    all.push_back(adapted);
  }
  for (const char* recompute : {"none", "selective", "full"}) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      ExpertCase ahead{"deepseek_v3", precision, recompute};
      ahead.predictions = 1;
      all.push_back(ahead);
      ahead.predictions = 2;
      ahead.mesh = {.data = 2, .expert = 2};
      all.push_back(ahead);
    }
  }
  ExpertCase divided{"deepseek_v3", Precision::kF32, "none", {.tensor = 2}};
  divided.predictions = 2;
  all.push_back(divided);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Experts, PlanExpertMemory,
                         testing::ValuesIn(danlu::test::some_of(expert_memory_cases())),
                         expert_case_name);

/// The host's memory when threads of exchanges have let go of what they held.
int64_t settled_memory() {
  int64_t bytes = device::host_memory();
  for (int unchanged = 0; unchanged < 5;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const int64_t now = device::host_memory();
    unchanged = now == bytes ? unchanged + 1 : 0;
    bytes = now;
  }
  return bytes;
}

/// What layers keep when their forward is over, of a rank on average.
double kept_by_layers(const plan::Request& request) {
  device::count_host_memory();
  int64_t bytes = 0;
  parallel::run_local_ranks(request.mesh.size(), [&](parallel::World& world) {
    const parallel::Mesh mesh(world, request.mesh);
    models::CausalLM model(request.model, arch::whole_of(request.model), mesh,
                           scalar_type_of(request.precision), at::Device(at::kCPU));
    models::initialize(model, 7);
    model.memory().set_recompute(request.recompute);
    const data::Batch batch = expert_batches(request).micro_batches.front();
    mesh.all().barrier();
    if (world.rank() == 0) bytes = -settled_memory();
    mesh.all().barrier();
    models::ForwardInput input = training_input(model, batch, {.seed = 0});
    if (request.router_noise) {
      input.routers.emplace();
      input.routers->training.input_jitter = 0.1;
      input.routers->segment_weights = {1};
      input.routers->keys_N = at::arange(input.ids_N.size(0), at::kLong);
    }
    const at::Tensor hidden_nH = model.forward(input);
    mesh.all().barrier();
    if (world.rank() == 0) bytes += settled_memory();
    mesh.all().barrier();
  });
  return static_cast<double>(bytes) / static_cast<double>(request.mesh.size());
}

TEST(PlanExpertActivations, NoiseMakesRoutersATensorOfTheirOwn) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    for (const bool norm : {false, true}) {
      const auto of = [&](int64_t layers) {
        plan::Request request = expert_request({"qwen2_moe", precision});
        request.model = expert_model("qwen2_moe", 256, layers);
        request.recompute.norm = norm;
        request.router_noise = true;
        return request;
      };
      const auto planned = [&](int64_t layers) {
        return static_cast<double>(plan::memory_by_stage(of(layers))[0].memory.activations);
      };
      const double counted = kept_by_layers(of(5)) - kept_by_layers(of(2));
      EXPECT_NEAR((planned(5) - planned(2)) / counted, 1.0, 0.02)
          << settings::precision_name(precision) << (norm ? " norms again" : "");
    }
  }
}

void expect_kept_as_planned(const ExpertCase& c) {
  const auto of = [&](int64_t layers) {
    plan::Request request = expert_request(c);
    request.model = expert_model(c.family, 64, layers);
    return request;
  };
  const auto planned = [&](int64_t layers) {
    return static_cast<double>(plan::memory_by_stage(of(layers))[0].memory.activations);
  };
  const double counted = kept_by_layers(of(5)) - kept_by_layers(of(2));
  EXPECT_NEAR((planned(5) - planned(2)) / counted, 1.0, 0.02) << expert_case_name({c, 0});
}

TEST(PlanExpertActivations, OfDividedExpertsAreWhatLayersKeep) {
  for (const char* family : {"mixtral", "qwen2_moe", "deepseek_v3"}) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      for (const char* recompute : {"none", "selective", "full"})
        expect_kept_as_planned({family, precision, recompute, {.data = 2, .expert = 2}});
    }
  }
}

TEST(PlanExpertActivations, WhereTensorRanksHaveExpertsOfTheirOwnAreWhatLayersKeep) {
  for (const settings::MeshShape& mesh : meshes_that_deal_experts()) {
    for (const char* family : {"qwen2_moe", "qwen3_moe"}) {
      for (const Precision precision : {Precision::kF32, Precision::kBF16})
        expect_kept_as_planned({family, precision, "none", mesh});
    }
  }
}

/// Bytes of a rank on average in one step: rows to experts and back, and what copies exchange.
struct ExpertSent {
  double rows = 0, data = 0, tensor = 0;
};

ExpertSent counted_sent(const plan::Request& request) {
  ExpertSent sum;
  std::mutex mutex;
  const auto ranks = static_cast<double>(request.mesh.size());
  parallel::run_local_ranks(request.mesh.size(), [&](parallel::World& world) {
    const parallel::Mesh mesh(world, request.mesh);
    TrainState state = expert_state(request, mesh);
    const TrainConfig settings = expert_settings(request);
    const auto sent = [&mesh] {
      const auto of = [](const parallel::Group& group) {
        return static_cast<double>(group.traffic().bytes);
      };
      constexpr arch::Axes kOfExperts = {arch::Axis::kContext, arch::Axis::kData};
      ExpertSent bytes{of(mesh.cutting({arch::Axis::kExpert}))};
      if (mesh.experts_beside())
        bytes.rows += static_cast<double>(mesh.experts_beside()->traffic().bytes);
      for (const parallel::PassGroups* groups :
           std::vector<const parallel::PassGroups*>{&mesh, &mesh.background()}) {
        bytes.data += of(groups->batch_ranks());
        // Where nobody divides experts, their copies are all copies: the same group.
        if (mesh.shape().expert > 1) bytes.data += of(groups->holders(kOfExperts));
      }
      bytes.tensor = of(mesh.tensor());
      const int64_t cutters = mesh.shape().expert_tensor();
      if (mesh.shape().expert_dealers > 1 && cutters > 1)
        bytes.tensor += of(mesh.neighbours(cutters));
      return bytes;
    };
    const ExpertSent before = sent();
    run_step(state, expert_batches(request), settings, settings.schedule.shape);
    state.model->memory().settle();
    const ExpertSent after = sent();
    const std::lock_guard lock(mutex);
    sum.rows += (after.rows - before.rows) / ranks;
    sum.data += (after.data - before.data) / ranks;
    sum.tensor += (after.tensor - before.tensor) / ranks;
  });
  return sum;
}

class PlanExpertTraffic : public testing::TestWithParam<ExpertCase> {};

TEST_P(PlanExpertTraffic, IsWhatIsSent) {
  plan::Request request = expert_request(GetParam());
  request.num_micro_batches = 2;
  // The larger the parameters, the less of them is padding, which is as much where ranks cut them.
  const int64_t cuts = request.mesh.expert > 1 ? request.mesh.tensor : 1;
  request.model = expert_model(GetParam().family, 128 * cuts);
  request.model.experts.prediction_layers = GetParam().predictions;
  request.model.predicts_ahead = GetParam().predictions > 0;
  const plan::Traffic planned = plan::traffic_of(request, arch::whole_of(request.model));
  const ExpertSent counted = counted_sent(request);
  const auto agree = [](double sent, double told, const char* what) {
    EXPECT_NEAR(sent, told, 0.02 * told) << what;
  };
  agree(counted.rows, planned.expert, "rows");
  agree(counted.data, planned.data, "copies");
  agree(counted.tensor, planned.tensor, "sums of the tensor axis");
}

std::vector<ExpertCase> expert_traffic_cases() {
  const settings::MeshShape ep2{.data = 2, .expert = 2}, ep2dp2{.data = 4, .expert = 2},
      ep4{.data = 4, .expert = 4};
  std::vector<ExpertCase> all = {{"mixtral", Precision::kF32, "none", ep2},
                                 {"qwen2_moe", Precision::kBF16, "full", ep4},
                                 {"deepseek_v3", Precision::kF32, "selective", ep2},
                                 {"qwen3_moe", Precision::kF32, "none", ep2, Sharding::kNone, 0.1}};
  for (const Sharding sharding :
       {Sharding::kNone, Sharding::kState, Sharding::kGradients, Sharding::kParameters})
    all.push_back({"qwen3_moe", Precision::kF32, "none", ep2dp2, sharding});
  // Each of two neighbours sends the rows of half of the tokens, or of its own experts.
  const settings::MeshShape shared_rows{
      .tensor = 2, .data = 2, .sequence_parallel = true, .expert = 2},
      own_experts{.tensor = 2, .data = 2, .expert = 2, .expert_dealers = 2};
  for (const settings::MeshShape& mesh : {shared_rows, own_experts}) {
    all.push_back({"qwen2_moe", Precision::kF32, "none", mesh});
    all.push_back({"qwen3_moe", Precision::kF32, "full", mesh});
  }
  for (const bool cut_rows : {false, true}) {
    all.push_back({"qwen3_moe",
                   Precision::kF32,
                   "none",
                   {.tensor = 4,
                    .data = 2,
                    .sequence_parallel = cut_rows,
                    .expert = 2,
                    .expert_dealers = 2}});
  }
  const settings::MeshShape tp2{.tensor = 2}, tp2sp{.tensor = 2, .sequence_parallel = true};
  for (const settings::MeshShape& mesh : {ep2, tp2, tp2sp}) {
    for (const char* recompute : {"none", "full"}) {
      ExpertCase ahead{"deepseek_v3", Precision::kF32, recompute, mesh};
      ahead.predictions = 2;
      all.push_back(ahead);
    }
  }
  ExpertCase shared{"deepseek_v3", Precision::kF32, "none", {.data = 2}, Sharding::kParameters};
  shared.predictions = 1;
  all.push_back(shared);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Experts, PlanExpertTraffic, testing::ValuesIn(expert_traffic_cases()),
                         expert_case_name);

}  // namespace plan_experts_test
}  // namespace danlu::train
