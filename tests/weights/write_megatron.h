// tests/weights/write_megatron.h: Megatron checkpoints of models that a test holds.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "base/file.h"
#include "weights/convert/joined_source.h"
#include "weights/convert/layout_writer.h"
#include "weights/megatron/target.h"

namespace danlu::test {

/// Writes `model` below `root`, with config.json beside it. Errors: as plan_checkpoint.
inline void write_megatron(const std::filesystem::path& root, const Json& config_json,
                           const arch::ModelConfig& config,
                           const std::shared_ptr<const weights::TensorSource>& model,
                           const weights::megatron::TargetOptions& options) {
  std::vector<weights::TensorInfo> globals = weights::megatron::global_tensors(config, DType::kF32);
  for (weights::TensorInfo& info : globals) info.dtype = model->find(info.name)->dtype;
  const weights::Target target = plan_checkpoint(config, globals, options);
  check_layout(target.layout);
  std::filesystem::create_directories(root);
  write_json_file(root / "config.json", config_json);
  const auto all =
      weights::join_optimizer(model, options.optimizer ? options.optimizer->tensors : nullptr);
  write_layout(*all, target.layout, target.plans, root);
  for (const auto& [path, text] : target.texts) write_file_atomic(root / path, text);
}

}  // namespace danlu::test
