#include "train/lone_judge.h"

#include <utility>

#include "models/adapters.h"
#include "models/training_memory.h"
#include "models/weight_files.h"

namespace danlu::train {

std::shared_ptr<const FrozenModel> lone_judge(const weights::CheckpointSource& source,
                                              const std::filesystem::path& adapter,
                                              std::optional<at::ScalarType> dtype,
                                              const at::Device& device) {
  const auto settle = [](models::CausalLM& model) {
    model.freeze({"."});
    models::keep(model, {}, /*holds_values=*/false);
  };
  std::unique_ptr<models::CausalLM> model =
      models::load_model(source, parallel::Mesh::single(), dtype, device, settle);
  if (!adapter.empty()) models::load_adapter(*model, adapter, {});
  models::keep(*model, {});
  return std::make_shared<FrozenModel>(std::move(model));
}

}  // namespace danlu::train
