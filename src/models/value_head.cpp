#include "models/value_head.h"

#include "models/tensor_io.h"
#include "weights/hf/value_head.h"

namespace danlu::models {

void write_beside(const CausalLM::Impl& model, const std::filesystem::path& directory,
                  std::vector<Parameter>& parameters) {
  const std::optional<arch::ScoreHead>& head = model.config.score;
  if (!head || head->form != arch::ScoreForm::kBeside) return;
  std::vector<Parameter> beside;
  std::erase_if(parameters, [&](const Parameter& parameter) {
    if (parameter.spec.role != arch::Role::kScore) return false;
    beside.push_back(parameter);
    return true;
  });
  MoreTensors names;
  names.left_out = weights::kWholeModulePrefix;
  write_tensors(directory, beside, DType::kF32, "value_head", model.mesh,
                model.memory.sharing_store(), names);
}

}  // namespace danlu::models
