// settings/model_source.h: where a run's weights, its model's description and its tokenizer come
// from.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "settings/model_changes.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::settings {

struct ModelSource {
  /// HF, Megatron or native directory, or a GGUF file; from scratch: what holds config.json.
  std::filesystem::path path;
  /// Directory of config.json, tokenizer and args.json: open_model says which; may be empty.
  std::filesystem::path companions;
  std::filesystem::path tokenizer;      ///< directory or file; the companions' unless given
  bool tokenizer_is_named = false;      ///< and so must be there, whatever the rows are
  std::filesystem::path adapter;        ///< PEFT or MindSpeed LoRA to go on from; may be empty
  std::optional<double> adapter_alpha;  ///< of a MindSpeed LoRA that does not record it
  bool from_scratch = false;            ///< random weights from the seed
  /// The head that is to judge, or with a `problem` to sort texts: of files without one it is this,
  /// if it has a seed, else what they have. labels 0: of one that sorts, as many as the files have.
  std::optional<arch::ScoreHead> score = {};
  bool continues = true;  ///< the training that a Megatron checkpoint is of
  /// The base is what it was while `adapter` was trained, where its record says so: its numbers
  /// those of NF4 (weights/lora/trained_base.h), its positions stretched, its vocabulary grown.
  bool as_trained = false;
  /// How `path` is opened: config.json named by the user, and where else it may lie.
  std::filesystem::path config_dir = {}, fallback_dir = {};
  std::string iteration = {};  ///< Megatron: "1000", "release"; empty: the tracker's
  /// What is made of the files' model before it is used.
  ModelChanges changes = {};
  /// config.json of a model that flags alone describe, which begins at random; null: there is one.
  Json described = {};
};

/// The model that the run begins with; from scratch without tensors. Reads headers only.
/// The head of one that sorts texts has a settled `problem`.
/// Errors: as weights::open_checkpoint_source and arch::with_score; ModelError where a head that is
/// to judge is not there, or gives several numbers; UsageError where nothing says how many labels
/// there are, or one label is to be a class.
weights::CheckpointSource open_model(const ModelSource& source);

/// A model that judges, or an adapter that makes its base, as it was trained on it, one. Errors:
/// ModelError where an adapter does not say what its base is.
ModelSource reward_model_at(const std::filesystem::path& path);

/// "Megatron-core, TP2 PP2, iteration 1000: weights/mcore", "random (seed 42)".
std::string describe_weights(const ModelSource& source, const weights::CheckpointSource& opened,
                             uint64_t seed);

/// Whether `path` holds nothing that a model could be begun with: it is missing, or a directory
/// without anything that looks like weights.
bool holds_no_weights(const std::filesystem::path& path);

/// A run's own directory whose model was random at first: what it is loaded from then are its
/// checkpoints. Never throws.
bool began_at_random(const std::filesystem::path& run);

/// What such a directory's run was given as --load, or as --model, where that is there and is not
/// the directory itself. Never throws.
std::optional<std::filesystem::path> began_from(const std::filesystem::path& run);

/// What the run in `path` has kept in Megatron's format; `path` itself if that is nothing. A
/// warning where the run went on since.
std::filesystem::path kept_in_megatrons_format(const std::filesystem::path& path);

}  // namespace danlu::settings
