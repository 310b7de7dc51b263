#include "models/answering_model.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "base/at_exit.h"
#include "base/error.h"
#include "base/json.h"
#include "device/late_memory.h"
#include "models/add_adapters.h"
#include "models/training_memory.h"
#include "parallel/agree.h"

namespace danlu::models {
namespace {

std::optional<ops::Nf4Form> form_of(const Parameter& parameter) {
  if (!parameter.quantized) return {};
  const ops::Nf4Weight* const weight = ops::nf4_of(*parameter.quantized);
  if (!weight)
    throw InternalError("[answering model] " + parameter.name() + " is in blocks, and is trained");
  return weight->layout().form();
}

Json to_json(const std::optional<ops::Nf4Form>& form) {
  if (!form) return Json();
  return {form->block, form->doubly, static_cast<int>(form->type)};
}

std::optional<ops::Nf4Form> form_from(const Json& json) {
  if (json.is_null()) return {};
  return ops::Nf4Form{json[0].get<int64_t>(), json[1].get<bool>(),
                      static_cast<at::ScalarType>(json[2].get<int>())};
}

Json description(const Parameter& parameter, bool is_adapter) {
  const at::Tensor held = parameter.held();
  return {{"name", parameter.name()},
          {"adapter", is_adapter},
          {"layer", parameter.spec.layer},
          {"shape", held.sizes().vec()},
          {"dtype", static_cast<int>(held.scalar_type())},
          {"nf4", to_json(form_of(parameter))},
          {"owner", -1}};
}

void put(const at::Tensor& memory, const std::optional<ops::Nf4Form>& nf4, Parameter& to) {
  if (!nf4) {
    to.tensor = memory.view(to.tensor.sizes());
    return;
  }
  std::vector<ops::Nf4Rect> rects;
  for (const parallel::HeldRect& held : to.rects)
    rects.push_back({held.rect.row, held.rect.rows, held.rect.col, held.rect.cols});
  auto layout = std::make_shared<const ops::Nf4Layout>(*nf4, to.spec.shape[0], to.spec.shape[1],
                                                       std::move(rects));
  to.quantized = std::make_shared<ops::Nf4Weight>(ops::Nf4Matrix{std::move(layout), memory});
}

}  // namespace

AnsweringModel::AnsweringModel(CausalLM& trained, const parallel::Mesh& mesh)
    : trained_(trained), mesh_(mesh) {
  find_origins();
}

AnsweringModel::~AnsweringModel() = default;

const parallel::Group& AnsweringModel::owners() const {
  const parallel::Mesh& mesh = trained_.mesh();
  return mesh.cutting(mesh.shape().expert_axes());
}

bool AnsweringModel::cuts_as_here(int64_t owner) const {
  const parallel::MeshShape& shape = trained_.mesh().shape();
  const int64_t cutters = shape.expert_tensor();
  // Owners' numbers ascend with the tensor axis innermost, if they stand on it.
  return shape.expert_dealers == 1 ||
         owner % shape.tensor % cutters == trained_.mesh().coord().tp_rank % cutters;
}

void AnsweringModel::find_origins() {
  CausalLM::Impl& impl = trained_.impl();
  Json common = Json::array(), of_experts = Json::array();
  const auto list = [&](const std::vector<Parameter*>& parameters, bool are_adapters) {
    for (Parameter* parameter : parameters) {
      if (!parameter->defined() || !parameter->spec.tied_to.empty()) continue;
      own_[parameter->name()] = parameter;
      (parameter->spec.expert >= 0 ? of_experts : common)
          .push_back(description(*parameter, are_adapters));
    }
  };
  list(impl.base(), false);
  list(impl.adapters(), true);
  const std::vector<std::string> said = parallel::texts_of_all(owners(), dump_text(of_experts));
  for (size_t rank = 0; rank < said.size(); ++rank) {
    for (Json expert : parse_json(said[rank], "the experts of a rank")) {
      if (said.size() > 1) expert["owner"] = rank;
      common.push_back(std::move(expert));
    }
  }
  const std::vector<std::string> stages =
      parallel::texts_of_all(trained_.mesh().pipeline(), dump_text(common));
  for (size_t stage = 0; stage < stages.size(); ++stage)
    take_list(stages[stage], static_cast<int64_t>(stage));
}

void AnsweringModel::take_list(const std::string& list, int64_t stage) {
  for (const Json& said : parse_json(list, "the parameters of a stage")) {
    Origin origin;
    origin.stage = stage;
    if (const auto owner = said.at("owner").get<int64_t>(); owner >= 0) origin.owners = {owner};
    origin.is_adapter = said.at("adapter").get<bool>();
    origin.layer = said.at("layer").get<int64_t>();
    origin.shape = said.at("shape").get<std::vector<int64_t>>();
    origin.dtype = static_cast<at::ScalarType>(said.at("dtype").get<int>());
    origin.nf4 = form_from(said.at("nf4"));
    // Answers need no layers that predict further ahead. A table that two stages hold comes from
    // the first.
    if (origin.layer >= trained_.config().num_layers) continue;
    const auto [known, is_new] =
        origins_.try_emplace(said.at("name").get<std::string>(), std::move(origin));
    if (!is_new && known->second.stage == stage)  // ranks that cut an expert between them
      known->second.owners.push_back(said.at("owner").get<int64_t>());
  }
}

void AnsweringModel::make() {
  arch::ModelConfig config = trained_.config();
  config.predicts_ahead = false;
  model_ = std::make_unique<CausalLM>(config, arch::whole_of(config), mesh_, trained_.dtype(),
                                      trained_.device());
  for (Parameter* parameter : model_->impl().base()) parameter->trainable = false;
  model_->impl().apply_trainable();
}

std::map<std::string, Parameter*> AnsweringModel::places() const {
  std::map<std::string, Parameter*> found;
  CausalLM::Impl& impl = model_->impl();
  for (const auto& parameters : {impl.base(), impl.adapters()}) {
    for (Parameter* parameter : parameters) found[parameter->name()] = parameter;
  }
  return found;
}

at::Tensor AnsweringModel::brought(const std::string& name, const Origin& origin) const {
  const parallel::Group& stages = trained_.mesh().pipeline();
  const bool is_of_stage = stages.rank() == origin.stage;
  const auto found = own_.find(name);
  const at::Tensor own = found == own_.end() ? at::Tensor() : found->second->held().detach();
  const auto memory_of = [&](bool gives) {
    return gives
               ? own
               : at::empty(origin.shape, at::TensorOptions(origin.dtype).device(trained_.device()));
  };
  at::Tensor memory;
  if (origin.owners.empty()) memory = memory_of(own.defined() && is_of_stage);
  for (const int64_t owner : origin.owners) {
    at::Tensor part = memory_of(own.defined() && is_of_stage && owners().rank() == owner);
    if (is_of_stage) owners().broadcast(part, owner);
    // Ranks may cut an expert between them: the part is that of this rank's place among those.
    if (!memory.defined() || cuts_as_here(owner)) memory = part;
  }
  if (!stages.is_alone()) stages.broadcast(memory, origin.stage);
  return own.defined() ? own : memory;
}

void AnsweringModel::fill_with(bool adapters) {
  const std::map<std::string, Parameter*> to = places();
  for (const auto& [name, origin] : origins_) {
    if (origin.is_adapter != adapters) continue;
    const at::Tensor memory = brought(name, origin);
    const auto place = to.find(name);  // others on the tensor axis may have the expert
    if (place != to.end()) put(memory, origin.nf4, *place->second);
  }
  for (const auto& [name, place] : to) {
    if (place->spec.tied_to.empty()) continue;
    place->tensor = to.at(place->spec.tied_to)->tensor;
    place->quantized = to.at(place->spec.tied_to)->quantized;
  }
}

void AnsweringModel::fill() {
  const at::NoGradGuard no_grad;
  const bool is_first = !model_;
  if (is_first) make();
  fill_with(/*adapters=*/false);
  if (!trained_.lora()) return;
  if (is_first)  // DoRA measures the weights
    add_adapters(model_->impl(), *trained_.lora(), /*seed=*/0, /*from_file=*/true);
  fill_with(/*adapters=*/true);
}

void AnsweringModel::forget() {
  for (const auto& [name, place] : places()) {
    place->quantized.reset();
    place->tensor = device::tensor_without_memory(place->tensor.sizes(),
                                                  place->tensor.options().requires_grad(false));
  }
}

void AnsweringModel::with_weights(const std::function<void(const CausalLM&)>& use) {
  trained_.memory().with_all([&] {
    const AtExit give_back([this] {
      if (model_) forget();
    });
    fill();
    use(*model_);
  });
}

}  // namespace danlu::models
