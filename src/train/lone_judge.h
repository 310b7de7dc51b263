// train/lone_judge.h: a model that judges beside no training, in one process.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "train/objectives/reference.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::train {

/// Frozen, with the adapters in `adapter` ("": none). dtype: empty means the files'. Errors: as
/// models::load_model and load_adapter.
std::shared_ptr<const FrozenModel> lone_judge(const weights::CheckpointSource& source,
                                              const std::filesystem::path& adapter,
                                              std::optional<at::ScalarType> dtype,
                                              const at::Device& device);

}  // namespace danlu::train
