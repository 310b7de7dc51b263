#include "train/start/inputs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "settings/options/media_flags.h"
#include "text/template_file.h"
#include "train/run_dir/run_dir.h"
#include "train/run_dir/storage.h"
#include "train/start/teacher.h"
#include "train/visual_input.h"

namespace danlu::train {
namespace {

/// The rank that prepares the data that this rank reads.
int64_t preparer_of(const TrainConfig& config, const Ranks& ranks) {
  if (ranks.leads().size() == 1 || config.data.cache_dir.empty()) return 0;
  if (!config.shares_cache) return ranks.lead();
  const Shared cache = find_shared(config.data.cache_dir, ranks, [&] {
    std::error_code ignored;  // said by who writes there
    fs::create_directories(config.data.cache_dir, ignored);
  });
  if (!cache.by_all()) {
    log::info("machines do not share {}: ranks {} prepare the data, each for its own",
              config.data.cache_dir.string(), fmt::join(cache.keepers, ", "));
  }
  return cache.keeper;
}

/// `config` with the template that the base's record names, which does not go with this run: the
/// run's own record names it again.
TrainConfig with_recorded_template(const TrainConfig& config, const text::TemplateChoice& choice) {
  if (choice.origin != text::TemplateOrigin::kRecord) return config;
  TrainConfig named = config;
  const bool is_file = choice.name.ends_with(".jinja");
  named.args["template"] = is_file ? fs::absolute(choice.name).string() : choice.name;
  if (!choice.templates_file.empty())
    named.args["templates_file"] = fs::absolute(choice.templates_file).string();
  return named;
}

/// `config` with the template that files tokenised beforehand were made with, because chat and
/// infer need its name.
TrainConfig with_tokenised_template(const TrainConfig& config, const std::string& tokenised_with) {
  if (!text::find_template(tokenised_with, config.data.templates_file)) return config;
  TrainConfig named = config;
  named.args["template"] = tokenised_with;
  named.data.template_name = tokenised_with;
  return named;
}

void check_validation(const TrainConfig& config, const PreparedData& data) {
  if (data.validation) return;
  for (const char* asked : {"eval_strategy", "eval_steps", "eval_iters", "do_eval"}) {
    if (config.output.evaluate == Interval::kNo || !config.given_as.count(asked)) continue;
    log::warning("{}: nothing is held out, so nothing is evaluated (--val_dataset, --val_ratio)",
                 config.flag(asked));
    break;
  }
  const bool stops = config.output.early_stop > 0;
  if (!config.output.load_best_at_end && !stops) return;
  throw UsageError(tr("[train] {} {}: nothing is held out to evaluate on",
                      config.flag(stops ? "early_stop_interval" : "load_best_model_at_end"),
                      stops ? std::to_string(config.output.early_stop) : "true"),
                   tr("give --val_dataset FILE or --val_ratio 0.01"));
}

/// Errors: ModelError where the processor is not the tower's, UsageError for a form that has no
/// place for a tower.
void require_reading_of_pictures(const TrainConfig& config, const arch::ModelConfig& model) {
  const fs::path directory = settings::processor_directory(config);
  const auto media = settings::fetching_media_settings(directory, config.data.media);
  if (media && model.vision) require_fitting_processor(*model.vision, media->processor);
  if (media && !model.vision && config.task == settings::Task::kSft) {
    throw ModelError(tr("[train] {} says how pictures are read (preprocessor_config.json), and {} "
                        "models see none",
                        directory.string(), model.family),
                     tr("take that file out of the directory, or name the model it belongs to"));
  }
  if (model.vision && config.output.save_format == settings::SaveFormat::kMegatron) {
    throw UsageError(tr("[save_format] Megatron's form has no place for a vision tower"),
                     tr("leave --save_format out; danlu mm-convert hf_to_mm writes MindSpeed-MM's "
                        "form of what is saved"));
  }
}

/// Errors: UsageError where a rank would never see a sample of its own.
void require_samples(const TrainConfig& config, int64_t samples) {
  if (samples >= config.batch.ranks) return;
  throw UsageError(tr("[train] {} training samples for {} processes that share them", samples,
                      config.batch.ranks),
                   tr("start at most as many processes as there are samples"));
}

/// The tokens of the longest text of `samples` if that is beyond `window`, else 0.
int64_t longest_beyond(const data::SampleSource& samples, int64_t window) {
  int64_t longest = 0;
  for (int64_t i = 0; i < samples.size(); ++i) {
    if (samples.length(i) <= window) continue;
    const data::Sample sample = samples.get(i);
    for (size_t s = 0; s < sample.segments.size(); ++s) {
      const int64_t end =
          s + 1 < sample.segments.size() ? sample.segments[s + 1] : std::ssize(sample.ids);
      longest = std::max(longest, end - sample.segments[s]);
    }
  }
  return longest > window ? longest : 0;
}

/// Where rows may be longer than the model's window, because the system whose line it is does not
/// look. Errors: DataError.
void require_window(const TrainConfig& config, const arch::ModelConfig& model,
                    const PreparedData& data) {
  const int64_t window = model.max_positions;
  if (window <= 0 || config.data.max_length <= window) return;
  for (const auto& side : {data.train, data.validation}) {
    const int64_t longest = side ? longest_beyond(*side, window) : 0;
    if (longest == 0) continue;
    throw DataError(tr("[train] a row has {} tokens, and the model has {} positions ({} {})",
                       longest, window, config.flag("max_length"), config.data.max_length),
                    tr("give {} {}: --truncation says what becomes of longer rows",
                       config.flag("max_length"), window));
  }
}

}  // namespace

OpenedModel open_checked(const TrainConfig& agreed) {
  refuse_other_format(agreed.output.directory);
  OpenedModel opened{agreed, open_model(agreed.model)};
  opened.source.config.predicts_ahead = agreed.prediction.layers > 0;
  ModelSource& model = opened.config.model;
  model.companions = opened.source.companions;
  if (opened.source.megatron) {
    // What is written down must mean these weights when the tracker has moved on.
    const fs::path& directory = opened.source.megatron->place.directory;
    if (model.tokenizer == model.path) model.tokenizer = directory;
    model.path = directory;
  }
  return opened;
}

Inputs prepare_inputs(const OpenedModel& model, const Ranks& ranks) {
  PreparedText text = prepare_text(model.config, model.source.config);
  require_teachers_tokens(model.config, text);
  const TrainConfig config = with_recorded_template(model.config, text.choice);
  require_reading_of_pictures(config, model.source.config);
  PreparedData data = ranks.in_turn(preparer_of(config, ranks), [&] {
    return prepare_data(config, text, samples_of_step(config.batch));
  });
  Inputs inputs{with_tokenised_template(config, data.tokenised_with), std::move(text),
                std::move(data)};
  check_validation(inputs.config, inputs.data);
  require_window(inputs.config, model.source.config, inputs.data);
  require_teachable_rows(inputs.config, model.source.config, inputs.text, inputs.data);
  require_samples(inputs.config, inputs.data.train->size());
  return inputs;
}

void name_padding(const PreparedText& text, arch::ModelConfig& model) {
  if (!model.score || model.pad_id || !text.tokenizer) return;
  for (const auto& id : {text.tokenizer->pad_id(), text.tokenizer->eos_id()}) {
    if (id && !model.pad_id) model.pad_id = *id;
  }
}

}  // namespace danlu::train
