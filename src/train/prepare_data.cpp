#include "train/prepare_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/megatron/blend.h"
#include "data/megatron/gpt_splits.h"
#include "data/megatron/preference_datasets.h"
#include "data/preprocess_manifest.h"
#include "data/readers/dataset_name.h"
#include "data/tokenized_dataset.h"
#include "settings/options/media_flags.h"
#include "text/gguf_tokenizer.h"
#include "text/hermes_tools.h"
#include "text/new_tokens.h"
#include "text/template_file.h"
#include "text/template_record.h"
#include "text/trained_part.h"
#include "train/default_system.h"
#include "train/liked_rows.h"
#include "train/rollouts/row_prompt.h"

namespace danlu::train {
namespace {

bool is_megatron_prefix(const std::string& item) {
  std::error_code error;
  return fs::exists(item + ".idx", error);
}

/// Data sets with the row limit of --max_samples, where they have none of their own.
std::vector<std::string> limited(const std::vector<std::string>& datasets, int64_t max_rows) {
  std::vector<std::string> result = datasets;
  if (max_rows < 0) return result;
  for (std::string& dataset : result) {
    if (!is_megatron_prefix(dataset) && data::parse_dataset_name(dataset).max_rows < 0)
      dataset += fmt::format("#{}", max_rows);
  }
  return result;
}

/// The data sets to which limited() has put the flag's number: their first rows are meant.
std::set<std::string> limited_by_flag(const std::vector<std::string>& datasets, int64_t max_rows) {
  std::set<std::string> found;
  for (const std::string& dataset : limited(datasets, max_rows)) {
    if (std::find(datasets.begin(), datasets.end(), dataset) == datasets.end())
      found.insert(dataset);
  }
  return found;
}

/// --max_samples is of training data; LLaMA-Factory's is of both.
std::vector<std::string> limited_validation(const TrainConfig& config,
                                            const std::vector<std::string>& datasets) {
  return config.data.limits_validation ? limited(datasets, config.data.max_rows) : datasets;
}

constexpr int64_t kMediaWorkers = 2;

/// What an objective learns from.
data::SampleKind kind_of_samples(const settings::ObjectiveConfig& objective) {
  switch (objective.kind) {
    case settings::ObjectiveKind::kPreference:
    case settings::ObjectiveKind::kReward:
      return data::SampleKind::kPairs;
    case settings::ObjectiveKind::kUnpaired:
      return data::SampleKind::kUnpaired;
    case settings::ObjectiveKind::kProcessReward:
      return data::SampleKind::kSteps;
    case settings::ObjectiveKind::kPolicy:
      return data::SampleKind::kPrompts;
    case settings::ObjectiveKind::kClasses:
      return data::SampleKind::kLabelled;
    case settings::ObjectiveKind::kEmbedding:
    case settings::ObjectiveKind::kRanking:
      return data::SampleKind::kGroups;
    case settings::ObjectiveKind::kDistillation:
    case settings::ObjectiveKind::kLanguage:
      break;
  }
  return data::SampleKind::kTokens;
}

data::LabelForm label_form(const settings::ClassesConfig& classes, bool without_template) {
  using Kind = data::LabelForm::Kind;
  const Kind kind = classes.problem == arch::LabelProblem::kClasses   ? Kind::kClasses
                    : classes.problem == arch::LabelProblem::kNumbers ? Kind::kNumbers
                                                                      : Kind::kClass;
  return {kind, classes.labels, without_template};
}

data::GroupForm group_form(const settings::EmbeddingConfig& embedding, bool without_template) {
  using Loss = settings::EmbeddingConfig::Loss;
  data::GroupForm form;
  form.without_template = without_template;
  form.max_positives = 1;
  form.takes_negatives = !embedding.has_pairs();
  form.needs_negatives =
      form.takes_negatives && (embedding.hard_negatives > 0 || !embedding.in_batch);
  if (embedding.has_pairs())
    form.label = embedding.loss == Loss::kCosine ? data::GroupForm::Label::kNumber
                                                 : data::GroupForm::Label::kBinary;
  return form;
}

/// What a row's texts are to a model that ranks.
data::GroupForm pairs_to_rank(const settings::RankingConfig& ranking, bool without_template) {
  data::GroupForm form;
  form.texts = data::GroupForm::Texts::kBehindAnchor;
  form.without_template = without_template;
  form.needs_negatives = ranking.loss == settings::RankingLoss::kListwise;
  form.most_positives = ranking.most_positives;
  form.most_negatives = ranking.most_negatives;
  return form;
}

/// Whether texts stand one behind the other in rows of max_length, as in Megatron's data sets.
bool fills_rows(const TrainConfig& config) {
  return config.task == Task::kPretrain && config.data.uses_template;
}

data::SampleSpec sample_spec(const TrainConfig& config, const PreparedText& text) {
  data::SampleSpec spec;
  spec.kind = kind_of_samples(config.objective);
  spec.steps = {config.objective.process.placeholder, config.objective.process.reward_tokens};
  if (config.objective.kind == settings::ObjectiveKind::kRanking)
    spec.group_form = pairs_to_rank(config.objective.ranking, !config.data.uses_template);
  spec.label_form = label_form(config.objective.classes, !config.data.uses_template);
  if (config.objective.kind == settings::ObjectiveKind::kEmbedding)
    spec.group_form = group_form(config.objective.embedding, !config.data.uses_template);
  spec.datasets = limited(config.data.train, config.data.max_rows);
  spec.first_rows_of = limited_by_flag(config.data.train, config.data.max_rows);
  spec.val_datasets = limited_validation(config, config.data.validation);
  spec.tokenizer = text.tokenizer;
  spec.chat_encoder = text.encoder;
  spec.format.handler_name = config.data.handler_name;
  if (!config.data.columns.is_null()) spec.format.columns = config.data.columns;
  if (!config.data.map_keys.is_null()) spec.format.map_keys = config.data.map_keys;
  spec.format.json_keys = config.data.json_keys;
  spec.format.names = config.data.names;
  spec.format.learns_all_rounds = config.data.learns_all_rounds;
  // What is behind a prompt's tokens, an environment is told.
  spec.format.keeps_messages = !config.objective.policy.environment.empty();
  spec.choice = config.data.choice;
  spec.choice_by_info = config.data.choice_by_info;
  spec.max_rows_of_all = config.data.max_rows_of_all;
  spec.media =
      settings::fetching_media_settings(settings::processor_directory(config), config.data.media);
  spec.max_length = config.data.max_length;
  spec.truncation = data::truncation_from_name(config.data.truncation);
  spec.append_eod_text = config.data.append_eod;
  spec.pack_sequences = config.data.pack_sequences;
  if (config.data.validation.empty()) {
    spec.val_ratio = config.data.validation_ratio;
    spec.val_rows = config.data.validation_rows;
    spec.splits_rows = config.data.splits_rows;
  }
  if (config.data.reset_attention_mask && text.tokenizer && text.tokenizer->eos_id())
    spec.ends = data::SegmentEnds{*text.tokenizer->eos_id(), config.data.reset_position_ids};
  if (!fills_rows(config)) spec.split_text = config.data.megatron_split;
  spec.seed = config.data.seed;
  spec.strict = config.data.strict;
  spec.max_dropped_ratio = config.data.max_dropped_ratio;
  spec.cache_dir = config.data.cache_dir;
  spec.overwrite_cache = config.data.overwrite_cache;
  spec.num_workers = static_cast<size_t>(std::max<int64_t>(0, config.data.workers));
  spec.dataset_info_dir = config.data.dataset_dir;
  return spec;
}

/// Ids within the vocabulary show no fault, and mean other words.
void warn_of_other_tokenizer(const std::string& prefix, const text::Tokenizer* tokenizer) {
  const std::string recorded = data::read_recorded_tokenizer(prefix);
  if (recorded.empty() || !tokenizer) return;
  if (recorded == fmt::format("{:016x}", tokenizer->content_hash())) return;
  log::warning(
      "{} was tokenised with other tokenizer files than this run's: unless both give the same ids, "
      "the model is trained on other words",
      prefix);
}

/// Whether the run's template is the one `files` were tokenised with, as far as anybody knows.
bool is_template_of(const data::TokenisedBeforehand& files, const text::ChatEncoder* encoder) {
  const std::string& used = files.recorded_template.hash;
  return used.empty() || (encoder && used == fmt::format("{:016x}", encoder->content_hash()));
}

/// What was decided when files were tokenised cannot be decided again. A template that says the
/// same is how lines are written that chat by it later.
void note_tokenised(const TrainConfig& config, const data::TokenisedBeforehand& files,
                    const text::ChatEncoder* encoder, std::string& tokenised_with) {
  const std::string& used = files.recorded_template.description;
  if (!used.empty()) tokenised_with = used;
  std::vector<const char*> decided = {"system",          "columns",         "map_keys",
                                      "handler_name",    "model_name",      "model_author",
                                      "enable_thinking", "train_on_prompt", "mask_history"};
  if (!is_template_of(files, encoder))
    decided.insert(decided.begin(), {"template", "templates_file"});
  if (config.data.learnt != text::TrainedPart()) decided.push_back("loss_scale");
  std::vector<std::string> idle;
  for (const char* option : decided) {
    if (config.given_as.count(option)) idle.push_back(config.flag(option));
  }
  if (idle.empty()) return;
  log::warning("{} was tokenised before{}: {} without effect", files.prefix,
               used.empty() ? "" : " with template " + used, fmt::join(idle, ", "));
}

/// The part of each epoch's order that fills micro-batches of all ranks, one epoch behind the other.
/// Errors: DataError where that is nothing.
data::BatchStream::Order order_of_whole_micro_batches(
    const TrainConfig& config, std::shared_ptr<const data::SampleOrder> order) {
  const int64_t together = config.batch.micro_batch_size * config.batch.ranks;
  const int64_t size = order->num_samples(), used = size - size % together;
  if (used == 0 && size > 0) {
    throw DataError(tr("[batch_stream] {} samples do not fill one micro-batch of all ranks, {}",
                       size, together),
                    tr("lower the batch size, or keep the incomplete last batch"));
  }
  return [order = std::move(order), size, used](int64_t index) {
    return order->at(index / used * size + index % used);
  };
}

PreparedData prepare_sft(const TrainConfig& config, const PreparedText& text) {
  const data::SampleSpec spec = sample_spec(config, text);
  const data::TrainValSamples samples = data::open_or_build_samples(spec);
  PreparedData prepared;
  prepared.train = samples.train;
  prepared.validation = samples.val;
  if (spec.media) {
    // Beside the threads that compute; decoding waits for disks too.
    const int64_t usual = config.data.workers > 0 ? config.data.workers : kMediaWorkers;
    prepared.media = std::make_shared<data::MediaLoader>(
        *spec.media, static_cast<size_t>(config.data.media_workers.value_or(usual)));
  }
  prepared.report = samples.report;
  if (spec.kind == data::SampleKind::kUnpaired) check_liked_rows(config, *samples.train);
  prepared.validation_report = samples.val_report;
  std::set<std::string> templates;
  for (const data::TokenisedBeforehand& files : samples.tokenised_beforehand) {
    templates.insert(files.recorded_template.description);
    warn_of_other_tokenizer(files.prefix, text.tokenizer.get());
    note_tokenised(config, files, text.encoder.get(), prepared.tokenised_with);
  }
  prepared.all_tokenised_with_one =
      templates.size() == 1 && !prepared.tokenised_with.empty() &&
      std::all_of(spec.datasets.begin(), spec.datasets.end(), data::samples_exist);
  // A rollout has as many prompts as every other, and goes on into the next epoch.
  const bool draws = config.objective.kind == settings::ObjectiveKind::kPolicy;
  prepared.last_batch = draws || config.data.runs_on ? data::LastBatch::kWrap
                        : config.data.drops_last     ? data::LastBatch::kDrop
                                                     : data::LastBatch::kPartial;
  auto order = std::make_shared<data::SampleOrder>(samples.train->size(), config.data.seed,
                                                   config.data.shuffle, config.data.shuffles_once);
  prepared.order = [order](int64_t index) { return order->at(index); };
  if (config.data.runs_on && config.data.drops_last)
    prepared.order = order_of_whole_micro_batches(config, std::move(order));
  prepared.description = tr("{} training samples, {} held out",
                            format_count(static_cast<uint64_t>(samples.num_train_rows)),
                            format_count(static_cast<uint64_t>(samples.num_val_rows)));
  return prepared;
}

enum class Side { kTraining, kValidation };

/// Prefixes as given, or made from raw text.
std::vector<std::string> text_prefixes(const TrainConfig& config, const PreparedText& text,
                                       Side side, data::PreprocessReport* report) {
  const bool trains = side == Side::kTraining;
  const std::vector<std::string> items =
      data::blend_items(trains ? config.data.train : config.data.validation);
  if (std::any_of(items.begin(), items.end(), is_megatron_prefix)) {
    for (const std::string& item : items) {
      if (is_megatron_prefix(item)) warn_of_other_tokenizer(item, text.tokenizer.get());
    }
    return items;
  }
  data::SampleSpec spec = sample_spec(config, text);
  spec.datasets = trains ? limited(items, config.data.max_rows) : limited_validation(config, items);
  spec.first_rows_of = limited_by_flag(items, config.data.max_rows);
  if (!trains) {
    spec.max_rows_of_all = -1;
    if (spec.choice == data::RowChoice::kDrawn) spec.choice = data::RowChoice::kRepeated;
  }
  std::vector<std::string> prefixes;
  for (const fs::path& prefix : data::open_or_build_texts(spec, report))
    prefixes.push_back(prefix.string());
  return prefixes;
}

data::GptOptions gpt_options(const TrainConfig& config, const PreparedText& text) {
  data::GptOptions options;
  options.sequence_length = config.data.max_length;
  options.seed = static_cast<uint32_t>(config.data.seed);
  options.eod_mask_loss = config.data.eod_mask_loss;
  options.reset_position_ids = config.data.reset_position_ids;
  options.reset_attention_mask = config.data.reset_attention_mask;
  options.cache_dir =
      config.data.cache_dir.empty() ? fs::path() : config.data.cache_dir / "gpt_indices";
  options.cache_by_content = !config.data.cache_dir.empty();
  if (text.tokenizer) options.vocab_size = static_cast<int64_t>(text.tokenizer->size());
  if (text.tokenizer && text.tokenizer->eos_id()) options.eod_id = *text.tokenizer->eos_id();
  options.tokenizer = {{"class", "HuggingFaceTokenizer"},
                       {"tokenizer_path", Json::array({config.model.tokenizer.string()})}};
  return options;
}

/// The index holds the shuffled order of its samples, as Megatron's sequential loader expects;
/// where epochs are counted it holds one, and later epochs are shuffled anew.
data::BatchStream::Order order_of_windows(int64_t size, const TrainConfig& config) {
  if (!config.data.shuffle || config.data.shuffles_once)
    return [size](int64_t index) { return index % size; };
  auto later = std::make_shared<data::SampleOrder>(size, config.data.seed, true);
  return [size, later](int64_t index) { return index < size ? index : later->at(index); };
}

/// Samples of training and validation where steps are counted; else, and where epochs have an end,
/// one epoch of each.
data::SplitSizes split_sizes(const TrainConfig& config, int64_t global_batch_size) {
  const BatchConfig& batch = config.batch;
  const OutputConfig& output = config.output;
  if (config.data.texts_end_epochs) return {};
  if (batch.max_steps <= 0 && batch.train_samples <= 0) return {};
  const int64_t steps =
      batch.max_steps > 0 ? batch.max_steps : batch.train_samples / global_batch_size;
  OutputConfig counted = output;
  if (steps > 0) counted.count_shares(steps);
  const int64_t interval = counted.eval_steps > 0 ? counted.eval_steps : counted.save_steps;
  data::SplitSizes sizes = data::gpt_split_sizes(batch.train_samples, steps, interval,
                                                 output.eval_batches, global_batch_size);
  if (output.eval_batches == 0) sizes[1].reset();
  sizes[2].reset();
  return sizes;
}

PreparedData prepare_pretrain(const TrainConfig& config, const PreparedText& text,
                              int64_t global_batch_size) {
  PreparedData prepared;
  data::GptDataPaths paths;
  data::GptOptions options = gpt_options(config, text);
  const std::vector<std::string> train =
      text_prefixes(config, text, Side::kTraining, &prepared.report);
  if (config.data.validation.empty()) {
    paths.all = train;
    const double held_out = 100.0 * config.data.validation_ratio;
    options.split_text = config.data.megatron_split.empty()
                             ? fmt::format("{},{},0", 100.0 - held_out, held_out)
                             : config.data.megatron_split;
  } else {
    if (!config.data.megatron_split.empty()) {
      throw UsageError(
          tr("[train] --split and --val_dataset both say what is held out; give one of them"));
    }
    paths.per_split[0] = train;
    paths.per_split[1] =
        text_prefixes(config, text, Side::kValidation, &prepared.validation_report);
  }
  const auto splits = data::open_gpt_splits(paths, split_sizes(config, global_batch_size), options);
  prepared.train = splits[0];
  prepared.validation = splits[1];
  prepared.order = order_of_windows(prepared.train->size(), config);
  prepared.last_batch = !config.data.texts_end_epochs ? data::LastBatch::kWrap
                        : config.data.drops_last      ? data::LastBatch::kDrop
                                                      : data::LastBatch::kPartial;
  prepared.description = tr(
      "{} training samples of {} tokens, {} held out",
      format_count(static_cast<uint64_t>(prepared.train->size())), config.data.max_length,
      format_count(prepared.validation ? static_cast<uint64_t>(prepared.validation->size()) : 0));
  return prepared;
}

// Above this many samples the statistics come from evenly spaced ones: reading lengths is not free.
constexpr int64_t kMaxSamplesForLengths = 1'000'000;

/// That takes no more than `most` of `size`.
int64_t stride_of(int64_t size, int64_t most) {
  return std::max<int64_t>(1, (size + most - 1) / most);
}

data::LengthStats length_stats(const data::SampleSource& samples) {
  data::LengthStats stats;
  const int64_t stride = stride_of(samples.size(), kMaxSamplesForLengths);
  for (int64_t i = 0; i < samples.size(); i += stride) stats.add(samples.length(i));
  return stats;
}

// To look at grids the records of pictures are read: of up to so many samples, evenly spaced.
constexpr int64_t kMaxSamplesForPictures = 20'000;

void measure_pictures(PreparedData& prepared) {
  const data::SampleSource& samples = *prepared.train;
  const int64_t stride = stride_of(samples.size(), kMaxSamplesForPictures);
  for (int64_t i = 0; i < samples.size(); i += stride) {
    int64_t patches = 0;
    for (const data::MediaSpan& span : samples.spans(i)) {
      patches += span.grid.patches();
      prepared.most_frame_patches =
          std::max(prepared.most_frame_patches, span.grid.h * span.grid.w);
    }
    prepared.most_patches = std::max(prepared.most_patches, patches);
  }
}

/// Variables for the template: typed ones; those that a profile assumes go to named templates
/// alone.
Json variables_for(const text::TemplateRequest& request, const settings::DataConfig& data) {
  if (data.variables_are_assumed && !text::find_template(request.named, request.templates_file))
    return nullptr;
  return data.template_variables;
}

/// A named template that knows no thoughts writes none, as was asked for by enable_thinking false;
/// nor does it where thoughts are only `assumed`.
text::TemplateChoice template_with(const std::shared_ptr<const text::Tokenizer>& tokenizer,
                                   const text::TemplateRequest& request, const Json& variables,
                                   bool assumed) {
  const bool may_lack = assumed || (variables.is_object() &&
                                    !variables.value("enable_thinking", /*default_value=*/true));
  if (!may_lack) return text::choose_template(tokenizer, request, variables);
  try {
    return text::choose_template(tokenizer, request, variables);
  } catch (const UsageError&) {
    return text::choose_template(tokenizer, request);
  }
}

/// The chat template that Qwen2-VL and Qwen2.5-VL came with knows no tools: in its place the named
/// one that writes them, unless the line or a record names another.
void prefer_hermes_tools(const TrainConfig& config, const arch::ModelConfig& model,
                         PreparedText& text) {
  if (!model.vision || text.choice.origin != text::TemplateOrigin::kTokenizer ||
      text::writes_hermes_tools(*text.choice.encoder))
    return;
  text::TemplateRequest request{.named = "qwen2_vl", .templates_file = config.data.templates_file};
  text::TemplateChoice named = template_with(
      text.tokenizer, request, config.data.template_variables, config.data.variables_are_assumed);
  if (!text::writes_hermes_tools(*named.encoder)) return;
  // As of a record: who goes on with the run, or asks it, needs the name.
  named.origin = text::TemplateOrigin::kRecord;
  named.reason = tr("which writes tools as {} asks", config.flag("agent_template"));
  text.choice = std::move(named);
}

}  // namespace

PreparedText prepare_text(const TrainConfig& config, const arch::ModelConfig& model) {
  PreparedText text;
  try {
    text.tokenizer =
        text::load_with_tokens(config.model.tokenizer, config.model.changes.tokens).tokenizer;
  } catch (const text::MissingTokenizer&) {
    // Rows that are tokenised already need none; a tokenizer that was named must be there.
    if (config.model.tokenizer_is_named) throw;
    return text;
  }
  if (text::is_gguf(config.model.path) && config.model.tokenizer != config.model.path) {
    text::refuse_other_tokenizer(config.model.path, *text.tokenizer,
                                 config.model.tokenizer.string());
  }
  if (static_cast<int64_t>(text.tokenizer->size()) > model.vocab_size) {
    throw ModelError(tr("[train] the tokenizer {} has {} ids, the model's vocab_size is {}",
                        config.model.tokenizer.string(), text.tokenizer->size(), model.vocab_size),
                     tr("use the tokenizer that came with the model"));
  }
  if (config.task == Task::kPretrain || !config.data.uses_template) return text;
  const text::TemplateRequest request = {
      .named = config.data.template_name,
      .templates_file = config.data.templates_file,
      .recorded_in = text::directory_of_record(config.model.companions, config.model.adapter),
      .family_default = model.default_template};
  const Json variables = variables_for(request, config.data);
  try {
    text.choice =
        template_with(text.tokenizer, request, variables, config.data.variables_are_assumed);
  } catch (const ModelError& error) {
    // Only conversations need a template; whether there are any is known when rows are read.
    if (config.data.template_name != "auto" && !config.data.template_name.empty()) throw;
    log::warning("no chat template: {}", error.what());
  }
  if (config.data.has_hermes_tools) prefer_hermes_tools(config, model, text);
  if (text.choice.is_news()) log::info("template: {}, {}", text.choice.name, text.choice.reason);
  if (config.data.has_hermes_tools && text.choice.encoder &&
      !text::writes_hermes_tools(*text.choice.encoder)) {
    throw UsageError(tr("[train] {} hermes: the template {} writes tools in another form",
                        config.flag("agent_template"), text.choice.encoder->description()),
                     tr("leave it out, and tools are written as the model knows them; --template "
                        "FILE.jinja writes them in a form of your own"));
  }
  text::report_idle_arguments(*text.tokenizer, text.choice, variables);
  if (text.choice.encoder)
    text.encoder =
        text::with_trained_part(with_default_system(text.choice.encoder, config.data.system),
                                text.tokenizer, config.data.learnt);
  return text;
}

PreparedData prepare_data(const TrainConfig& config, const PreparedText& text,
                          int64_t global_batch_size) {
  PreparedData prepared = fills_rows(config) ? prepare_pretrain(config, text, global_batch_size)
                                             : prepare_sft(config, text);
  if (!prepared.train || prepared.train->size() == 0)
    throw DataError(tr("[train] no usable training sample"));
  if (prepared.validation && prepared.validation->size() == 0) prepared.validation.reset();
  prepared.lengths = length_stats(*prepared.train);
  if (config.objective.is_rewarded()) {
    prepared.longest_prompt = prepared.lengths.max;
  } else if (config.objective.draws()) {
    prepared.longest_prompt = longest_prompt(*prepared.train);
  }
  if (prepared.media) measure_pictures(prepared);
  prepared.content_hash = prepared.train->content_hash();
  return prepared;
}

}  // namespace danlu::train
