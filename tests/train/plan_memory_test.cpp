// What danlu plan says a pass takes beside what is kept, against the bytes that are allocated.
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "device/counted_memory.h"
#include "device/select.h"
#include "models/adapters.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "ops/attention.h"
#include "parallel/comm/local.h"
#include "plan/memory.h"
#include "support/slow.h"
#include "support/tiny_model.h"
#include "train/batch_input.h"
#include "train/gated_residual.h"
#include "train/precision.h"
#include "train/support.h"

namespace danlu::train {
namespace {

using settings::Precision, settings::Recompute;

/// Activations of every family's kinds of layers, far larger than the weights.
struct Case {
  std::string family;
  int64_t hidden, ffn, heads, kv_heads, layers, vocab, tokens;
  Precision precision = Precision::kF32;
  Recompute recompute = Recompute::kNone;
  double lora_dropout = -1;  ///< below 0: all is trained
  std::vector<std::string> targets = {"all-linear"};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.family; }

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return fmt::format("{}_{}x{}_{}_{}{}", c.family, c.layers, c.hidden,
                     c.precision == Precision::kF32 ? "f32" : "bf16",
                     std::array{"none", "selective", "full"}[static_cast<size_t>(c.recompute)],
                     c.lora_dropout < 0     ? ""
                     : c.targets.size() > 1 ? "_lora_some"
                     : c.lora_dropout > 0   ? "_lora_dropout"
                                            : "_lora");
}

arch::ModelConfig model_of(const Case& c) {
  add_gated_residual();
  Json json = danlu::test::tiny_config(c.family);
  json.update({{"hidden_size", c.hidden},
               {"intermediate_size", c.ffn},
               {"num_attention_heads", c.heads},
               {"num_hidden_layers", c.layers},
               {"vocab_size", c.vocab},
               {"max_position_embeddings", c.tokens}});
  if (c.family != "baichuan") json["num_key_value_heads"] = c.kv_heads;
  if (json.contains("head_dim")) json["head_dim"] = c.hidden / c.heads;
  if (c.family == "deepseek_v3") {
    json.update({{"q_lora_rank", 48},
                 {"kv_lora_rank", 32},
                 {"qk_nope_head_dim", 16},
                 {"qk_rope_head_dim", 8},
                 {"v_head_dim", 16}});
  }
  return arch::parse_model_config(json, "test");
}

plan::Request request_of(const Case& c) {
  plan::Request request;
  request.model = model_of(c);
  request.recompute.granularity = settings::recompute_name(c.recompute);
  request.precision = c.precision;
  request.tokens = c.tokens;
  request.widens = !device::multiplies_natively(at::kCPU, scalar_type_of(c.precision));
  request.packed_columns = ops::packed_columns(scalar_type_of(c.precision));
  if (c.lora_dropout < 0) return request;
  request.adapters = settings::new_adapters();
  request.adapters->dropout = c.lora_dropout;
  weights::set_targets(*request.adapters, c.targets);
  return request;
}

/// Bytes above what lies there between steps, at most.
int64_t counted(const plan::Request& request) {
  device::count_host_memory();
  auto model =
      std::make_unique<models::CausalLM>(request.model, parallel::Mesh::single(),
                                         scalar_type_of(request.precision), at::Device(at::kCPU));
  models::initialize(*model, 7);
  if (request.adapters) models::add_lora(*model, *request.adapters, 5);
  model->memory().set_recompute(request.recompute);
  model->memory().set_activation_offload(request.offload);
  TrainConfig settings;
  settings.schedule.shape.kind = settings::ScheduleKind::kConstant;
  settings.schedule.shape.lr = 1e-4;
  TrainState state = test::make_state(std::move(model), settings);
  data::Sample sample;
  for (int64_t i = 0; i < request.tokens; ++i)
    sample.ids.push_back(static_cast<int32_t>(i * 7 % (request.model.vocab_size - 4)));
  sample.labels = sample.ids;
  const auto source = std::make_shared<data::VectorSource>(std::vector<data::Sample>(4, sample));
  const auto batches = test::step_of(source, 1, 1, 0, 0);
  run_step(state, batches, settings, settings.schedule.shape);
  const int64_t before = device::host_memory();
  device::reset_peak_host_memory();
  run_step(state, batches, settings, settings.schedule.shape);
  return device::peak_host_memory() - before;
}

class PlanMemory : public testing::TestWithParam<Case> {};

TEST_P(PlanMemory, OfAPassIsWhatIsAllocated) {
  const plan::Request request = request_of(GetParam());
  const auto planned = static_cast<double>(plan::memory_by_stage(request)[0].memory.pass());
  EXPECT_NEAR(planned / static_cast<double>(counted(request)), 1.0, 0.07)
      << planned << " bytes planned";
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const std::vector<Case> shapes = {
      {"qwen2", 64, 172, 4, 2, 6, 96, 1024},       {"llama", 128, 512, 8, 8, 4, 200, 512},
      {"qwen3", 96, 128, 6, 1, 8, 96, 1024},       {"mistral", 128, 128, 8, 1, 4, 96, 1024},
      {"mistral", 192, 192, 12, 2, 7, 96, 1024},   {"internlm2", 64, 256, 4, 4, 12, 4000, 768},
      {"baichuan", 96, 256, 2, 2, 6, 128, 1024},   {"gated_residual", 96, 256, 4, 4, 6, 128, 1024},
      {"deepseek_v3", 96, 192, 6, 6, 6, 96, 1024}, {"phi3", 64, 256, 4, 2, 6, 96, 1024},
      {"glm4", 96, 256, 4, 2, 6, 96, 1024},        {"bloom", 96, 384, 4, 4, 6, 96, 1024},
      {"gpt2", 96, 384, 4, 4, 6, 96, 1024}};
  for (const Case& shape : shapes) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      for (const auto recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        Case c = shape;
        c.precision = precision;
        c.recompute = recompute;
        // A layer of its own kind knows no selective one.
        if (shape.family == "gated_residual" && recompute == Recompute::kSelective) continue;
        all.push_back(c);
        if (recompute == Recompute::kSelective || shape.family != "qwen2") continue;
        c.lora_dropout = 0;
        all.push_back(c);
        c.lora_dropout = 0.1;
        all.push_back(c);
        c.targets = {"q_proj", "v_proj"};
        all.push_back(c);
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, PlanMemory, testing::ValuesIn(danlu::test::some_of(cases())),
                         name_of);

class PlanMemoryElsewhere : public PlanMemory {};

TEST_P(PlanMemoryElsewhere, OfAPassIsWhatIsAllocated) {
  static const danlu::test::TemporaryDirectory directory;
  plan::Request request = request_of(GetParam());
  const plan::Memory in_memory = plan::memory_by_stage(request)[0].memory;
  const int64_t layers = request.model.num_layers;
  const double layer = static_cast<double>(in_memory.activations) / static_cast<double>(layers);
  for (const int64_t away : {layers, layers / 2}) {
    request.offload = {
        .to = settings::OffloadTo::kFile, .directory = directory.path(), .num_layers = away};
    const int64_t pass = plan::memory_by_stage(request)[0].memory.pass();
    EXPECT_LT(pass, in_memory.pass());
    const auto planned = static_cast<double>(pass), bytes = static_cast<double>(counted(request));
    EXPECT_LE(bytes, 1.1 * planned) << away << ": " << bytes / planned;
    // The layer that comes back beside another's backward may come when most of that is done.
    EXPECT_GE(bytes, 0.93 * (planned - layer)) << away;
  }
}

std::vector<Case> cases_elsewhere() {
  std::vector<Case> some;
  for (const Case& c : cases()) {
    if (c.recompute != Recompute::kFull && (c.family == "qwen2" || c.family == "llama"))
      some.push_back(c);
  }
  return some;
}

INSTANTIATE_TEST_SUITE_P(Shapes, PlanMemoryElsewhere, testing::ValuesIn(cases_elsewhere()),
                         name_of);

/// What layers keep for backward when their forward is over, of a rank on average. All ranks'
/// graphs are there at once then, however far one is ahead of another on the way.
double kept_by_layers(const plan::Request& request) {
  device::count_host_memory();
  int64_t bytes = 0;
  parallel::run_local_ranks(request.mesh.size(), [&](parallel::World& world) {
    const parallel::Mesh mesh(world, request.mesh);
    models::CausalLM model(request.model, arch::whole_of(request.model), mesh,
                           scalar_type_of(request.precision), at::Device(at::kCPU));
    models::initialize(model, 7);
    model.memory().set_recompute(request.recompute);
    data::Sample sample;
    for (int64_t i = 0; i < request.tokens; ++i)
      sample.ids.push_back(static_cast<int32_t>(i * 7 % (request.model.vocab_size - 4)));
    sample.labels = sample.ids;
    const data::Batch batch = own_part(mesh, data::make_batch({sample}));
    mesh.all().barrier();
    if (world.rank() == 0) bytes = -device::host_memory();
    mesh.all().barrier();
    const at::Tensor hidden_nH = model.forward(training_input(model, batch, {.seed = 0}));
    mesh.all().barrier();
    if (world.rank() == 0) bytes += device::host_memory();
    mesh.all().barrier();
  });
  return static_cast<double>(bytes) / static_cast<double>(request.mesh.size());
}

// A key head goes to every rank that takes it: after the exchange there are more than the model
// has. Run again, attention is given what it was before.
TEST(PlanMemoryOfRanks, ThatShareAKeyHeadIsWhatLayersKeep) {
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    for (const auto recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      const auto of = [&](int64_t layers) {
        plan::Request request = request_of({.family = "llama",
                                            .hidden = 128,
                                            .ffn = 128,
                                            .heads = 8,
                                            .kv_heads = 1,
                                            .layers = layers,
                                            .vocab = 96,
                                            .tokens = 512,
                                            .precision = precision,
                                            .recompute = recompute});
        request.mesh.context = {.ulysses = 8};
        return request;
      };
      const auto planned = [&](int64_t layers) {
        return static_cast<double>(plan::memory_by_stage(of(layers))[0].memory.activations);
      };
      const double counted = kept_by_layers(of(5)) - kept_by_layers(of(1));
      EXPECT_NEAR((planned(5) - planned(1)) / counted, 1.0, 0.02)
          << settings::precision_name(precision) << " " << settings::recompute_name(recompute);
    }
  }
}

}  // namespace
}  // namespace danlu::train
