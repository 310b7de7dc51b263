// `danlu convert` of what Danlu trained: a run's directory stands for the model that it left.
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/shell_quote.h"
#include "cli/commands/convert_plan.h"
#include "settings/trained_run.h"

namespace danlu::cli {
namespace {

using settings::TrainedRun;

void say_which(const TrainedRun& trained) {
  if (trained.holds == trained.run || !trained.step) return;
  log::info("{}: of a training run; its checkpoint of step {} is taken: {}", trained.run.string(),
            *trained.step, trained.holds.string());
}

/// The adapter that --lora-load names, where it is a run's.
void take_adapters(ConvertRequest& request) {
  const auto trained = settings::find_trained_run(request.adapters);
  if (!trained) return;
  if (!trained->is_adapter &&
      weights::detect_format(trained->holds) != weights::Format::kMegatron) {
    throw UsageError(
        tr("[--lora-load] {}: a training run of the whole model, without adapters",
           request.adapters.string()),
        tr("name it as the model: --load-dir {}", shell_quoted(request.adapters.string())));
  }
  say_which(*trained);
  request.adapters = trained->holds;
}

/// An adapter alone names its base.
void take_base(const TrainedRun& trained, ConvertRequest& request) {
  std::error_code unknown;
  if (!request.adapters.empty() && !fs::equivalent(request.adapters, trained.holds, unknown)) {
    throw UsageError(tr("[--load-dir] {}: holds adapters alone, and --lora-load names others: {}",
                        request.source.string(), request.adapters.string()),
                     tr("name the base model with --load-dir"));
  }
  const settings::BaseModel base = settings::base_of(trained);
  log::info("base model: {} (named by the adapter)", base.path.string());
  request.adapters = trained.holds;
  request.source = base.path;
  request.with_own_adapters = false;
  auto& source = request.source_options;
  if (source.config_dir.empty()) source.config_dir = base.config_dir;
  if (source.fallback_dir.empty()) source.fallback_dir = base.fallback_dir;
}

}  // namespace

void take_trained(const Options& options, ConvertRequest& request) {
  if (!request.adapters.empty()) take_adapters(request);
  auto& source = request.source_options;
  const auto trained =
      settings::find_trained_run(request.source, source.iteration, request.with_optimizer);
  if (!trained) return;
  say_which(*trained);
  // Whatever it holds; of the guides' line all else is checked against what it says.
  request.expected_source.reset();
  source.iteration.clear();
  // Its own configuration is that of what it trained; MindSpeed's --save-dir is of what it began
  // with.
  if (!options.is_set("hf_config")) source.config_dir.clear();
  if (trained->is_adapter && request.to != ConvertTo::kPeft) return take_base(*trained, request);
  request.source = trained->holds;
}

}  // namespace danlu::cli
