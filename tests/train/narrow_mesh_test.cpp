// bf16 and fp16 on meshes: as exact as one rank, and an overflow anywhere is everybody's.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "support/cpu_table.h"
#include "support/slow.h"
#include "train/mesh.h"
#include "train/mesh_cases.h"

namespace danlu::train {
namespace mesh_test {

/// The largest relative deviations of one run from another; `gradient`: of matrices, whose sums no
/// rounding to 16 bits comes before, in root mean square (which element of thousands is rounded
/// worst is chance).
Deviation between(const Outcome& is, const Outcome& should) {
  Deviation largest;
  const auto far = [](double a, double b) { return std::fabs(a - b) / b; };
  for (size_t step = 0; step < should.losses.size(); ++step) {
    largest.loss = std::max(largest.loss, far(is.losses[step], should.losses[step]));
    largest.norm = std::max(largest.norm, far(is.norms[step], should.norms[step]));
  }
  for (const auto& [name, gradient] : should.gradients) {
    if (gradient.dim() < 2) continue;
    const double apart = (is.gradients.at(name) - gradient).norm().item<double>();
    largest.gradient = std::max(largest.gradient, apart / gradient.norm().item<double>());
  }
  return largest;
}

Deviation larger(const Deviation& a, const Deviation& b) {
  return {std::max(a.loss, b.loss), std::max(a.norm, b.norm), std::max(a.gradient, b.gradient)};
}

constexpr int64_t kNarrowSteps = 20;

/// What rounding to 16 bits does to one rank.
struct Yardstick {
  Outcome alone;       ///< cut as on meshes
  Outcome f32;         ///< the same in f32, from the same weights
  Deviation cuts;      ///< of cuts of the same samples into passes from each other
  Deviation from_f32;  ///< of any of these cuts from f32
};

const Yardstick& yardstick_of(const Case& on_mesh) {
  const Case c = without_schemes(on_mesh);
  static std::map<std::string, Yardstick> known;
  const std::string key = name_of({c, 0});
  if (known.count(key)) return known.at(key);
  Yardstick& yardstick = known[key];
  yardstick.alone = train(c, {}, kNarrowSteps);
  Case wide = c;
  wide.first_values = c.dtype;
  wide.dtype = at::kFloat;
  yardstick.f32 = train(wide, {}, kNarrowSteps);
  std::vector<Outcome> cuts = {yardstick.alone};
  for (const int64_t samples : {1, 2, 4, 8})
    cuts.push_back(train(c, {}, kNarrowSteps, {samples, 0}));
  for (const Outcome& a : cuts) {
    yardstick.from_f32 = larger(yardstick.from_f32, between(a, yardstick.f32));
    for (const Outcome& b : cuts) yardstick.cuts = larger(yardstick.cuts, between(a, b));
  }
  return yardstick;
}

class NarrowMeshOf : public testing::TestWithParam<Case> {};

/// On the data axis ranks compute what one rank's passes do: the mesh may be as far from one rank
/// as one rank's own cuts into passes are from each other. On the tensor and the context axis a
/// rank rounds its part of an output before the sum, as no cut does: the mesh may be as far from
/// f32 as one rank is.
TEST_P(NarrowMeshOf, IsAsExactAsOneRank) {
  const Case& c = GetParam();
  const Table table(name_of({c, 0}));
  if (table.has_row()) return;
  const Yardstick& yardstick = yardstick_of(c);
  const Outcome got = train(c, c.shape, kNarrowSteps);
  const Deviation apart = between(got, yardstick.alone), from_f32 = between(got, yardstick.f32);
  if (c.dtype != at::kFloat && c.eps == 1e-6) {  // the others are recorded
    const bool is_divided = c.shape.tensor > 1 || !c.shape.context.is_alone();
    const Deviation& is = is_divided ? from_f32 : apart;
    const Deviation& limit = is_divided ? yardstick.from_f32 : yardstick.cuts;
    EXPECT_LE(is.loss, 1.5 * limit.loss);
    EXPECT_LE(is.norm, 1.5 * limit.norm);
    // A cut may change which way a 16-bit number is rounded, of fp16 here, not of bf16; sums of 16
    // bits would be 1e-3 away.
    EXPECT_LE(is.gradient, std::max(1e-5, 1.5 * limit.gradient));
  }
  if (!HasFailure()) {
    table.add({yardstick.cuts.loss, apart.loss, yardstick.from_f32.loss, from_f32.loss,
               yardstick.cuts.norm, apart.norm, yardstick.from_f32.norm, from_f32.norm,
               yardstick.cuts.gradient, apart.gradient, yardstick.from_f32.gradient,
               from_f32.gradient});
  }
}

std::vector<Case> narrow_cases() {
  using parallel::Sharding;
  const MeshShape dp2{.data = 2}, dp4{.data = 4}, tp2{.tensor = 2}, both{.tensor = 2, .data = 2};
  const MeshShape sp2{.tensor = 2, .sequence_parallel = true}, pp2{.pipeline = 2};
  std::vector<Case> list;
  std::vector<std::pair<at::ScalarType, double>> kinds = {{at::kBFloat16, 1e-6}, {at::kHalf, 1e-6}};
  if (std::getenv("DANLU_MATRIX")) {
    kinds.insert(
        kinds.end(),
        {{at::kFloat, 1e-6}, {at::kFloat, 1e-8}, {at::kBFloat16, 1e-8}, {at::kHalf, 1e-8}});
  }
  for (const auto& [dtype, eps] : kinds) {
    for (const Tuning tuning : {Tuning::kFull, Tuning::kLora}) {
      for (const auto& [shape, sharding] : {std::pair{dp2, Sharding::kNone},
                                            {dp4, Sharding::kNone},
                                            {tp2, Sharding::kNone},
                                            {sp2, Sharding::kNone},
                                            {dp2, Sharding::kParameters},
                                            {pp2, Sharding::kNone},
                                            {both, Sharding::kGradients}}) {
        Case c{"qwen2", "qwen2", Json::object(), tuning, shape, sharding};
        c.dtype = dtype;
        c.eps = eps;
        list.push_back(c);
      }
    }
    Case tied{"llama_tied",  "llama", {{"tie_word_embeddings", true}},
              Tuning::kFull, dp2,     Sharding::kParameters};
    tied.dtype = dtype;
    tied.eps = eps;
    list.push_back(tied);
  }
  if (danlu::test::is_slow()) {
    for (const Case& c : narrow_covering_cases()) list.push_back(c);
  }
  return list;
}
INSTANTIATE_TEST_SUITE_P(Narrow, NarrowMeshOf, testing::ValuesIn(narrow_cases()), name_of);

/// Token ids that only rank `rank` of two sees in the first step.
std::vector<int64_t> only_of(int64_t rank) {
  std::vector<int64_t> ids[2];
  parallel::run_local_ranks(2, [&](parallel::World& world) {
    const Mesh mesh(world, {.data = 2});
    for (const data::Batch& batch : batches_of(mesh, 0).micro_batches)
      ids[mesh.rank()].insert(ids[mesh.rank()].end(), batch.ids.begin(), batch.ids.end());
  });
  std::vector<int64_t> alone;
  for (const int64_t id : ids[rank]) {
    if (std::find(ids[1 - rank].begin(), ids[1 - rank].end(), id) == ids[1 - rank].end())
      alone.push_back(id);
  }
  return alone;
}

TEST(Mesh, AnOverflowOnOneRankSkipsTheStepOnAll) {
  const std::vector<int64_t> ids = only_of(1);
  ASSERT_FALSE(ids.empty());
  for (const auto sharding : {parallel::Sharding::kNone, parallel::Sharding::kState,
                              parallel::Sharding::kGradients, parallel::Sharding::kParameters}) {
    Case c{"qwen2", "qwen2", Json::object(), Tuning::kFull, {.data = 2}, sharding};
    c.dtype = at::kHalf;
    std::mutex mutex;
    std::vector<double> scales;
    parallel::run_local_ranks(2, [&](parallel::World& world) {
      const Mesh mesh(world, c.shape);
      TrainState state = state_of(c, mesh, [&](models::CausalLM& model) {
        const at::NoGradGuard no_grad;
        for (const parallel::Parameter& p : model.parameters()) {
          if (p.spec.role == arch::Role::kEmbedding)
            at::Tensor(p.tensor)[ids.front()].fill_(HUGE_VAL);
        }
      });
      const TrainConfig config = config_of(c);
      for (int64_t step = 0; step < 2; ++step) {
        const StepResult result =
            run_step(state, batches_of(mesh, 0), config, config.schedule.shape);
        EXPECT_TRUE(result.skipped);
      }
      EXPECT_EQ(state.optimizer->updates(), 0);
      const std::lock_guard lock(mutex);
      scales.push_back(state.loss_scaler.scale());
    });
    EXPECT_EQ(scales, (std::vector<double>{32768, 32768}));  // hysteresis 2: halved once
  }
}

/// While one lives, `then` is called whenever a backward comes to the norm that has `weight`.
class AtNorm {
 public:
  AtNorm(const at::Tensor& weight, std::function<void()> then)
      : weight_(weight), then_(std::move(then)) {
    const std::lock_guard lock(mutex());
    all().push_back(this);
  }
  ~AtNorm() {
    const std::lock_guard lock(mutex());
    std::erase(all(), this);
  }
  AtNorm(const AtNorm&) = delete;
  AtNorm& operator=(const AtNorm&) = delete;

