// settings/options/vision_options.h: which parts of a model that sees pictures are trained, and how
// a pipeline divides its tower.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// `options` of a training with those of MindSpeed-MM's data.json, which --mm-data names: rows with
/// pictures are always fine-tuned on, also by the verb pretrain. What the user gave beside it wins.
/// Errors: those of read_mm_data.
Options with_multimodal(const std::string& verb, const Options& options);

/// What model.json says (--mm-model); what it does not say is empty.
struct MmModel {
  /// pipeline_num_layers of vision_encoder and of text_decoder, [chunk][stage].
  std::vector<std::vector<int64_t>> block_list, layer_list;
  bool freezes_tower = true;    ///< vision_encoder.freeze
  bool freezes_merger = false;  ///< vision_projector.freeze
};

/// Errors: IoError, DataError (no JSON, a value of another type); UsageError naming the key that
/// differs from the model in the checkpoint, with both values.
MmModel read_mm_model(const std::filesystem::path& path, const arch::ModelConfig& model);

/// VisionTraining::freeze of a tower (its patches and blocks), and of its merger.
inline constexpr const char* kFrozenTower = R"(^visual\.(patch_embed|blocks)\.)";
inline constexpr const char* kFrozenMerger = R"(^visual\.merger\.)";

/// --mm-model, --freeze_vit, --freeze_aligner, --freeze_llm. Without them the tower and the merger
/// stay as they are and the decoder is trained, as LLaMA-Factory, ms-swift and MindSpeed-MM do;
/// with --tuner lora_llm tower and merger are trained whole (ms-swift).
struct VisionTraining {
  std::vector<std::string> freeze;  ///< patterns, as TrainConfig::freeze
  /// Further targets of adapters: the linear layers of parts that are not frozen.
  std::vector<std::string> lora_targets;
  bool adapts_decoder = true;
  /// Modules that are trained whole beside adapters (--tuner lora_llm).
  std::vector<std::string> whole_modules;
  std::vector<std::vector<int64_t>> block_list, layer_list;  ///< as arch::PipelineLayers's
};
/// A model of text alone gets nothing, with a notice of flags that have no effect. Errors: those of
/// read_mm_model; UsageError if nothing is left to train, or for lora_llm without a tower.
VisionTraining vision_training_from(const Options& options, const arch::ModelConfig& model);

}  // namespace danlu::settings
