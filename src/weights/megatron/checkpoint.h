// weights/megatron/checkpoint.h: a Megatron checkpoint opened as named global tensors.
#pragma once
#include <memory>
#include <optional>

#include "weights/convert/optimizer_state.h"
#include "weights/lora/peft.h"
#include "weights/megatron/found_stages.h"
#include "weights/megatron/model_layout.h"
#include "weights/megatron/place.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::megatron {

struct OpenOptions {
  /// Directory with config.json and the tokenizer; empty: those that Danlu wrote into the
  /// checkpoint, else `fallback_dir` if a config.json is in it, else what args say.
  std::filesystem::path config_dir = {}, fallback_dir = {};
  std::string iteration = {};  ///< as find_checkpoint
  bool with_optimizer = false;
  /// Reward models of MindSpeed-LLM (rm_head) are taken too: `config` then has a head of the form
  /// arch::ScoreForm::kTokens.
  bool scores = false;
  /// --lora-r, --lora-alpha: what the files' args must agree with, and needed where they lack them.
  std::optional<int64_t> lora_rank = {};
  std::optional<double> lora_alpha = {};
};

/// What the files say before any config.json is at hand.
struct Header {
  Place place;
  torch_file::PyValue args;  ///< Namespace; None if the files hold none
  Split split;               ///< vocab_divisor: such that the padded vocabulary is the files'
  Form form;
  FoundStages stages;  ///< as the tensors' names say
  double checkpoint_version = 3.0;
  bool has_optimizer = false, has_adapters = false;
  bool has_score = false;        ///< MindSpeed-LLM's rm_head
  bool has_predictions = false;  ///< layers that predict further ahead (arch/prediction.h)
  /// The files hold adapters alone (--lora-ckpt-filter).
  bool only_adapters = false;
};

/// The files that a Checkpoint reads, with their layouts.
struct Parts;

struct Checkpoint {
  Header header;
  arch::ModelConfig config;
  std::filesystem::path companions;  ///< where config.json was found; empty: args said it
  /// HF names; nullptr if there are only adapters. With layers that predict further ahead `config`
  /// has them in its network.
  std::shared_ptr<const TensorSource> model;
  OptimizerState optimizer;
  /// MindSpeed-LLM's LoRA as PEFT tensors; nullptr: none.
  std::shared_ptr<const TensorSource> adapters;
  std::optional<PeftConfig> peft;
  std::shared_ptr<const Parts> parts;

  /// Copies between ranks that differ (norms, routers, tied embeddings, adapters), one line each
  /// with both files, at most `limit`; what is read is the first rank's. Stored tensors of more
  /// than `max_bytes` are not looked at. Reads every copy once. Errors: IoError.
  std::vector<std::string> differing_copies(size_t limit = 10,
                                            uint64_t max_bytes = UINT64_MAX) const;
};

/// Reads the pickles, not the tensors. Errors: ModelError naming the file: a missing or superfluous
/// rank, ranks of different iterations, splits or versions, an iteration that is not the folder's,
/// a checkpoint_version before 2.0. Stages that args do not name are those of the tensors.
Header read_header(const std::filesystem::path& path, const OpenOptions& options = {});

/// Errors: as read_header; ModelError if neither a config.json nor args say what the model is, if
/// they disagree (each key with both values), for a tensor that is missing, of another shape, or
/// unknown.
Checkpoint open_checkpoint(const std::filesystem::path& path, const OpenOptions& options = {});

/// Opens, as open_checkpoint does, adapters for the model that `config` describes; base weights
/// beside them are not read. Errors: also ModelError for an adapter on a module that the model has
/// not.
Checkpoint open_adapters(const std::filesystem::path& path, const arch::ModelConfig& config,
                         const OpenOptions& options = {});

}  // namespace danlu::weights::megatron