  /// The kernel of a table that looks for them.
  static ops::NormGrads backward(const at::Tensor& x, const at::Tensor& weight_D,
                                 const at::Tensor& rstd, const at::Tensor& dy, bool x_grad,
                                 bool weight_grad) {
    {
      const std::lock_guard lock(mutex());
      for (const AtNorm* each : all()) {
        if (each->weight_.data_ptr() == weight_D.data_ptr()) each->then_();
      }
    }
    return ops::cpu::backend().rms_norm_backward(x, weight_D, rstd, dy, x_grad, weight_grad);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::vector<AtNorm*>& all() {
    static std::vector<AtNorm*> list;
    return list;
  }
  at::Tensor weight_;
  std::function<void()> then_;
};

TEST(Mesh, AGradientThatOverflowsOnOneRankIsEverybodys) {
  ops::Backend table = ops::cpu::backend();
  table.rms_norm_backward = &AtNorm::backward;
  const danlu::test::CpuTable plants(table);
  using parallel::Sharding;
  const MeshShape dp2{.data = 2}, tp2{.tensor = 2}, both{.tensor = 2, .data = 2};
  const MeshShape sp2{.tensor = 2, .sequence_parallel = true}, pp2{.pipeline = 2};
  const MeshShape pp2dp2{.data = 2, .pipeline = 2};
  for (const auto& [shape, sharding] : {std::pair{dp2, Sharding::kNone},
                                        {dp2, Sharding::kParameters},
                                        {tp2, Sharding::kNone},
                                        {sp2, Sharding::kNone},
                                        {pp2, Sharding::kNone},
                                        {pp2dp2, Sharding::kState},
                                        {both, Sharding::kNone},
                                        {both, Sharding::kState},
                                        {both, Sharding::kGradients},
                                        {both, Sharding::kParameters}}) {
    Case c{"qwen2", "qwen2", Json::object(), Tuning::kFull, shape, sharding};
    c.dtype = at::kHalf;
    for (int64_t bad = 0; bad < shape.size(); ++bad) {
      SCOPED_TRACE(name_of({c, 0}) + " rank " + std::to_string(bad));
      std::atomic<int64_t> planted = 0;
      parallel::run_local_ranks(shape.size(), [&](parallel::World& world) {
        const Mesh mesh(world, shape);
        bool overflows = false;
        TrainState state = state_of(c, mesh);
        const auto all = state.model->parameters();
        const std::string layer =
            fmt::format("model.layers.{}.", mesh.stage() + 1 == shape.pipeline ? 1 : 0);
        const auto of = [&](const std::string& name) -> const parallel::Parameter& {
          return *std::find_if(all.begin(), all.end(),
                               [&](const auto& p) { return p.name() == layer + name; });
        };
        // The gradient is of the rank's own heads: no other rank of the tensor axis holds it.
        const auto main_grad = of("self_attn.o_proj.weight").main_grad;
        // Called when the backward comes to the layer's beginning.
        const AtNorm plant(of("input_layernorm.weight").tensor, [&] {
          if (overflows) main_grad->sum.fill_(HUGE_VAL);
          planted += overflows;
        });
        const TrainConfig config = config_of(c);
        struct Try {
          bool overflows, repeats;
          int64_t step;
          double scale;  // afterwards
        };
        // A search halves at each; behind it a step is spent, and hysteresis 2 forgives one.
        for (const auto& [is_bad, repeats, step, scale] :
             {Try{true, true, 0, 32768}, Try{true, true, 0, 16384}, Try{true, true, 0, 8192},
              Try{false, false, 1, 8192}, Try{true, false, 2, 8192}, Try{true, false, 3, 4096}}) {
          overflows = is_bad && mesh.rank() == bad;
          const StepResult result =
              run_step(state, batches_of(mesh, state.step), config, config.schedule.shape);
          EXPECT_EQ(result.skipped, is_bad);
          EXPECT_EQ(result.repeats, repeats);
          EXPECT_EQ(state.step, step);
          EXPECT_EQ(state.loss_scaler.scale(), scale);
        }
        EXPECT_EQ(state.optimizer->updates(), 1);
        EXPECT_EQ(state.skipped_steps, 2);
      });
      EXPECT_GE(planted, 5);
    }
  }
}

}  // namespace mesh_test
}  // namespace danlu::train
