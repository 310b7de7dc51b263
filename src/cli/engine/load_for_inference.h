// cli/engine/load_for_inference.h: from options to a model that can answer.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "base/options.h"
#include "infer/generate.h"
#include "models/causal_lm.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::cli {

struct InferenceModel {
  std::filesystem::path model_directory, adapter_directory;  ///< the latter may be empty
  std::unique_ptr<models::CausalLM> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatEncoder>
      encoder;  ///< nullptr if the model has no template and none was named
  infer::GenerationDefaults defaults;
  std::string system;
};

/// Where the weights are: --model and --adapters, or one checkpoint directory that names its base
/// model (args.json, adapter_config.json). Errors: UsageError if neither was given, IoError if a
/// directory is missing.
struct ModelLocation {
  std::filesystem::path model, adapter;
  Json run_args = Json::object();  ///< args.json of the run that wrote the checkpoint
};
ModelLocation locate_model(const Options& options);

/// Loads everything. Errors: those of the loaders; ModelError if the tokenizer is larger than the
/// model's vocabulary.
/// raw: no chat template is wanted (encoder stays nullptr).
InferenceModel load_for_inference(const Options& options, bool raw = false);

/// Flags over generation_config.json over defaults.
infer::SamplingParams sampling_from(const Options& options,
                                    const infer::GenerationDefaults& defaults);
int64_t max_new_tokens_from(const Options& options, const infer::GenerationDefaults& defaults);

}  // namespace danlu::cli
