// weights/convert/checkpoint_source.h: any checkpoint that Danlu reads, opened as named global
// tensors.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "weights/convert/optimizer_state.h"
#include "weights/lora/peft.h"
#include "weights/megatron/checkpoint.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

enum class Format { kHuggingFace, kMegatron, kNative, kGguf, kPeft };
const char* format_name(Format format);

/// What a path holds; nullopt: nothing known. Looks at names only, never throws.
std::optional<Format> detect_format(const std::filesystem::path& path);

/// A hint for a directory without weights in which a training run has begun: how to go on with what
/// it saved; "" where it saved none.
std::string hint_of_unfinished_run(const std::filesystem::path& directory);

/// A hint for a directory without weights: it names the models in the directories below it, as
/// `danlu convert --save-model-type hf` writes one into mg2hf; "" where there is none.
std::string hint_of_models_below(const std::filesystem::path& directory);

struct SourceOptions {
  /// A directory with config.json. Empty: beside the weights, and for Megatron's else in
  /// `fallback_dir`, else what its args say. GGUF files describe themselves.
  std::filesystem::path config_dir = {}, fallback_dir = {};
  std::string iteration = {};  ///< Megatron: "1000", "release"; empty: the tracker's
  bool with_optimizer = false;
  /// Whoever reads checks the tensors itself and forgives what files of Hugging Face may hold
  /// beside them: buffers, a tied head of its own. Otherwise both are errors: a copy would lose
  /// them.
  bool all_tensors = false;
  /// Models with a score head (arch/score_head.h) are taken too; the head of one that config.json
  /// does not know of lies beside it.
  bool scores = false;
  std::optional<int64_t> lora_rank = {};
  std::optional<double> lora_alpha = {};
  bool loose = false;  ///< of an adapter: go on where copies on several ranks differ
};

struct CheckpointSource {
  Format format;
  std::filesystem::path path;
  std::string description = {};  ///< "Megatron-core, TP2 PP2, iteration 1000"
  arch::ModelConfig config = {};
  /// Directory of config.json and tokenizer; empty: the files are all there is.
  std::filesystem::path companions = {};
  /// Every untied parameter of `config`, under its HF name; with adapters: the base model. Layers
  /// that predict further ahead are there too, with their copies of table and head, where the files
  /// have them; config.predicts_ahead is false all the same.
  /// nullptr: the files hold adapters alone.
  std::shared_ptr<const TensorSource> model = {};
  /// What of `model` a GGUF file holds in blocks; nullptr: nothing.
  std::shared_ptr<const BlockTensors> blocks = {};
  WidenedBlocks widened = {};
  bool has_optimizer = false;     ///< a training's state is in the files, asked for or not
  OptimizerState optimizer = {};  ///< with SourceOptions::with_optimizer
  /// Adapters beside the model, as PEFT tensors; nullptr: none.
  std::shared_ptr<const TensorSource> adapters = {};
  std::optional<PeftConfig> peft = {};
  std::optional<megatron::Header> megatron = {};  ///< of Format::kMegatron
  std::optional<int64_t> iteration = {};
  /// Copies of one tensor on several ranks that differ, one line each; unset where formats have
  /// none.
  std::function<std::vector<std::string>()> differing_copies = {};
  /// Files that belong to the source, for telling whether it changed.
  std::vector<std::filesystem::path> files = {};
};

/// Whether the files have layers that predict further ahead. with_state: and the optimizer's state
/// of them, which a training leaves that had them in its network.
bool has_predictions(const CheckpointSource& source, bool with_state);

/// Errors: ModelError if `source` lacks a tensor of the layers that predict further ahead, or if
/// their table or head is another than the model's, with which they share it in training and in
/// Megatron's files.
void require_shared_predictions(const arch::ModelConfig& config, const TensorSource& source,
                                const std::filesystem::path& path);

/// Says that `iteration`, given as `flag`, chooses nothing of `source`; "": nothing was given.
void report_idle_iteration(const CheckpointSource& source, const std::string& iteration,
                           const std::string& flag);

/// A model directory (or one weight file with config.json beside it) of Hugging Face, Megatron or
/// Danlu, or a GGUF file. Errors: ModelError saying what the path is or lacks, or what is there
/// that cannot be opened; a tensor the model needs that is missing, unknown or of another shape; an
/// optimizer that is wanted and not there.
CheckpointSource open_checkpoint_source(const std::filesystem::path& path,
                                        const SourceOptions& options = {});

/// Ranks that hold different copies of one tensor are of different saves, or a run went wrong.
/// Errors: ModelError showing `lines`, CheckpointSource's; if `loose`, a warning.
void refuse_differing_copies(const std::vector<std::string>& lines, bool loose);

/// An adapter of its own, beside no model.
struct AdapterSource {
  Format format = Format::kPeft;                     ///< or kMegatron: MindSpeed-LLM's LoRA
  std::shared_ptr<const TensorSource> tensors = {};  ///< under PEFT's names
  PeftConfig peft = {};
};

/// A PEFT directory, or a MindSpeed-LLM LoRA checkpoint of the model that `config` describes. Only
/// lora_rank, lora_alpha and loose of `options` count, and only for MindSpeed's.
/// Errors: as load_peft_config and open_weights, or as megatron::open_adapters and
/// refuse_differing_copies.
AdapterSource open_adapter_source(const std::filesystem::path& path,
                                  const arch::ModelConfig& config,
                                  const SourceOptions& options = {});

/// What in `directory` looks like weights though detect_format does not know it: "iter_0000100/…",
/// "model-00002-of-00004.safetensors", …; "" if nothing does.
std::string weights_like_in(const std::filesystem::path& directory);

/// Any path with tensors, for comparing and looking: checkpoints as open_checkpoint_source under HF
/// names; directories and files that are no whole model as they are.
std::shared_ptr<const TensorSource> open_any_tensors(const std::filesystem::path& path,
                                                     const SourceOptions& options = {});

}  // namespace danlu::weights
