// Adapters that begin with a part of their base: against torch (goldens/pissa_losses.json), and on
// meshes the numbers of one rank.
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "train/golden_rows.h"
#include "train/mesh.h"
#include "train/mesh_cases.h"

namespace danlu::train {
namespace mesh_test {
namespace {

using parallel::Sharding;
using weights::AdapterStart;

/// B A of every adapter, fixed half and all, by its module.
std::map<std::string, at::Tensor> products_of(const std::map<std::string, at::Tensor>& parts) {
  std::map<std::string, at::Tensor> products;
  for (const auto& [name, a] : parts) {
    const size_t at = name.find(".lora_A.");
    if (at == std::string::npos) continue;
    const std::string module = name.substr(0, at);
    products[module] = parts.at(module + ".lora_B.weight").matmul(a);
  }
  return products;
}

TEST(PissaTraining, TenStepsEqualTorch) {
  DANLU_REQUIRES_SHARED();
  const auto folder = danlu::test::shared_dir() / "golden";
  const auto rows = weights::open_safetensors(folder / "train_llama/golden.safetensors");
  const Json goldens =
      read_json_file(std::string(DANLU_SOURCE_DIR) + "/tests/train/goldens/pissa_losses.json");
  for (const char* kind : {"pissa", "olora"}) {
    const TrainConfig config = test::golden_recipe(1e-3);
    auto model = models::load_model(folder / "llama", parallel::Mesh::single(), at::kFloat,
                                    at::Device(at::kCPU));
    weights::PeftConfig lora;
    lora.rank = 4;
    lora.alpha = 6;
    lora.start = AdapterStart::named(kind);
    weights::set_targets(lora, {"q_proj", "down_proj"});
    models::add_lora(*model, lora, 5);
    EXPECT_EQ(model->lora()->rank, 8);
    std::map<std::string, at::Tensor> fixed;
    for (const auto& p : model->adapter_parameters())
      parallel::for_each_fixed(p, p.tensor.detach(),
                               [&](const at::Tensor& part) { fixed[p.name()] = part.clone(); });
    TrainState state = test::make_state(std::move(model), config);
    const Json& golden = goldens.at(kind);
    for (int64_t step = 0; step < 10; ++step) {
      const StepResult result =
          run_step(state, test::step_of(test::golden_rows(*rows, step), 3, 1, 0), config,
                   config.schedule.shape);
      EXPECT_NEAR(result.loss, golden.at("losses")[static_cast<size_t>(step)].get<double>(), 1e-4)
          << kind << step;
      EXPECT_NEAR(result.grad_norm,
                  golden.at("grad_norms")[static_cast<size_t>(step)].get<double>(), 1e-3)
          << kind << step;
    }
    std::map<std::string, at::Tensor> parts;
    for (const auto& p : state.model->adapter_parameters()) {
      parts[p.name()] = p.tensor.detach();
      parallel::for_each_fixed(p, p.tensor.detach(), [&](const at::Tensor& part) {
        EXPECT_TRUE(at::equal(part, fixed.at(p.name()))) << p.name();
      });
    }
    const auto changes = products_of(parts);
    ASSERT_EQ(changes.size(), golden.at("changes").size());
    for (const auto& [module, change] : changes) {
      const std::string weight = module.substr(std::string("base_model.model.").size()) + ".weight";
      const double want = golden.at("changes").at(weight);
      EXPECT_NEAR(1.5 * change.norm().item<double>(), want, 2e-3 * want) << module;
    }
  }
}

Case start_case(const char* family, const char* start, const MeshShape& shape,
                Sharding sharding = Sharding::kNone) {
  Case c{family, family, Json::object()};
  c.tuning = Tuning::kLora;
  c.shape = shape;
  c.sharding = sharding;
  c.start = start;
  return c;
}

TEST(PissaTraining, AdaptersBeginAlikeOnAnyMesh) {
  const auto begun = [](const Case& c) {
    std::map<std::string, at::Tensor> parts;
    std::mutex mutex;
    on_ranks(c.shape, [&](const Mesh& mesh) {
      auto model = stage_of(c, mesh);
      models::keep(*model, config_of(c).keeping);
      models::add_lora(*model, config_of(c).lora, 5);
      const std::lock_guard lock(mutex);
      for (const auto& p : model->adapter_parameters())
        assemble(p, {0, p.tensor.numel()}, p.tensor.detach().flatten(), parts);
    });
    return parts;
  };
  const MeshShape tp4{.tensor = 4}, tp2dp2{.tensor = 2, .data = 2};
  const MeshShape dealt{.tensor = 2, .data = 2, .expert = 2, .expert_dealers = 2};
  for (const Case& c : {start_case("qwen2", "pissa", tp4),
                        start_case("qwen2", "olora", tp2dp2, Sharding::kParameters),
                        start_case("qwen2_moe", "pissa_niter_8", dealt)}) {
    const auto parts = begun(c), alone = begun(without_schemes(c));
    ASSERT_EQ(parts.size(), alone.size());
    for (const auto& [name, part] : parts) {
      const bool is_a = name.find("lora_A") != std::string::npos;
      const int64_t rank = part.size(is_a ? 0 : 1) / 2;
      const at::Tensor first = part.narrow(is_a ? 0 : 1, 0, rank),
                       last = part.narrow(is_a ? 0 : 1, rank, rank);
      EXPECT_TRUE(at::equal(first, is_a ? last : last.neg())) << name;
      EXPECT_GT(first.abs().max().item<double>(), 1e-3) << name;
    }
    // The half that is trained, and the fixed one: together they add nothing.
    const auto halves = [](const std::map<std::string, at::Tensor>& of) {
      std::map<std::string, at::Tensor> half;
      for (const auto& [name, part] : of) {
        const int64_t dim = name.find("lora_A") != std::string::npos ? 0 : 1;
        half[name] = part.narrow(dim, 0, part.size(dim) / 2);
      }
      return products_of(half);
    };
    const auto one = halves(alone), got = halves(parts);
    for (const auto& [module, product] : one) {
      EXPECT_LE((got.at(module) - product).abs().max().item<double>(), 1e-5) << module;
    }
  }
}

class PissaMesh : public testing::TestWithParam<Case> {};

TEST_P(PissaMesh, GivesTheNumbersOfOneRank) {
  const Case& c = GetParam();
  const Outcome one = train(without_schemes(c), {}, few_steps()),
                got = train(c, c.shape, few_steps());
  expect_numbers_of(one, got);
  for (const auto& [name, gradient] : got.gradients) {
    const int64_t dim = name.find("lora_A") != std::string::npos ? 0 : 1;
    const int64_t rank = gradient.size(dim) / 2;
    EXPECT_EQ(gradient.narrow(dim, rank, rank).abs().max().item<double>(), 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PissaMesh,
    testing::Values(start_case("qwen2", "pissa", {.tensor = 2, .data = 2}, Sharding::kState),
                    start_case("qwen2", "pissa", {.data = 2, .pipeline = 2}, Sharding::kGradients),
                    start_case("qwen2_moe", "pissa", {.data = 2, .expert = 2})),
    [](const auto& info) { return name_of(info); });

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
