// weights/lora/peft.h: PEFT adapter directories: adapter_config.json, tensor names, and which
// modules of a model an adapter touches.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace danlu::weights {

/// What new adapters begin with, in PEFT's words for init_lora_weights.
/// Sources: PEFT, tuners/lora/layer.py; PiSSA arXiv:2404.02948; OLoRA arXiv:2406.01775.
struct AdapterStart {
  enum class Kind {
    kUniform,   ///< "true": A as torch's Linear, B zero
    kGaussian,  ///< A normal with deviation 1 / rank, B zero
    kPissa,     ///< the weight's largest singular values and vectors
    kOlora,     ///< its first columns and rows of Q and R
  };
  Kind kind = Kind::kUniform;
  /// Subspace iterations of a randomised decomposition for pissa; 0: the exact one.
  int64_t iterations = 0;

  /// Errors: UsageError unless it is true, gaussian, pissa, pissa_niter_<n> or olora.
  static AdapterStart named(const std::string& given);
  std::string name() const;
  /// Whether scale B A is a part of the weight, which the base must then lose.
  bool takes_from_base() const { return kind == Kind::kPissa || kind == Kind::kOlora; }
};

/// adapter_config.json of a LoRA adapter. Keys without a field here stay in `raw` and are written
/// back.
struct PeftConfig {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0.0;
  bool rslora = false, dora = false, fan_in_fan_out = false;
  std::string bias = "none";  ///< none | all | lora_only
  std::vector<std::string>
      target_modules;                ///< names; or one regex / "all-linear" if targets_are_pattern
  bool targets_are_pattern = false;  ///< target_modules was a string in the file
  std::vector<std::string> exclude_modules;
  bool excludes_are_pattern = false;
  std::vector<std::string> modules_to_save;
  std::vector<int64_t> layers_to_transform;  ///< empty: every layer
  std::vector<std::string> layers_pattern;
  /// Regex on the end of the module name -> rank; the first that matches counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::string base_model;  ///< base_model_name_or_path
  std::string task_type = "CAUSAL_LM";
  Json raw = Json::object();
  AdapterStart start = {};  ///< of new ones; no file says it of Danlu's

  int64_t rank_of(const std::string& module) const;
  /// alpha/r, or alpha/√r with rslora; patterns applied.
  double scale_of(const std::string& module) const;
};

/// What adapters that take a part from their base are as plain ones: of twice the rank, with the
/// same scale. One half is trained, the other takes the start away again and stays as it is; so the
/// base keeps its weights, and files are plain LoRA. As PEFT's conversion of such adapters.
PeftConfig with_fixed_half(const PeftConfig& config);

/// Reads adapter_config.json of a directory, or the file itself; hf/tower_file.h adds modules.
/// Errors: IoError (unreadable); ModelError for a missing or broken file, a peft_type other than
/// LORA, a wrong type, a rank below 1, a broken regex, and for variants whose arithmetic differs
/// (trainable_token_indices, qalora, …).
PeftConfig load_peft_config(const std::filesystem::path& path);

/// A notice if the adapter of this directory names another base model than `base`: the shapes of
/// two models may agree. Where what it names is not here, the last parts of the names are compared,
/// as a model may lie anywhere and hubs' caches have directories of their own. Nothing for
/// directories without adapter_config.json.
/// Errors: those of load_peft_config.
void report_other_base(const std::filesystem::path& adapter, const std::filesystem::path& base);
PeftConfig parse_peft_config(const Json& json, const std::string& origin);

/// The file as PEFT writes it: every key, sorted, inference_mode true.
Json peft_config_json(const PeftConfig& config);

/// target_modules from a list that people gave: a single "all-linear" or regex is a pattern, any
/// other entry a name.
void set_targets(PeftConfig& config, const std::vector<std::string>& targets);

/// Whether the adapter sits on `module` ("model.layers.0.self_attn.q_proj"), by PEFT's rules:
/// excludes first; a string is a regex that must match the whole name; a list entry must equal the
/// name or its end after a dot; then layers_to_transform. "all-linear": is_linear and not is_head.
/// Errors: PatternError (broken, or too many steps).
bool peft_targets(const PeftConfig& config, const std::string& module, bool is_linear = true,
                  bool is_head = false);

/// Whether an entry of a list is a module's name, or its end after a dot. Entries and regular
/// expressions may speak of the newer names of a model with a vision tower (hf/tower_names.h).
bool is_named(const std::string& module, const std::string& entry);

/// What an adapter tensor's file name says.
enum class AdapterPart {
  kLoraA,
  kLoraB,
  kEmbeddingA,
  kEmbeddingB,
  kMagnitude,
  kBias,
  kSavedModule
};
struct AdapterTensorName {
  std::string module;  ///< name in the base model, without ".weight"
  AdapterPart part;
};
/// "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight" -> {"model.layers.0.mlp.up_proj",
/// kLoraA}. nullopt if it does not begin with "base_model.model.".
std::optional<AdapterTensorName> parse_adapter_name(const std::string& tensor);
/// The reverse; kSavedModule and kBias add ".weight" / ".bias".
std::string adapter_tensor_name(const std::string& module, AdapterPart part);

}  // namespace danlu::weights
