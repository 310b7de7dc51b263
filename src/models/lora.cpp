// Adapters on a CausalLM: choosing their places, making and naming them.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>

#include "arch/turned_matrices.h"
#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "device/dtype.h"
#include "device/late_memory.h"
#include "models/adapter_start.h"
#include "models/add_adapters.h"
#include "weights/lora/adapter_places.h"

namespace danlu::models {
namespace {

using weights::AdapterPart;
using weights::PeftConfig;

/// Merging files needs no model that computes with the adapters, which are finished.
std::string how_to_merge() {
  return tr("danlu convert MODEL DIR --to hf --adapters ADAPTER merges it into the model");
}

void check(const PeftConfig& peft, const arch::ModelConfig& config, bool from_file) {
  const auto refuse = [](const std::string& text, const std::string& hint = "") {
    throw UsageError(tr("[lora] {}", text), hint);
  };
  const std::string hint = from_file ? how_to_merge() : "";
  if (peft.rank <= 0) refuse(tr("rank must be positive, got {}", peft.rank));
  if (!(peft.dropout >= 0 && peft.dropout < 1))
    refuse(tr("dropout must be in [0, 1), got {}", peft.dropout));
  for (const auto& [pattern, rank] : peft.rank_pattern) {
    if (rank <= 0) refuse(tr("rank_pattern '{}' must be positive, got {}", pattern, rank));
  }
  if (peft.target_modules.empty()) refuse("no target modules are named");
  if (peft.bias != "none")
    refuse(tr("bias = \"{}\" is not supported, only \"none\"", peft.bias), hint);
  if (peft.fan_in_fan_out && !arch::turns_matrices(config))
    refuse("fan_in_fan_out is for transposed (Conv1D) layers; this model has none", hint);
}

std::string joined_last_names(const std::vector<std::string>& modules) {
  std::set<std::string> names;
  for (const std::string& module : modules) names.insert(arch::last_name(module));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The linear layers of this stage that `peft` chooses. Errors: UsageError for a target that
/// chooses none in the model (lenient: only if no target chooses any).
std::vector<layers::Linear*> targets_of(const PeftConfig& peft, const arch::ModelConfig& config,
                                        Network& network, bool lenient) {
  const std::vector<std::string> idle = weights::idle_targets(peft, config);
  if (!idle.empty() && (!lenient || idle.size() == peft.target_modules.size())) {
    throw UsageError(tr("[lora] target '{}' matches no linear layer; there are: {}", idle.front(),
                        joined_last_names(weights::linear_modules(config))),
                     tr("all-linear chooses every one of them"));
  }
  const std::vector<std::string> modules = weights::chosen_modules(peft, config);
  if (modules.empty())
    throw UsageError(tr("[lora] targets, exclusions and layers leave no module to adapt"));
  const std::set<std::string> is_chosen(modules.begin(), modules.end());
  std::vector<layers::Linear*> chosen;
  for (layers::Linear* linear : network.adaptable()) {
    if (is_chosen.count(linear->path)) chosen.push_back(linear);
  }
  return chosen;
}

/// A uniform in +-1/sqrt(in): kaiming_uniform with a = sqrt(5), as torch's Linear and PEFT start.
at::Tensor uniform_a(int64_t rank, int64_t in, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  return at::empty({rank, in}, at::TensorOptions(at::kFloat)).uniform_(-bound, bound, generator);
}

/// A normal with deviation 1 / rank.
at::Tensor gaussian_a(int64_t rank, int64_t in, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::empty({rank, in}, at::TensorOptions(at::kFloat))
      .normal_(0, 1.0 / static_cast<double>(rank), generator);
}

/// Cut as the weight is: A shares its columns, B and the magnitude its rows.
layers::LoraAdapter make_adapter(const layers::Linear& linear, const PeftConfig& peft,
                                 uint64_t seed, const arch::ModelConfig& config,
                                 const parallel::Mesh& mesh) {
  const at::NoGradGuard no_grad;
  const Parameter& weight = linear.weight;
  const int64_t rank = peft.rank_of(linear.path);
  const bool is_expert = weight.spec.expert >= 0 && mesh.shape().expert_dealers > 1;
  const bool is_whole_expert = is_expert && mesh.shape().expert_tensor() == 1;
  const bool cuts_columns = weight.spec.cut == arch::Cut::kColumns && !is_whole_expert;
  const auto part = [&](AdapterPart which, bool cut) {
    arch::ParamSpec spec = weight.spec;
    spec.name = weights::adapter_tensor_name(linear.path, which);
    spec.shape = weights::adapter_shape(weight.spec, which, rank);
    spec.tied_to.clear();
    if (!cut) spec.cut = arch::Cut::kCopiedInside;
    Parameter described =
        describe(config, mesh, spec, weight.tensor.options().requires_grad(false));
    described.place = weight.place;
    device::give_memory(described.tensor);
    return described;
  };
  layers::LoraAdapter adapter;
  adapter.scale = peft.scale_of(linear.path);
  adapter.dropout = peft.dropout;
  adapter.dropout_salt = hash_bytes(linear.path);
  if (cuts_columns) {
    adapter.columns = is_expert ? &mesh.neighbours(mesh.shape().expert_tensor()) : &mesh.tensor();
    adapter.first_column = weight.rects.front().rect.col;
  }
  adapter.a_RI = part(AdapterPart::kLoraA, cuts_columns);
  const uint64_t own_seed = mix64(seed, hash_bytes(linear.path));
  const bool is_gaussian = peft.start.kind == weights::AdapterStart::Kind::kGaussian;
  adapter.a_RI.tensor.copy_(parallel::cut_out(is_gaussian
                                                  ? gaussian_a(rank, weight.spec.shape[1], own_seed)
                                                  : uniform_a(rank, weight.spec.shape[1], own_seed),
                                              adapter.a_RI.rects));
  adapter.b_OR = part(AdapterPart::kLoraB, !cuts_columns && !is_whole_expert);
  adapter.b_OR.tensor.zero_();
  if (peft.dora) {
    const at::Tensor lengths = layers::row_lengths(weight.tensor, adapter, weight.quantized);
    adapter.magnitude_O = part(AdapterPart::kMagnitude, !cuts_columns && !is_whole_expert);
    adapter.magnitude_O.tensor.copy_(lengths);
  }
  return adapter;
}

/// Saying so beats "matches nothing".
void refuse_ends(const PeftConfig& peft, const arch::ModelConfig& config, bool from_file) {
  for (const auto& [module, weight] : weights::module_weights(config)) {
    const weights::AdapterLimits limits = weights::limits_at(peft, config, weight);
    if (limits.computing.empty() || !weights::is_chosen(peft, weight)) continue;
    if (!from_file) {
      throw UsageError(
          tr("[lora] an adapter on '{}' is not supported ({}); it can be trained whole", module,
             limits.computing),
          tr("name it in modules_to_save"));
    }
    throw UsageError(
        tr("[lora] an adapter on '{}' is not supported ({})", module, limits.computing),
        limits.merging.empty() ? how_to_merge() : "");
  }
}

/// The places whose parameters are to be trained whole.
std::vector<Parameter*> places_to_save(const PeftConfig& peft, const arch::ModelConfig& config,
                                       const Network& network, bool from_file) {
  std::vector<Parameter*> places;
  for (const std::string& wanted : peft.modules_to_save) {
    bool matched = false, is_above_some = false;
    for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
      const std::string module = arch::module_of(spec.name);
      is_above_some |= weights::is_within(module, wanted);
      matched |= weights::is_named(module, wanted);
    }
    for (Parameter* place : network.parameters) {
      const bool is_here = !network.stage.is_copy(place->spec);
      if (is_here && weights::is_named(arch::module_of(place->name()), wanted))
        places.push_back(place);
    }
    if (!matched)
      throw UsageError(tr("[lora] modules_to_save '{}' matches no module of the model", wanted),
                       from_file && is_above_some ? how_to_merge() : "");
  }
  return places;
}

/// Errors: UsageError where the weight's numbers are needed and are in blocks.
void require_numbers(const layers::Linear& linear, const PeftConfig& peft) {
  if (!peft.dora || !linear.weight.quantized || ops::nf4_of(*linear.weight.quantized)) return;
  throw UsageError(tr("[lora] DoRA needs the numbers of '{}', which is quantised", linear.path),
                   tr("give --quantize none"));
}

uint64_t next_adapter_id() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

}  // namespace

layers::AdapterSet make_beside(const CausalLM::Impl& impl, const PeftConfig& peft) {
  const arch::ModelConfig& config = impl.config;
  if (impl.lora) throw UsageError(tr("[lora] the model has adapters already; merge them first"));
  check(peft, config, /*from_file=*/true);
  refuse_ends(peft, config, /*from_file=*/true);
  if (!peft.modules_to_save.empty()) {
    throw UsageError(tr("[lora] modules_to_save '{}' replaces a part of the model, which others "
                        "share",
                        peft.modules_to_save.front()),
                     tr("serve it alone with --adapters DIR, or merge it: {}", how_to_merge()));
  }
  layers::AdapterSet set;
  set.id = next_adapter_id();
  Network& network = const_cast<Network&>(impl.network);  // it only looks
  for (layers::Linear* linear : targets_of(peft, config, network, /*lenient=*/true)) {
    require_numbers(*linear, peft);
    const layers::LoraAdapter& made =
        set.of.emplace(linear, make_adapter(*linear, peft, /*seed=*/0, config, impl.mesh))
            .first->second;
    set.largest_rank = std::max(set.largest_rank, made.a_RI.spec.shape[0]);
    const arch::ParamSpec& weight = linear->weight.spec;
    // One weight for all keys of a pass, or rows that are patches of pictures.
    if (weight.role == arch::Role::kKvUp || weight.tower_place >= 0) set.mixes = false;
  }
  return set;
}

void add_adapters(CausalLM::Impl& impl, const weights::PeftConfig& config_of_adapters,
                  uint64_t seed, bool from_file) {
  const arch::ModelConfig& config = impl.config;
  const TrainingMemory& memory = impl.memory;
  Network& network = impl.network;
  if (impl.lora) throw UsageError(tr("[lora] the model has adapters already; merge them first"));
  check(config_of_adapters, config, from_file);
  refuse_ends(config_of_adapters, config, from_file);
  // Everything that can be refused is looked at before the model changes.
  const std::vector<layers::Linear*> chosen =
      targets_of(config_of_adapters, config, network, /*lenient=*/from_file);
  const std::vector<Parameter*> places =
      places_to_save(config_of_adapters, config, network, from_file);
  for (const Parameter* place : places) {
    for (const layers::Linear* linear : chosen) {
      if (&linear->weight == place)
        throw UsageError(tr("[lora] '{}' is both a target and in modules_to_save", linear->path));
    }
  }
  if (!memory.store()) {
    // Nobody may have filled the model yet.
    for (const Parameter* parameter : impl.base()) {
      if (parameter->quantized && !ops::nf4_of(*parameter->quantized)) continue;
      device::give_memory(parameter->held());
    }
  }
  for (layers::Linear* linear : chosen) {
    require_numbers(*linear, config_of_adapters);
    const auto make = [&] {
      linear->adapter = make_adapter(*linear, config_of_adapters, seed, config, impl.mesh);
    };
    // DoRA measures the weight.
    if (config_of_adapters.dora) {
      memory.with_place(linear->weight.place, make);
    } else {
      make();
    }
  }
  for (Parameter* place : places) {
    impl.saved_modules.push_back({place, *place});
    memory.with_place(place->place, [&] {
      place->tensor = (place->quantized ? place->quantized->dense().to(impl.dtype)
                                        : place->tensor.detach().clone())
                          .requires_grad_(true);
    });
    place->quantized.reset();
    place->spec.name = "base_model.model." + place->name();
    place->spec.tied_to.clear();
    place->in_both_ends = false;
    place->trainable = true;
  }
  for (Parameter* parameter : impl.base()) parameter->trainable = false;
  impl.apply_trainable();
  impl.lora = config_of_adapters;
  // What PEFT says of such layers; its A and B lie as those of others.
  impl.lora->fan_in_fan_out = arch::turns_matrices(config);
}

namespace {

/// The weight, whole and in f32, on every rank of the tensor axis that has a part.
at::Tensor whole_weight(const layers::Linear& linear, const parallel::Group& tensor) {
  const Parameter& weight = linear.weight;
  const at::Tensor joined_OI =
      (weight.quantized ? weight.quantized->dense() : weight.tensor.detach()).to(at::kFloat);
  return parallel::put_together(tensor, weight, joined_OI);
}

/// The start of one adapter of twice the rank. Collective over the ranks that hold the weight.
void begin_in_base(layers::Linear& linear, const PeftConfig& lora, uint64_t seed,
                   const parallel::Mesh& mesh) {
  const at::NoGradGuard no_grad;
  layers::LoraAdapter& adapter = *linear.adapter;
  const arch::ParamSpec& spec = linear.weight.spec;
  const int64_t rank = adapter.a_RI.spec.shape[0] / 2, out = spec.shape[0], in = spec.shape[1];
  const bool is_dealt = spec.expert >= 0 && mesh.shape().expert_dealers > 1;
  const parallel::Group& tensor =
      is_dealt ? mesh.neighbours(mesh.shape().expert_tensor()) : mesh.tensor();
  const parallel::Group& holders = mesh.holders(spec.copied_on());
  const at::Tensor weight_OI = whole_weight(linear, tensor);
  // Found once: no rank may have other last bits than its neighbours.
  StartFactors start{at::zeros({rank, in}, weight_OI.options()),
                     at::zeros({out, rank}, weight_OI.options())};
  if (tensor.rank() == 0 && holders.rank() == 0) {
    // A weight that has fewer, such as a gate of one row, leaves the others at zero on both sides.
    const int64_t found_rank = std::min({rank, out, in});
    const StartFactors found = start_factors(weight_OI.contiguous(), found_rank, adapter.scale,
                                             lora.start, mix64(seed, hash_bytes(linear.path)));
    start.a_RI.narrow(0, 0, found_rank).copy_(found.a_RI);
    start.b_OR.narrow(1, 0, found_rank).copy_(found.b_OR);
  }
  for (at::Tensor* factor : {&start.a_RI, &start.b_OR}) {
    holders.broadcast(*factor, 0);
    tensor.broadcast(*factor, 0);
  }
  adapter.a_RI.tensor.copy_(
      parallel::cut_out(at::cat({start.a_RI, start.a_RI}), adapter.a_RI.rects));
  adapter.b_OR.tensor.copy_(
      parallel::cut_out(at::cat({start.b_OR, start.b_OR.neg()}, 1), adapter.b_OR.rects));
}

}  // namespace

void add_lora(CausalLM& model, const weights::PeftConfig& lora, uint64_t seed) {
  if (!lora.start.takes_from_base()) {
    add_adapters(model.impl(), lora, seed, /*from_file=*/false);
    return;
  }
  CausalLM::Impl& impl = model.impl();
  if (lora.dora)
    throw UsageError(tr("[lora] DoRA does not begin with {}", lora.start.name()),
                     tr("take --use_dora false, or --init_weights true"));
  add_adapters(impl, weights::with_fixed_half(lora), seed, /*from_file=*/false);
  for (layers::Linear* linear : impl.network.adaptable()) {
    if (!linear->adapter) continue;
    impl.memory.with_place(linear->weight.place,
                           [&] { begin_in_base(*linear, lora, seed, impl.mesh); });
  }
  fix_half_of_adapters(model);
}

void fix_half_of_adapters(CausalLM& model) {
  for (layers::Linear* linear : model.impl().network.adaptable()) {
    if (!linear->adapter) continue;
    Parameter &a = linear->adapter->a_RI, &b = linear->adapter->b_OR;
    const int64_t rank = a.spec.shape[0] / 2;
    a.fixed = arch::Rect{rank, rank, 0, a.spec.shape[1]};
    b.fixed = arch::Rect{0, b.spec.shape[0], rank, rank};
  }
}

std::vector<Parameter*> CausalLM::Impl::adapters() {
  std::vector<Parameter*> result;
  for (layers::Linear* linear : network.adaptable()) {
    layers::ParameterVisitor take([&](Parameter& parameter) { result.push_back(&parameter); });
    if (linear->adapter) linear->adapter->visit(take);
  }
  for (const SavedModule& module : saved_modules) result.push_back(module.place);
  return result;
}

std::vector<Parameter> CausalLM::adapter_parameters() const {
  std::vector<Parameter> result;
  for (const Parameter* parameter : impl_->adapters()) result.push_back(*parameter);
  return result;
}

}  // namespace danlu::models
