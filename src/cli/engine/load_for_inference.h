// cli/engine/load_for_inference.h: from options to a model that can answer.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/score_head.h"
#include "base/options.h"
#include "cli/engine/prompt_media.h"
#include "infer/end_ids.h"
#include "infer/followers.h"
#include "infer/generate.h"
#include "models/causal_lm.h"
#include "text/conversation.h"
#include "text/tokenizer.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::cli {

struct InferenceModel {
  std::filesystem::path model_directory, adapter_directory;  ///< the latter may be empty
  std::unique_ptr<models::CausalLM> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatEncoder>
      encoder;  ///< nullptr if the model has no template and none was named
  infer::GenerationDefaults defaults;
  std::string quantize = "none";  ///< the flag's value where matrices are held in blocks
  std::string system;
  Json recorded_variables = Json::object();  ///< of the template, that only the record says
  std::shared_ptr<const PromptMedia> media;  ///< null if the model reads text alone
  /// Rank 0's, where several processes hold parts of the model; null: this one holds all of it.
  std::shared_ptr<infer::Followers> followers;

  /// What ends an answer, asked by the template where there is one.
  std::vector<text::TokenId> end_ids() const {
    return infer::end_ids(defaults.stop_ids, *tokenizer, encoder.get());
  }
};

/// How a model says how well a document goes with a query.
enum class RanksBy {
  kHead,    ///< by a head of one score in place of the vocabulary's
  kTokens,  ///< by how much likelier one token is than another
};

/// Where the weights are: --model and --adapters, or one checkpoint directory that names its base
/// model (adapter_config.json). Errors: UsageError if neither was given, ModelError if one is
/// missing.
struct ModelLocation {
  std::filesystem::path model, adapter;
  std::filesystem::path record;          ///< the one of both whose args.json counts
  Json run_args = Json::object();        ///< that args.json; empty if there is none
  std::optional<RanksBy> ranks_by = {};  ///< of a model that is loaded to rank
  /// The head of a model that is loaded to judge texts, or to sort them, as
  /// settings::ModelSource has it.
  std::optional<arch::ScoreHead> score = {};
  bool embeds = false;  ///< it makes vectors, whose template in ms-swift writes no conversation
  std::string usual_template = {};  ///< of pairs, where neither the user nor args.json names one
};
ModelLocation locate_model(const Options& options);
/// The same with `adapter` in place of --adapters.
ModelLocation locate_model(const Options& options, const std::filesystem::path& adapter);
/// The same with `model` in place of --model; flag: what named it.
ModelLocation locate_model(const Options& options, const std::filesystem::path& model,
                           const std::filesystem::path& adapter, const char* flag = "--model");

/// Where the processor of pictures is: in the directory that --image_processor names, the model's,
/// that of its config.json or of its tokenizer. Empty: the model reads text alone.
std::filesystem::path processor_directory(const Options& options, const ModelLocation& where);

/// A path as it is, or a hub id or short name found in the local caches. Errors: ModelError.
std::filesystem::path model_path(const std::string& name, const char* flag);

/// --lora_alpha, where it was given.
std::optional<double> lora_alpha_from(const Options& options);

/// The model at `path` in whatever format, with --hf-config, --tokenizer and
/// --iteration, its positions and tokens as the line asks for or `adapter` was trained with.
/// Errors: as weights::open_checkpoint_source, settings::changes_to_ask and settings::make_changes.
/// scores: also one with the head of a reward model.
weights::CheckpointSource open_model(const Options& options, const std::filesystem::path& path,
                                     const std::filesystem::path& adapter, bool scores = false);

/// What the line asks for of a model that was opened otherwise.
void change_as_asked(const Options& options, const std::filesystem::path& adapter,
                     weights::CheckpointSource& opened);

/// The base model that adapter_config.json names, seen from the adapter or from here; says which.
/// Errors: UsageError if it names none, ModelError if that one is not found.
std::filesystem::path base_of_adapter(const std::filesystem::path& adapter);

/// Loads everything. Errors: those of the loaders; ModelError if the tokenizer is larger than the
/// model's vocabulary.
/// raw: no chat template is wanted (encoder stays nullptr). tells_apart: as PromptMedia's. mesh:
/// of the processes that hold parts of the model, which then reads text alone; it outlives what is
/// loaded. predicts: with the layers that predict further ahead.
InferenceModel load_for_inference(const Options& options, const ModelLocation& where,
                                  bool raw = false, bool tells_apart = true,
                                  const parallel::Mesh& mesh = parallel::Mesh::single(),
                                  bool predicts = false);

/// The template that the line names; "": none. Errors: UsageError for --hf_chat_template beside
/// another one.
std::string template_named(const Options& options);

/// Variables of the template that were typed: --chat_template_kwargs and --enable_thinking.
Json template_arguments_from(const Options& options);
/// The same template with other variables. Errors: as text::choose_template; ModelError if the
/// model has none.
std::shared_ptr<const text::ChatEncoder> encoder_with(const Options& options,
                                                      const ModelLocation& where,
                                                      const InferenceModel& loaded,
                                                      const Json& variables);

/// Flags over generation_config.json over defaults.
infer::SamplingParams sampling_from(const Options& options,
                                    const infer::GenerationDefaults& defaults);
int64_t max_new_tokens_from(const Options& options, const infer::GenerationDefaults& defaults);

}  // namespace danlu::cli
