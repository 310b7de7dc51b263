// tests/train/mesh.h: a small model trained on any mesh, whose ranks are threads.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <map>
#include <mutex>
#include <optional>

#include "base/file.h"
#include "base/rng.h"
#include "models/adapters.h"
#include "models/tensor_io.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "parallel/comm/local.h"
#include "support/pretend_device.h"
#include "support/temporary_directory.h"
#include "support/tiny_model.h"
#include "train/drawn_pixels.h"
#include "train/objectives/reference.h"
#include "train/step.h"
#include "train/support.h"

namespace danlu::train {
namespace mesh_test {

using parallel::Mesh;
using parallel::MeshShape;

enum class Tuning { kFull, kLora, kDora };

/// A model of one family, and how it is trained.
struct Case {
  const char* name;
  const char* family;
  Json changes;
  Tuning tuning = Tuning::kFull;
  MeshShape shape = {};
  parallel::Sharding sharding = parallel::Sharding::kNone;
  bool in_files = false;  ///< state and parameters
  models::Recompute recompute = models::Recompute::kNone;
  at::ScalarType dtype = at::kFloat;
  int64_t chunks = 1;  ///< of each stage
  bool zero_bubble = false;
  std::vector<int64_t> noops = {};
  double eps = 1e-6;   ///< at 1e-8, gradients that are rounding noise become whole steps
  int64_t layers = 0;  ///< 0: as many as `changes` or the family has
  at::ScalarType first_values = at::kFloat;  ///< weights begin as numbers of this type
  settings::RecomputeFlags by_layer = {};    ///< other than none: instead of `recompute`
  std::string by_layer_name = {};
  settings::ActivationOffload offload = {};     ///< its directory is named here
  at::Device (*device)(const Mesh&) = nullptr;  ///< a rank's; null: the CPU
  std::shared_ptr<const Objective> objective = language_modelling();
  bool adapts_tower = true;                                ///< LoRA, DoRA: where there is one
  std::shared_ptr<const data::SampleSource> samples = {};  ///< 64 of them; null: toys
  /// As arch::PipelineLayers's; empty: even.
  std::vector<std::vector<int64_t>> layer_lists = {}, block_lists = {};
  settings::RouterTraining routers = {};
  settings::PredictionTraining prediction = {};
  std::vector<std::string> modules_to_save = {};
  /// Instead of `objective`, of a frozen model of the same family with other weights.
  std::function<std::shared_ptr<const Objective>(std::shared_ptr<const FrozenModel>)>
      objective_beside = {};
  bool nf4 = false;                           ///< base weights of LoRA and DoRA
  std::optional<arch::ScoreHead> score = {};  ///< in place of the vocabulary's head
  double noise_alpha = 0;                     ///< of the noise on embeddings
  std::optional<settings::MuonConfig> muon = {};
  const char* start = "true";  ///< of adapters
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

inline std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  const char* tuning = c.tuning == Tuning::kFull   ? ""
                       : c.tuning == Tuning::kLora ? "_lora"
                                                   : "_dora";
  return fmt::format("{}{}{}_tp{}{}_dp{}{}_zero{}{}", c.name,
                     c.layers > 0 ? fmt::format("_{}layers", c.layers) : "", tuning, c.shape.tensor,
                     (c.shape.pipeline > 1 ? fmt::format("_pp{}", c.shape.pipeline) : "") +
                         (c.chunks > 1 ? fmt::format("_vpp{}", c.chunks) : "") +
                         (c.zero_bubble ? "_zb" : "") + (c.noops.empty() ? "" : "_noops"),
                     c.shape.data, c.shape.sequence_parallel ? "_sp" : "",
                     static_cast<int>(c.sharding), c.in_files ? "_files" : "") +
         (c.shape.context.is_alone() ? ""
                                     : fmt::format("_cp{}of{}by{}", c.shape.context.ulysses,
                                                   c.shape.context.ring, c.shape.context.window)) +
         (c.shape.sharers > 0 ? fmt::format("_of{}", c.shape.sharers) : "") +
         (c.recompute == models::Recompute::kNone        ? ""
          : c.recompute == models::Recompute::kSelective ? "_selective"
                                                         : "_recompute") +
         (c.dtype == at::kBFloat16 ? "_bf16"
          : c.dtype == at::kHalf   ? "_fp16"
                                   : "") +
         (c.eps == 1e-6 ? "" : "_eps8") + c.by_layer_name + (c.adapts_tower ? "" : "_decoder") +
         (c.nf4 ? "_nf4" : "");
}

inline TrainConfig config_of(const Case& c) {
  TrainConfig config;
  config.schedule.shape.kind = settings::ScheduleKind::kConstant;
  config.schedule.shape.lr = 2e-4;
  config.adamw.groups.weight_decay = 0.1;
  config.adamw.eps = c.eps;
  config.adamw.muon = c.muon;
  config.tuner = c.tuning == Tuning::kFull ? Tuner::kFull : Tuner::kLora;
  config.lora.rank = 3;
  config.lora.dropout = 0.1;
  config.lora.start = weights::AdapterStart::named(c.start);
  config.lora.dora = c.tuning == Tuning::kDora;
  if (!c.adapts_tower) config.lora.exclude_modules = {R"(visual\..*)"};
  config.lora.excludes_are_pattern = !c.adapts_tower;
  config.lora.modules_to_save = c.modules_to_save;
  config.keeping.sharding = c.sharding;
  config.routers = c.routers;
  config.prediction = c.prediction;
  config.noise_alpha = c.noise_alpha;
  if (c.chunks > 1) config.order = arch::PipelineOrder::kInterleaved;
  if (c.zero_bubble) config.order = arch::PipelineOrder::kZeroBubble;
  static const danlu::test::TemporaryDirectory directory;
  if (c.in_files) config.keeping.state_in = config.keeping.parameters_in = directory.path();
  return config;
}

inline void randomise(const std::vector<parallel::Parameter>& parameters, double deviation,
                      at::ScalarType values) {
  const at::NoGradGuard no_grad;
  for (const parallel::Parameter& p : parameters) {
    at::Tensor whole = models::normal_values(p.spec.shape, deviation, hash_bytes(p.name()));
    if (p.spec.shape.size() == 1 && !p.spec.is_bias) whole = whole.abs() + 0.7;
    at::Tensor(p.tensor).copy_(parallel::cut_out(whole, p.rects).to(values));
  }
}

/// Every parameter is random (B too: with B = 0 the gradient of A is zero), and the same on any
/// mesh. Adapters change weights by about half their size: where they change them by twice that,
/// one rank's own gradients differ by 8e-6 between kernels of OpenBLAS.
inline void randomise(models::CausalLM& model, at::ScalarType values) {
  randomise(model.parameters(), 0.1, values);
  randomise(model.adapter_parameters(), 0.05, values);
}

/// DANLU_TEST_DEVICE=pretend: ranks are on pretend devices, with the table of devices that ATen
/// computes on (train/other_device.cpp). Who they are compared with stays on the CPU.
inline bool are_on_pretend_devices() {
  static const bool are = [] {
    const char* const name = std::getenv("DANLU_TEST_DEVICE");
    return name && std::string(name) == "pretend";
  }();
  return are;
}
inline at::Device cpu_device(const Mesh&) { return at::kCPU; }
inline at::Device usual_device(const Mesh& mesh) {
  // Two ranks of one card would wait for each other in its one queue.
  if (!are_on_pretend_devices() || mesh.shape().size() > danlu::test::kPretendDevices)
    return at::kCPU;
  return danlu::test::pretend_device(static_cast<int>(mesh.rank() % danlu::test::kPretendDevices));
}

/// This rank's stage of the model, with weights as models::initialize makes them.
inline std::unique_ptr<models::CausalLM> stage_of(const Case& c, const Mesh& mesh) {
  Json json = danlu::test::tiny_config(c.family);
  for (const auto& [key, value] : c.changes.items()) {
    if (value.is_null()) {
      json.erase(key);
    } else {
      json[key] = value;
    }
  }
  if (c.layers > 0) json["num_hidden_layers"] = c.layers;
  arch::ModelConfig model_config = arch::family_of(json).parse(json);
  model_config.predicts_ahead = c.prediction.layers > 0;
  if (c.score) model_config = arch::with_score(model_config, *c.score);
  const int64_t virtual_stages = c.chunks > 1 && c.layer_lists.empty() ? c.chunks : 0;
  const auto stages = arch::stages_of(model_config, {.stages = mesh.shape().pipeline,
                                                     .virtual_stages = virtual_stages,
                                                     .noop_layers = c.noops,
                                                     .chunk_list = c.layer_lists,
                                                     .block_list = c.block_lists});
  auto model = std::make_unique<models::CausalLM>(
      model_config, stages[static_cast<size_t>(mesh.stage())], mesh, c.dtype,
      c.device ? c.device(mesh) : usual_device(mesh));
  if (c.nf4) {
    models::Quantisation quantisation;
    quantisation.make_nf4.emplace();
    model->freeze({"."});
    models::hold_in_nf4(*model, quantisation);
  }
  models::initialize(*model, 3);  // DoRA's magnitudes are lengths of rows
  return model;
}

/// A frozen model whose weights are three quarters of those that randomise() makes.
inline std::shared_ptr<const FrozenModel> frozen_beside(const Case& c, const Mesh& mesh) {
  auto model = stage_of(c, mesh);
  randomise(*model, c.first_values);
  {
    const at::NoGradGuard no_grad;
    for (const parallel::Parameter& p : model->parameters()) at::Tensor(p.tensor).mul_(0.75);
  }
  model->freeze({"."});
  models::keep(*model, config_of(c).keeping);
  return std::make_shared<FrozenModel>(std::move(model));
}

inline TrainState state_of(const Case& c, const Mesh& mesh,
                           const std::function<void(models::CausalLM&)>& change = {}) {
  auto model = stage_of(c, mesh);
  const TrainConfig config = config_of(c);
  if (c.tuning != Tuning::kFull) models::add_lora(*model, config.lora, 5);
  if (c.nf4) {
    randomise(model->adapter_parameters(), 0.05, c.first_values);
  } else {
    randomise(*model, c.first_values);
  }
  if (change) change(*model);
  if (c.by_layer == settings::RecomputeFlags{}) {
    model->memory().set_recompute(c.recompute);
  } else {
    model->memory().set_recompute(c.by_layer);
  }
  static const danlu::test::TemporaryDirectory directory;
  settings::ActivationOffload offload = c.offload;
  offload.directory = directory.path();
  model->memory().set_activation_offload(offload);
  TrainState state = test::make_state(std::move(model), config);
  state.objective = c.objective_beside ? c.objective_beside(frozen_beside(c, mesh)) : c.objective;
  if (c.dtype == at::kHalf)
    state.loss_scaler = optim::LossScaler(optim::LossScaleConfig{.initial_scale = 65536});
  return state;
}

/// What one rank trains without any scheme.
inline Case without_schemes(Case c) {
  c.shape = {};
  c.sharding = parallel::Sharding::kNone;
  c.in_files = false;
  c.chunks = 1;
  c.zero_bubble = false;
  c.noops = {};
  c.layer_lists = c.block_lists = {};
  c.recompute = models::Recompute::kNone;
  c.by_layer = {};
  c.by_layer_name = {};
  c.offload = {};
  c.device = &cpu_device;
  return c;
}

constexpr int64_t kGlobalBatch = 8;

/// How a rank's samples of a step are cut into passes.
struct Cut {
  int64_t samples = 2;
  int64_t max_tokens = 40;  ///< as many samples as fit: ranks have different numbers of passes
};

/// Samples of unequal numbers of tokens and targets, several to a pass.
inline data::StepBatches batches_of(const Mesh& mesh, int64_t step, const Cut& cut = {},
                                    const std::shared_ptr<const data::SampleSource>& samples = {}) {
  static const auto toys = std::make_shared<data::VectorSource>(test::toy_samples(64));
  const std::shared_ptr<const data::SampleSource> source = samples ? samples : toys;
  data::BatchStreamOptions options;
  options.dp_size = mesh.shape().data;
  options.dp_rank = mesh.shape().data_rank(mesh.rank());
  options.micro_batch_size = cut.samples;
  options.accumulation_steps = kGlobalBatch / cut.samples / options.dp_size;
  options.max_tokens_per_micro_batch = cut.max_tokens;
  options.prefetch_steps = 0;
  const data::BatchStream stream(source, [](int64_t i) { return i % 64; }, options, 0);
  data::StepBatches batches = stream.step_at(step * kGlobalBatch);
  for (data::Batch& batch : batches.micro_batches) {
    if (!batch.media.empty())
      batch.pixels = std::make_shared<danlu::test::DrawnPixels>(batch.media, /*is_for_once=*/true);
  }
  return batches;
}

/// rank(mesh) on each rank of a mesh, which are threads; on this one where there is one.
inline void on_ranks(const MeshShape& shape, const std::function<void(const Mesh&)>& rank) {
  if (shape.size() == 1) return rank(Mesh::single());
  parallel::run_local_ranks(shape.size(), [&](parallel::World& world) {
    const Mesh mesh(world, shape);
    rank(mesh);
  });
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<std::map<std::string, double>> metrics;
  std::map<std::string, at::Tensor> gradients;  ///< of the first step, before clipping
  std::map<std::string, at::Tensor> weights;    ///< in the end
};

/// Puts what this rank holds of a parameter, flat values of `held`, into a tensor of the whole
/// shape.
inline void assemble(const parallel::Parameter& p, const parallel::Range& held,
                     const at::Tensor& values, std::map<std::string, at::Tensor>& wholes) {
  at::Tensor& whole =
      wholes.try_emplace(p.name(), at::zeros(p.spec.shape, values.options())).first->second;
  int64_t at = 0;
  for (const auto& [rect, holders] : parallel::held_rects(p, held)) {
    at::Tensor place =
        (whole.dim() > 2 ? whole.view({whole.size(0), -1}) : whole).narrow(0, rect.row, rect.rows);
    if (place.dim() == 2) place = place.narrow(1, rect.col, rect.cols);
    place.copy_(values.narrow(0, at, rect.rows * rect.cols).view(place.sizes()));
    at += rect.rows * rect.cols;
  }
}

/// The same of every trained parameter, from flat values of units' shares.
inline void assemble_units(const parallel::ParameterStore& store,
                           const std::function<at::Tensor(size_t unit)>& share_of,
                           std::map<std::string, at::Tensor>& wholes) {
  for (size_t u = 0; u < store.units().size(); ++u) {
    const parallel::Unit& unit = store.units()[u];
    for (size_t i = 0; unit.trainable && i < unit.parameters.size(); ++i) {
      const parallel::Range part = unit.place_in_share(i);
      assemble(*unit.parameters[i], unit.held(i), share_of(u).narrow(0, part.begin, part.size()),
               wholes);
    }
  }
}

inline Outcome train(const Case& c, const MeshShape& shape, int64_t steps, const Cut& cut = {}) {
  Outcome outcome;
  std::mutex mutex;
  const auto rank = [&](const Mesh& mesh) {
    TrainState state = state_of(c, mesh);
    const TrainConfig config = config_of(c);
    for (int64_t step = 0; step < steps; ++step) {
      const StepResult result =
          run_step(state, batches_of(mesh, step, cut, c.samples), config, config.schedule.shape);
      EXPECT_FALSE(result.skipped);
      const std::lock_guard lock(mutex);
      const at::NoGradGuard no_grad;
      const parallel::ParameterStore& store = state.gradients->store();
      if (step == 0) {
        assemble_units(
            store, [&](size_t u) { return state.gradients->share(u).cpu() / result.loss_scale; },
            outcome.gradients);
      }
      if (step + 1 == steps)
        assemble_units(
            store, [&](size_t u) { return store.units()[u].shard.cpu(); }, outcome.weights);
      if (outcome.losses.size() == static_cast<size_t>(step)) {
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
        outcome.metrics.push_back(result.metrics);
      }
      EXPECT_EQ(outcome.losses[static_cast<size_t>(step)], result.loss) << "ranks disagree";
      EXPECT_EQ(outcome.norms[static_cast<size_t>(step)], result.grad_norm) << "ranks disagree";
    }
  };
  MeshShape places = shape;
  places.ring = c.chunks > 1;
  on_ranks(places, rank);
  return outcome;
}

/// That a mesh came to one rank's losses, norms and first gradients, none of which is 0.
inline void expect_numbers_of(const Outcome& one, const Outcome& got) {
  constexpr double kTolerance = 1e-5;
  ASSERT_EQ(got.gradients.size(), one.gradients.size());
  for (const auto& [name, gradient] : one.gradients) {
    const double largest = gradient.abs().max().item<double>();
    EXPECT_GT(largest, 0) << name;
    const double far = (got.gradients.at(name) - gradient).abs().max().item<double>();
    EXPECT_LE(far / largest, kTolerance) << name;
  }
  ASSERT_EQ(got.losses.size(), one.losses.size());
  for (size_t step = 0; step < one.losses.size(); ++step) {
    EXPECT_NEAR(got.losses[step], one.losses[step], kTolerance * one.losses[step]);
    EXPECT_NEAR(got.norms[step], one.norms[step], kTolerance * one.norms[step]);
  }
}

/// The largest relative deviations of a mesh from one rank.
struct Deviation {
  double loss = 0, norm = 0, gradient = 0;
};

/// DANLU_MATRIX=FILE: a row for each case as it ends; those that it has are not run again.
class Table {
 public:
  explicit Table(const std::string& name) : name_(name) {
    const char* file = std::getenv("DANLU_MATRIX");
    if (file) file_ = file;
  }
  bool has_row() const {
    std::ifstream rows(file_);
    for (std::string row; !file_.empty() && std::getline(rows, row);) {
      if (row.starts_with("| " + name_ + " |")) return true;
    }
    return false;
  }
  void add(std::initializer_list<double> numbers) const {
    if (file_.empty()) return;
    std::string row = "| " + name_ + " |";
    for (const double number : numbers) row += fmt::format(" {:.1e} |", number);
    std::ofstream(file_, std::ios::app) << row + "\n";
  }

 private:
  std::string name_, file_;
};

}  // namespace mesh_test
}  // namespace danlu::train
