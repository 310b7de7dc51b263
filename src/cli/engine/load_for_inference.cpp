#include "cli/engine/load_for_inference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arch/encoder.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/rank_place.h"
#include "cli/engine/model_record.h"
#include "cli/engine/quantisation_flags.h"
#include "cli/engine/trained_prompt.h"
#include "device/counted_memory.h"
#include "device/dtype.h"
#include "device/select.h"
#include "models/adapters.h"
#include "models/weight_files.h"
#include "settings/model_changes.h"
#include "settings/model_source.h"
#include "settings/options/change_options.h"
#include "settings/options/data_options.h"
#include "settings/options/media_flags.h"
#include "settings/options/model_names.h"
#include "settings/options/precision.h"
#include "settings/options/system_message.h"
#include "text/gguf_tokenizer.h"
#include "text/raw_encoder.h"
#include "text/template_choice.h"
#include "text/template_record.h"
#include "train/visual_input.h"
#include "weights/lora/peft.h"

namespace danlu::cli {
namespace {

[[noreturn]] void no_such_model(const fs::path& path, const std::string& flag) {
  throw ModelError(tr("[{}] {}: no such directory", flag, path.string()),
                   did_you_mean_path(path) +
                       tr("give a local Hugging Face or Megatron directory, or a GGUF file"));
}

/// None: as the file has it.
std::optional<at::ScalarType> type_of(const Options& options) {
  const auto precision = settings::precision_of(options);
  if (!precision) return std::nullopt;
  return device::scalar_type_of(dtype_from_name(settings::precision_name(*precision)));
}

/// Errors: UsageError for a token that the tokenizer does not have.
void add_stop_tokens(const Options& options, const text::Tokenizer& tokenizer,
                     std::vector<text::TokenId>& stop_ids) {
  if (!options.has_value("add_eos_token")) return;
  for (const std::string& name : options.get_list("add_eos_token")) {
    const auto id = tokenizer.token_to_id(name);
    if (!id) {
      throw UsageError(
          tr("[{}] the tokenizer has no token {}", options.given_as("add_eos_token"), name),
          tr("give tokens as the tokenizer writes them, such as <|im_end|>"));
    }
    stop_ids.push_back(*id);
  }
}

text::TemplateRequest template_request(const Options& options, const ModelLocation& where,
                                       const arch::ModelConfig& config) {
  const std::string named = template_named(options);
  return {.named = where.embeds && named == text::kPlainTexts ? "" : named,
          .templates_file = options.get_string_or("prompt_type_path", ""),
          .recorded_in = where.record,
          .family_default = config.default_template};
}

std::shared_ptr<const text::ChatEncoder> encoder_for(const Options& options,
                                                     const ModelLocation& where,
                                                     const arch::ModelConfig& config,
                                                     const InferenceModel& loaded) {
  const Json typed = template_arguments_from(options);
  Json arguments = typed;
  arguments.update(loaded.recorded_variables);
  const text::TemplateChoice choice =
      text::choose_template(loaded.tokenizer, template_request(options, where, config), arguments);
  if (choice.is_news()) log::info("template: {}, {}", choice.name, choice.reason);
  text::report_idle_arguments(*loaded.tokenizer, choice, typed);
  return choice.encoder;
}

/// The one that was named, else that of an adapter that brings tokens, else the model's (a GGUF
/// file's is in it), else the adapter's: training puts a copy there. Errors: as Tokenizer::load and
/// refuse_other_tokenizer.
std::shared_ptr<const text::Tokenizer> tokenizer_for(const Options& options,
                                                     const ModelLocation& where,
                                                     const fs::path& companions) {
  const bool is_gguf = text::is_gguf(where.model);
  if (options.has_value("tokenizer")) {
    const std::string named = options.get_string("tokenizer");
    auto tokenizer = text::Tokenizer::load(named);
    if (is_gguf) text::refuse_other_tokenizer(where.model, *tokenizer, named);
    return tokenizer;
  }
  const fs::path of_model = is_gguf ? where.model : companions,
                 first = settings::tokenizer_beside(of_model, where.adapter);
  std::vector<fs::path> places;
  for (const fs::path& place : {first, first == where.adapter ? of_model : where.adapter}) {
    if (!place.empty()) places.push_back(place);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    try {
      return text::Tokenizer::load(places[i]);
    } catch (const text::MissingTokenizer&) {
      if (i + 1 == places.size()) throw;
    }
  }
  throw ModelError(tr("{}: no tokenizer goes with it", where.model.string()),
                   tr("name one: --tokenizer DIR"));
}

/// Another system's numbers are not what this model's generation_config.json says.
void report_profile(const Options& options) {
  std::string values;
  const Json all = options.to_json();
  for (const std::string& name : options.from_profile())
    values += fmt::format("{}{} {}", values.empty() ? "" : ", ", name, all.at(name).dump());
  if (values.empty()) return;
  log::notice(
      "defaults of --profile {}, chosen by {}: {}; --profile danlu leaves them to the "
      "model",
      options.profile().name, options.profile().by, values);
}

}  // namespace

std::string template_named(const Options& options) {
  const std::string named = options.get_string_or("prompt_type", "");
  if (!options.get_bool_or("hf_chat_template", false))
    return settings::template_of_line(options, named);
  if (!named.empty() && named != "auto" && named != "hf") {
    throw UsageError(
        tr("[template] {} asks for the tokenizer's own template, {} for {}",
           options.given_as("hf_chat_template"), options.given_as("prompt_type"), named),
        tr("give one of them"));
  }
  return "hf";
}

Json template_arguments_from(const Options& options) {
  Json variables = Json::object();
  if (options.has_value("chat_template_kwargs"))
    variables = options.get_json("chat_template_kwargs");
  if (options.has_value("enable_thinking"))
    variables["enable_thinking"] = options.get_bool("enable_thinking");
  return variables;
}

std::shared_ptr<const text::ChatEncoder> encoder_with(const Options& options,
                                                      const ModelLocation& where,
                                                      const InferenceModel& loaded,
                                                      const Json& variables) {
  return text::choose_template(loaded.tokenizer,
                               template_request(options, where, loaded.model->config()), variables)
      .required();
}

std::optional<double> lora_alpha_from(const Options& options) {
  if (!options.has_value("lora_alpha")) return std::nullopt;
  return options.get_float("lora_alpha");
}

fs::path model_path(const std::string& name, const char* flag) {
  if (fs::exists(name)) return name;
  // A short name or hub id is looked up in the local caches, as training does.
  if (name.empty() || name.front() == '/' || name.front() == '.') no_such_model(name, flag);
  return settings::locate_model(name, flag);
}

fs::path base_of_adapter(const fs::path& adapter) {
  const std::string named = weights::load_peft_config(adapter).base_model;
  if (named.empty()) {
    throw UsageError(
        tr("[--adapters] {}: the adapter does not name its base model", adapter.string()),
        tr("give it with --model"));
  }
  const fs::path base =
      fs::exists(adapter / named) ? adapter / named : model_path(named, "--adapters");
  log::info("base model: {} (named by the adapter)", base.string());
  return base;
}

ModelLocation locate_model(const Options& options) {
  return locate_model(options, options.get_string_or("adapters", ""));
}

namespace {

/// --model_type: a model's short name, or of ms-swift 3 the name of a family, which says nothing of
/// where its weights are; then `adapter` does.
fs::path model_of_type(const Options& options, const fs::path& adapter) {
  const std::string name = options.get_string_or("model_type", "");
  if (name.empty() || adapter.empty()) return name;
  try {
    return model_path(name, "--model_type");
  } catch (const ModelError&) {
    return {};
  }
}

}  // namespace

ModelLocation locate_model(const Options& options, const fs::path& adapter) {
  const fs::path model = options.has_value("model") ? fs::path(options.get_string("model"))
                                                    : model_of_type(options, adapter);
  return locate_model(options, model, adapter);
}

ModelLocation locate_model(const Options& options, const fs::path& model, const fs::path& adapter,
                           const char* flag) {
  ModelLocation where;
  where.model = model;
  where.adapter = adapter;
  if (where.model.empty() && where.adapter.empty()) {
    throw UsageError(tr("[--model] no model was given"),
                     tr("give --model DIR, or --adapters CHECKPOINT"));
  }
  // One directory may be all that is known: a full checkpoint is a model, an adapter names its
  // base.
  if (where.adapter.empty() && fs::exists(where.model / "adapter_config.json") &&
      !fs::exists(where.model / "config.json")) {
    std::swap(where.adapter, where.model);
  }
  bool base_is_named = false;
  if (!where.adapter.empty()) {
    if (!fs::is_directory(where.adapter))
      no_such_model(where.adapter, options.given_as("adapters"));
    if (fs::exists(where.adapter / "adapter_config.json")) {
      base_is_named = !where.model.empty();
      if (!base_is_named) where.model = base_of_adapter(where.adapter);
    } else if (weights::detect_format(where.adapter) == weights::Format::kMegatron &&
               !where.model.empty()) {
      // MindSpeed's LoRA: loading says whether adapters are in it.
    } else if (!where.model.empty()) {
      throw UsageError(tr("[{}] {}: no adapter_config.json there", options.given_as("adapters"),
                          where.adapter.string()),
                       tr("a full checkpoint is given as --model alone"));
    } else {
      std::swap(where.adapter, where.model);
    }
  }
  where.model = model_path(where.model.string(), flag);
  if (base_is_named) weights::report_other_base(where.adapter, where.model);
  where.record = text::directory_of_record(where.model, where.adapter);
  where.run_args = text::read_record(where.record);
  return where;
}

void change_as_asked(const Options& options, const fs::path& adapter,
                     weights::CheckpointSource& opened) {
  settings::make_changes(settings::changes_to_ask(options, adapter, opened.config), opened);
}

weights::CheckpointSource open_model(const Options& options, const fs::path& path,
                                     const fs::path& adapter, bool scores) {
  weights::CheckpointSource opened = weights::open_checkpoint_source(
      path, {.config_dir = options.get_string_or("hf_config", ""),
             .fallback_dir = text::directory_of_model(options.get_string_or("tokenizer", "")),
             .iteration = options.get_string_or("iteration", ""),
             .all_tensors = true,
             .scores = scores,
             .lora_alpha = lora_alpha_from(options)});
  change_as_asked(options, adapter, opened);
  return opened;
}

namespace {

/// Says which flags about pictures have no effect, since the model reads text alone.
void report_idle_media(const Options& options) {
  const std::vector<std::string> idle = settings::given_media_flags(options);
  if (!idle.empty())
    log::notice("{}: without effect, the model reads text alone", fmt::join(idle, ", "));
}

}  // namespace

fs::path processor_directory(const Options& options, const ModelLocation& where) {
  if (options.has_value("image_processor")) {
    fs::path named = options.get_string("image_processor");
    if (named.filename() == "preprocessor_config.json") named = fs::absolute(named).parent_path();
    if (data::reads_media(named)) return named;
    throw ModelError(tr("[{}] {}: no preprocessor_config.json of Qwen2-VL or Qwen2.5-VL there",
                        options.given_as("image_processor"), named.string()),
                     tr("name the model's directory as it was downloaded"));
  }
  for (const fs::path& place : {where.model, fs::path(options.get_string_or("hf_config", "")),
                                text::directory_of_model(options.get_string_or("tokenizer", ""))}) {
    if (!place.empty() && data::reads_media(place)) return place;
  }
  return {};
}

namespace {

/// Prompts as the model was trained on them, where the line does not say otherwise. An adapter that
/// is answered beside others says so for itself: what `where` has no place for.
void take_prompts(const Options& options, const ModelLocation& where,
                  const arch::ModelConfig& config, InferenceModel& loaded) {
  const fs::path record = text::directory_of_record(where.model, where.adapter);
  TrainedPrompt trained = trained_prompt(options, record);
  try {
    loaded.recorded_variables = trained.variables;
    loaded.encoder = encoder_for(options, where, config, loaded);
  } catch (const UsageError&) {
    if (trained.variables.empty()) throw;
    // Training passes over variables that its template does not know, too.
    loaded.recorded_variables = trained.variables = Json::object();
    loaded.encoder = encoder_for(options, where, config, loaded);
  }
  if (!loaded.encoder) return;
  if (!trained.system.empty()) loaded.system = trained.system;
  report_trained_prompt(trained, record);
}

/// A model with a head in place of the vocabulary's, which its files or its adapter bring.
weights::CheckpointSource open_scorer(const Options& options, const ModelLocation& where) {
  settings::ModelSource source;
  source.path = where.model;
  source.adapter = where.adapter;
  source.config_dir = options.get_string_or("hf_config", "");
  source.fallback_dir = text::directory_of_model(options.get_string_or("tokenizer", ""));
  source.iteration = options.get_string_or("iteration", "");
  source.adapter_alpha = lora_alpha_from(options);
  source.score = where.score;
  weights::CheckpointSource opened = settings::open_model(source);
  change_as_asked(options, where.adapter, opened);
  return opened;
}

/// Makes them part of the network.
void take_predictions(const fs::path& path, weights::CheckpointSource& source) {
  if (!weights::has_predictions(source, /*with_state=*/false)) {
    throw ModelError(
        tr("{}: the model has no layer that predicts further ahead (MTP)", path.string()),
        tr("{{\"method\": \"ngram\"}} guesses without one"));
  }
  weights::require_shared_predictions(source.config, *source.model, path);
  source.config.predicts_ahead = true;
}

/// Tells which weights are not held as their files have them. Returns how they are quantised, for
/// InferenceModel::quantize.
std::string say_how_weights_are_held(const weights::WidenedBlocks& widened,
                                     const WantedQuantisation& wanted,
                                     const models::Quantisation& quantisation,
                                     const models::CausalLM& model) {
  if (widened.tensors > 0) {
    const at::ScalarType type = model.dtype();
    const auto bytes = widened.elements * static_cast<int64_t>(c10::elementSize(type));
    log::info("weights: {} matrices stored as {} are held as {}, {:.1f} MB", widened.tensors,
              fmt::join(widened.types, ", "), dtype_name(device::dtype_of(type)),
              static_cast<double>(bytes) / 1e6);
  }
  if (const auto held = models::held_bytes(model); held.in_blocks > 0) {
    log::info("weights: {:.1f} MB, {:.1f} MB of them in blocks",
              static_cast<double>(held.all) / 1e6, static_cast<double>(held.in_blocks) / 1e6);
    return wanted.described();
  }
  if (quantisation.make) {
    log::warning("{}: nothing is quantised, since the rows of no matrix are a multiple of {} long",
                 wanted.flag, block_traits(*quantisation.make).numbers);
  }
  return "none";
}

}  // namespace

InferenceModel load_for_inference(const Options& options, const ModelLocation& where, bool raw,
                                  bool tells_apart, const parallel::Mesh& mesh, bool predicts) {
  report_profile(options);
  const bool in_parts = mesh.shape().size() > 1;
  InferenceModel loaded;
  loaded.model_directory = where.model;
  loaded.adapter_directory = where.adapter;
  weights::CheckpointSource source =
      where.score ? open_scorer(options, where) : open_model(options, where.model, where.adapter);
  if (predicts) take_predictions(where.model, source);
  weights::report_idle_iteration(source, options.get_string_or("iteration", ""),
                                 options.given_as("iteration"));
  loaded.tokenizer = tokenizer_for(options, where, source.companions);
  loaded.defaults = infer::load_generation_defaults(source.config, source.companions);
  add_stop_tokens(options, *loaded.tokenizer, loaded.defaults.stop_ids);
  loaded.system = settings::system_message_from(options);
  if (source.config.encoder && !where.embeds && !where.score) arch::require_answers(source.config);
  if (source.config.encoder)
    loaded.encoder = std::make_shared<text::RawTextEncoder>(loaded.tokenizer);
  else if (!raw)
    take_prompts(options, where, source.config, loaded);
  if (source.config.vision && in_parts)
    log::notice("pictures are not read with --tensor_parallel_size: the model answers text alone");
  if (const fs::path place = processor_directory(options, where);
      source.config.vision && !place.empty() && !in_parts) {
    loaded.media =
        PromptMedia::of(settings::with_recorded_media(options, where.run_args, where.record), place,
                        *loaded.tokenizer, tells_apart);
    if (loaded.media)
      train::require_fitting_processor(*source.config.vision, loaded.media->settings().processor);
  } else {
    report_idle_media(options);
  }
  if (!where.adapter.empty()) warn_if_merged_already(where.model, where.adapter);
  const at::Device device = device::select(options.get_string("device"),
                                           in_parts ? rank_place_from_environment().local_rank : 0);
  const auto wanted = as_adapters_were_trained(wanted_quantisation(options), source, where.adapter);
  const models::Quantisation quantisation = quantisation_for(wanted, source, device, in_parts);
  loaded.model = models::load_model(source, mesh, type_of(options), device, {}, {}, quantisation);
  loaded.quantize = say_how_weights_are_held(source.widened, wanted, quantisation, *loaded.model);
  if (!where.adapter.empty())
    models::load_adapter(*loaded.model, where.adapter, lora_alpha_from(options));
  if (static_cast<int64_t>(loaded.tokenizer->size()) > loaded.model->config().vocab_size) {
    throw ModelError(
        tr("{}: the tokenizer has {} ids, the model's vocabulary only {}", where.model.string(),
           loaded.tokenizer->size(), loaded.model->config().vocab_size),
        tr("the tokenizer files do not belong to this model"));
  }
  device::release_host_memory();  // what loading alone needed
  return loaded;
}

infer::SamplingParams sampling_from(const Options& options,
                                    const infer::GenerationDefaults& defaults) {
  infer::SamplingParams params = defaults.sampling;
  bool asked_to_sample = false;
  auto take_float = [&](const char* name, double& value) {
    if (!options.is_set(name)) return false;
    value = options.get_float(name);
    return options.is_given(name);  // a profile's number only shapes the draws
  };
  asked_to_sample |= take_float("temperature", params.temperature);
  asked_to_sample |= take_float("top_p", params.top_p);
  asked_to_sample |= take_float("min_p", params.min_p);
  take_float("repetition_penalty", params.repetition_penalty);
  take_float("length_penalty", params.length_penalty);
  if (options.is_set("top_k")) {
    params.top_k = std::max<int64_t>(0, options.get_int("top_k"));  // -1: vLLM's word for all
    asked_to_sample |= options.is_given("top_k");
  }
  if (options.is_set("num_beams")) params.num_beams = options.get_int("num_beams");
  if (asked_to_sample) params.do_sample = true;
  if (options.is_set("do_sample")) params.do_sample = options.get_bool("do_sample");
  params.seed = static_cast<uint64_t>(options.get_int_or("seed", 0));
  if (params.temperature == 0) {
    params.do_sample = false;
    params.temperature = 1.0;
  }
  params.validate();
  return params;
}

int64_t max_new_tokens_from(const Options& options, const infer::GenerationDefaults& defaults) {
  const int64_t value = options.is_set("max_new_tokens") ? options.get_int("max_new_tokens")
                                                         : defaults.max_new_tokens.value_or(512);
  if (value <= 0) throw UsageError(tr("[--max-new-tokens] must be > 0, got {}", value));
  return value;
}

}  // namespace danlu::cli
