// cli/commands/convert_plan.h: what `danlu convert` is about to write, between its parts.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/options.h"
#include "cli/commands/convert_request.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::cli {

/// What is written: the source after adapters are merged and types chosen.
struct ConvertPlan {
  weights::CheckpointSource source;
  std::shared_ptr<const weights::TensorSource> model;  ///< adapters merged
  arch::ModelConfig config;
  std::vector<weights::TensorInfo> globals;  ///< in model order, in the dtypes to store
  bool config_changed = false;
  std::optional<weights::Nf4Form> nf4 = {};  ///< in which matrices are stored
};

/// Where source or adapters are a training run of Danlu's or one of its checkpoints: what of it is
/// converted. A run that holds adapters alone stands for its base model with them.
/// Errors: UsageError for adapters that do not go together; as settings::find_trained_run, base_of.
void take_trained(const Options& options, ConvertRequest& request);

/// Plans, checks and writes what `request` asks for, and says so; of `options` only those of
/// conversion_run_options count, and all for telling one conversion from another. Returns the exit
/// code. Errors: as weights::open_checkpoint_source, the formats' planners and weights::convert.
int convert_as_asked(const Options& options, const ConvertRequest& request);

/// Flags of every verb that converts: --check, --checksums, --overwrite, --threads.
std::vector<OptionSpec> conversion_run_options();

/// Merges the adapters that lie in the source checkpoint itself.
/// Errors: ModelError as weights::merge_adapters; UsageError if flags describe others.
void merge_own_adapters(const Options& options, const ConvertRequest& request, ConvertPlan& plan);

/// Merges those that --adapters names: PEFT, or a MindSpeed LoRA checkpoint of the model.
/// Errors: as merge_own_adapters.
void merge_named_adapters(const Options& options, const ConvertRequest& request, ConvertPlan& plan);

}  // namespace danlu::cli
