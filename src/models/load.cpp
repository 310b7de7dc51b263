// Weights from files, from a seed, and into files.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "arch/gated_delta.h"
#include "arch/prediction.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "device/dtype.h"
#include "device/late_memory.h"
#include "models/adapters.h"
#include "models/causal_lm_impl.h"
#include "models/nf4_weights.h"
#include "models/quantise.h"
#include "models/tensor_io.h"
#include "models/value_head.h"
#include "models/weight_files.h"
#include "weights/hf/fit.h"
#include "weights/hf/save_model.h"
#include "weights/hf/stored_form.h"
#include "weights/torch/torch_checksums.h"

namespace danlu::models {
namespace {

/// What the files of several ranks, or records with checksums, can tell that a single tensor
/// cannot. Errors: ModelError for copies that differ between ranks, and for damaged files.
void check_files(const weights::CheckpointSource& source) {
  if (source.format != weights::Format::kMegatron) return;
  for (const std::filesystem::path& file : source.files) {
    if (file.extension() == ".pt") weights::torch_file::check_torch_checksums(file);
  }
  const std::vector<std::string> lines =
      source.differing_copies ? source.differing_copies() : std::vector<std::string>();
  if (lines.empty()) return;
  throw ModelError(tr("{}: ranks do not agree: {}{}", source.path.string(), lines.front(),
                      (lines.size() > 1 ? "; and more" : "")),
                   tr("files of two saves may be mixed: copy one whole iteration again; danlu "
                      "inspect lists what differs"));
}

/// Errors: ModelError if `source` lacks, adds or reshapes a tensor.
void check_fit(const arch::ModelConfig& config, const weights::TensorSource& source) {
  const weights::Misfit misfit = weights::misfit_of(config, source);
  std::vector<std::string> missing, unknown, other;
  for (const arch::ParamSpec& spec : misfit.missing) missing.push_back(spec.name);
  for (const weights::TensorInfo& info : misfit.unknown) unknown.push_back(info.name);
  for (const weights::Misfit::Shape& shape : misfit.reshaped) {
    other.push_back(tr("{} is {} in {}, the config asks for {}", shape.name,
                       shape_text(shape.in_file), source.file_of(shape.name).string(),
                       shape_text(shape.expected)));
  }
  for (const weights::TensorInfo& info : misfit.not_floating) {
    other.push_back(
        tr("{} has the dtype {}, which is no floating one", info.name, dtype_name(info.dtype)));
  }
  const std::vector<std::filesystem::path> files = source.files();
  std::string where = "weights";
  if (files.size() == 1) where += " " + files.front().string();
  if (files.size() > 1) where += " " + files.front().parent_path().string();
  refuse_tensor_lists(where, missing, unknown, other);
}

/// Vectors of models with linear attention: norms of 1 + w begin with 0, rates of decay evenly from
/// 0.01 to 16, the rest with 1. Source: transformers, modeling_qwen3_5.py.
void draw_vector_of_hybrid(uint64_t seed, Parameter& parameter) {
  const arch::ParamSpec& spec = parameter.spec;
  if (!spec.name.ends_with(arch::GatedDeltaNames::kDecayRate)) {
    parameter.tensor.fill_(spec.role == arch::Role::kOwn ? 1.0 : 0.0);
    return;
  }
  const at::Tensor rates = at::empty({spec.shape.front()}, at::TensorOptions(at::kFloat));
  const uint64_t own_seed = mix64(seed, hash_bytes(spec.name));
  for (int64_t head = 0; head < rates.numel(); ++head) {
    const double part =
        static_cast<double>(mix64(own_seed, static_cast<uint64_t>(head)) >> 11) * 0x1p-53;
    rates.select(0, head).fill_(std::log(0.01 + 15.99 * part));
  }
  parameter.tensor.copy_(rates);
}

/// A parameter's value in a model from scratch.
void draw(const arch::ModelConfig& config, uint64_t seed, Parameter& parameter) {
  const arch::ParamSpec& spec = parameter.spec;
  const auto drawn = [&] {
    // Drawn whole, in f32 on the CPU, so that neither device nor dtype nor mesh changes the model
    // that a seed means.
    return normal_values(spec.shape, config.initializer_range, mix64(seed, hash_bytes(spec.name)));
  };
  if (parameter.quantized) {
    fill_nf4(parameter, drawn());
    return;
  }
  device::give_memory(parameter.tensor);
  if (spec.is_bias || spec.role == arch::Role::kRouterBias) {
    parameter.tensor.zero_();
  } else if (spec.shape.size() == 1 && arch::gates_attention(config)) {
    draw_vector_of_hybrid(seed, parameter);
  } else if (spec.shape.size() == 1) {
    parameter.tensor.fill_(1.0);
  } else {
    const at::Tensor whole = drawn();
    parameter.tensor.copy_(parameter.is_whole() ? whole
                                                : parallel::cut_out(whole, parameter.rects));
  }
}

/// Calls one() for every base parameter that has values of its own; it fills them. after_place:
/// between places.
void fill(
    CausalLM::Impl& impl, const std::function<void(Parameter&)>& one,
    const std::function<void()>& after_place = [] {}) {
  // A place at a time: a rank may keep only a share of what it reads.
  std::map<int64_t, std::vector<Parameter*>> places;
  for (Parameter* parameter : impl.base()) {
    if (parameter->spec.tied_to.empty()) places[parameter->place].push_back(parameter);
  }
  for (const auto& [place, parameters] : places) {
    const auto all = [&list = parameters, &one] {
      for (Parameter* parameter : list) one(*parameter);
    };
    if (parallel::ParameterStore* const store = impl.memory.store()) {
      store->fill(place, all);
    } else {
      all();
    }
    after_place();
  }
}

}  // namespace

void load(CausalLM& model, const weights::TensorSource& source, const Quantisation& quantisation) {
  CausalLM::Impl& impl = model.impl();
  check_fit(impl.config, source);
  // A head that is tied may be another stage's; who has the first stage is who is heard.
  const std::vector<arch::ParamSpec> all = arch::parameters_of(impl.config);
  const auto read = [&](Parameter& parameter) {
    if (impl.config.score && impl.config.score->seed && !source.find(parameter.name())) {
      const at::NoGradGuard no_grad;  // check_fit lets nothing else be missing
      return draw(impl.config, *impl.config.score->seed, parameter);
    }
    if (quantise(impl, parameter, source, quantisation) || fill_nf4(parameter, source)) return;
    device::give_memory(parameter.tensor);
    read_into(source, parameter.name(), parameter);
    for (const arch::ParamSpec& other : all) {
      if (other.tied_to != parameter.name() || !source.find(other.name)) continue;
      if (at::equal(read_as(source, other.name, parameter), parameter.tensor)) continue;
      log::warning(
          "[weights] {} in the file differs from {}, but the config ties them: the latter is used",
          other.name, parameter.name());
    }
  };
  // Pages of files that were read would count as memory of the process.
  fill(impl, read, [&source] { source.forget(); });
  for (Parameter* tied : impl.base()) {
    for (const Parameter* parameter : impl.base())
      if (tied->spec.tied_to == parameter->name()) tied->quantized = parameter->quantized;
  }
}

void hold_in_nf4(CausalLM& model, const Quantisation& quantisation) {
  choose_nf4(model.impl(), nullptr, quantisation);
}

void initialize(CausalLM& model, uint64_t seed) {
  CausalLM::Impl& impl = model.impl();
  const at::NoGradGuard no_grad;
  fill(impl, [&](Parameter& parameter) { draw(impl.config, seed, parameter); });
}

namespace {

/// What files hold besides the parameters of the network. Each layer that predicts further ahead
/// and is part of the network adds copies of the table and the head. If none is part of it, all
/// that the directory has of such layers, with which training began, is added. Where a score head
/// lies beside the files, the directory's head of the vocabulary is added.
MoreTensors beside_the_network(const arch::ModelConfig& config,
                               const std::filesystem::path& directory) {
  MoreTensors more;
  more.wide = arch::wide_parameters(config);
  arch::ModelConfig all = config;
  all.predicts_ahead = true;
  for (const arch::ParamSpec& spec : arch::parameters_of(all)) {
    if (config.predicts_ahead && spec.layer >= config.num_layers && !spec.tied_to.empty())
      more.copies.emplace_back(spec.name, spec.tied_to);
  }
  const bool keeps_predictions = !config.predicts_ahead && config.experts.prediction_layers > 0,
             keeps_head = config.score && config.score->form == arch::ScoreForm::kBeside;
  if ((!keeps_predictions && !keeps_head) || directory.empty() || !weights::has_weights(directory))
    return more;
  more.source = weights::open_weights(directory);
  const std::vector<std::string> heads =
      keeps_head ? arch::vocabulary_head_names(config) : std::vector<std::string>();
  for (const weights::TensorInfo& info : more.source->tensors()) {
    const bool is_head = std::find(heads.begin(), heads.end(), info.name) != heads.end();
    if (is_head || (keeps_predictions && arch::is_of_prediction_layer(config, info.name)))
      more.names.push_back(info.name);
  }
  return more;
}

}  // namespace

void save(const CausalLM& model, const std::filesystem::path& directory, DType dtype,
          const std::filesystem::path& carry_from) {
  const CausalLM::Impl& impl = model.impl();
  if (!impl.takes_part_in_saving()) return;
  const bool writes = impl.mesh.rank() == 0;
  std::vector<Parameter> parameters = model.parameters();
  write_beside(impl, directory, parameters);
  write_tensors(directory, parameters, dtype, "model", impl.mesh, impl.memory.sharing_store(),
                beside_the_network(impl.config, carry_from),
                [&](const std::vector<weights::TensorInfo>& all) {
                  return weights::stored_in_files(impl.config, all);
                });
  if (!writes) return;
  write_json_file(directory / "config.json", weights::saved_config(impl.config, dtype));
  if (!carry_from.empty()) weights::carry_over_files(carry_from, directory);
}

void save_in_type(const std::filesystem::path& from, const arch::ModelConfig& config, DType dtype,
                  const std::filesystem::path& directory) {
  MoreTensors all;
  all.wide = arch::wide_parameters(config);
  all.source = weights::open_weights(from);
  for (const weights::TensorInfo& info : all.source->tensors()) all.names.push_back(info.name);
  write_tensors(directory, {}, dtype, "model", parallel::Mesh::single(), nullptr, all);
  write_json_file(directory / "config.json", weights::saved_config(config, dtype));
}

std::unique_ptr<CausalLM> load_model(const weights::CheckpointSource& source,
                                     const parallel::Mesh& mesh,
                                     std::optional<at::ScalarType> dtype, const at::Device& device,
                                     const std::function<void(CausalLM&)>& before_weights,
                                     const std::optional<arch::Stage>& stage,
                                     const Quantisation& quantisation,
                                     const std::function<void(CausalLM&)>& before_memory) {
  if (!source.model) {
    throw ModelError(
        tr("{}: adapters alone, without the model they belong to", source.path.string()),
        tr("name the base model with --model (or --load), this with --adapters"));
  }
  if (!dtype) {
    const auto& tensors = source.model->tensors();
    const bool is_known = !tensors.empty() && is_floating(tensors.front().dtype);
    dtype = device::scalar_type_of(is_known ? tensors.front().dtype : source.config.dtype);
  }
  check_files(source);
  auto model = std::make_unique<CausalLM>(
      source.config, stage ? *stage : arch::whole_of(source.config), mesh, *dtype, device);
  if (before_memory) {
    before_memory(*model);
  } else if (quantisation.keeps_nf4 || quantisation.make_nf4) {
    model->freeze({"."});
  }
  choose_nf4(model->impl(), source.model.get(), quantisation);
  if (before_weights) before_weights(*model);
  load(*model, *source.model, quantisation);
  if (source.adapters) load_adapter(*model, *source.peft, *source.adapters, source.path.string());
  return model;
}

std::unique_ptr<CausalLM> load_model(const std::filesystem::path& path, const parallel::Mesh& mesh,
                                     std::optional<at::ScalarType> dtype, const at::Device& device,
                                     const std::filesystem::path& adapter) {
  auto model =
      load_model(weights::open_checkpoint_source(path, {.all_tensors = true}), mesh, dtype, device);
  if (!adapter.empty()) load_adapter(*model, adapter);
  return model;
}

}  // namespace danlu::models
