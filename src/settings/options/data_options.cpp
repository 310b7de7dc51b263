#include "settings/options/data_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/option_text.h"
#include "data/tokenized_dataset.h"
#include "settings/options/from_options.h"
#include "settings/options/media_flags.h"
#include "settings/options/model_names.h"
#include "settings/options/output_options.h"
#include "settings/options/system_message.h"
#include "settings/options/task_options.h"
#include "text/template_file.h"

namespace danlu::settings {
namespace {

/// A profile's split gives way to what the user said of held-out data in other words.
std::string split_from(const Options& options) {
  const bool own = options.is_given("split");
  const bool otherwise = options.is_given("val_dataset") || options.is_given("val_ratio") ||
                         options.is_given("cached_val_dataset");
  return own || !otherwise ? options.get_string_or("split", "") : "";
}

/// --max_length, or 2048 and never more than `window`.
int64_t max_length_from(const Options& options, int64_t window) {
  const bool chosen =
      options.has_value("max_length") && options.source("max_length") != OptionSource::kProfile;
  if (chosen) return options.get_int("max_length");
  return std::min(window, options.get_int_or("max_length", 2048));
}

/// One name for both languages, or the Chinese and the English one.
void read_names(const Options& options, const char* flag, std::string& chinese,
                std::string& english) {
  const std::vector<std::string> names = options.get_list(flag);
  if (names.empty()) return;
  if (names.size() > 2) {
    throw UsageError(tr("[train] {}: one name, or a Chinese and an English one, got {}",
                        options.given_as(flag), names.size()),
                     tr("a name with blanks stands in quotation marks, and none has commas"));
  }
  chinese = names.front();
  english = names.back();
}

/// As ms-swift reads a stream: in the order of the files, after the first shuffle.
bool streams(const Options& options) {
  return is_of_swift(options.profile().name) && options.get_bool_or("streaming", false);
}

/// ms-swift shuffles twice: the rows when they are read, and what is read of them every epoch;
/// where answers are judged, only as --dataset_shuffle says.
void take_order(const Options& options, const DataOf& of, DataConfig& data) {
  const bool rows = options.get_bool_or("dataset_shuffle", true);
  const bool every_epoch =
      of.is_rewarded ? rows
                     : options.get_bool_or("train_dataloader_shuffle", true) && !streams(options);
  data.shuffle =
      options.get_bool("shuffle") && !options.get_bool("no_shuffle") && (rows || every_epoch);
  data.shuffles_once = data.shuffle && !every_epoch;
}

/// Whether samples share passes, and whether their packs count as samples: in ms-swift and
/// LLaMA-Factory a data set that is packed has fewer samples, and fewer steps.
void take_packs(const Options& options, const DataOf& of, DataConfig& data) {
  // LLaMA-Factory's files have both names, and either asks for packs.
  const bool by_neat = options.get_bool_or("neat_packing", false);
  const bool packs = by_neat || options.get_bool("packing");
  const bool is_told = by_neat || options.is_given("packing");
  // padding_free asks for what every pass has: a micro-batch's samples side by side, unpadded.
  const bool asks_for_padding =
      options.has_value("padding_free") && !options.get_bool("padding_free");
  data.share_passes = packs && (is_told || !asks_for_padding);
  data.pack_sequences = options.get_bool("pack_sequences");
  const std::string& system = options.profile().name;
  const bool counts_packs = is_of_swift(system) || system == "llamafactory";
  const bool of_rows =
      of.may_be_packed && (of.task == Task::kSft || has_texts_as_samples(options, of.task));
  if (!counts_packs || !of_rows || !is_told || !packs || options.is_given("pack_sequences")) return;
  data.pack_sequences = true;
  log::notice(
      "{}: packs of {} tokens count as samples, as in {}; --pack_sequences false leaves each row a "
      "sample",
      options.given_as(by_neat ? "neat_packing" : "packing"), data.max_length, system);
}

/// ms-swift draws the rows of path#n, and repeats a data set that has fewer, but of a stream it
/// takes the first; LLaMA-Factory draws by num_samples in its dataset_info.json.
void take_choice(const Options& options, DataConfig& data) {
  const std::string& system = options.profile().name;
  if (is_of_swift(system) && !streams(options)) {
    data.choice = options.get_bool_or("dataset_shuffle", true) ? data::RowChoice::kDrawn
                                                               : data::RowChoice::kRepeated;
  }
  if (system == "llamafactory") data.choice_by_info = data::RowChoice::kDrawn;
}

/// Who wrote cached samples held out what was to be.
void hold_nothing_out(const Options& options, DataConfig& data) {
  if (data.validation_ratio + static_cast<double>(data.validation_rows) > 0 &&
      data.validation.empty()) {
    log::notice("{}: nothing is held out; --cached_val_dataset, --val_dataset or --val_ratio does",
                options.given_as("cached_dataset"));
  }
  data.validation_ratio = 0;
  data.validation_rows = 0;
}

/// Where samples are kept, and of which data sets they are.
void take_sources(const Options& options, bool looks, DataConfig& data) {
  data.cache_dir = options.has_value("cache_dir") ? fs::path(options.get_string("cache_dir"))
                                                  : data::default_cache_dir();
  data.train = options.get_list("dataset");
  data.validation = options.get_list("val_dataset");
  const std::vector<std::string> cached = options.get_list("cached_dataset"),
                                 cached_val = options.get_list("cached_val_dataset");
  data.train.insert(data.train.end(), cached.begin(), cached.end());
  data.validation.insert(data.validation.end(), cached_val.begin(), cached_val.end());
  for (auto* list : {&data.train, &data.validation}) {
    for (std::string& item : *list) {
      if (looks) item = locate_dataset(item, data.cache_dir);
    }
  }
}

/// What MindSpeed-LLM cuts at its end, and not in shares.
bool cuts_ends(const Options& options, ObjectiveKind kind) {
  return options.get_bool("reset_attention_mask") || options.get_bool_or("cut_max_seqlen", false) ||
         kind == ObjectiveKind::kProcessReward;
}

/// A prompt that is answered keeps its end: what a template writes there makes it one. A profile's
/// rule for rows with answers gives way. Errors: UsageError where rows that are to be split are
/// conversations, the ends of prompts are to be cut, or the line names two ways to cut.
std::string truncation_from(const Options& options, const DataOf& of) {
  const std::string name = options.get_string("truncation");
  if (of.is_rewarded && (name == "right" || name == "shares")) {
    if (!options.is_given("truncation")) return "left";
    throw UsageError(
        tr("[train] {} {}: the model answers what stands at a prompt's end, which would "
           "be cut off",
           options.given_as("truncation"), name),
        tr("left keeps the ends of long prompts, delete leaves these prompts out"));
  }
  const bool is_profiles = options.source("truncation") == OptionSource::kProfile;
  if (is_profiles && takes_texts_apart(options)) return "right";
  if (is_profiles && options.profile().name == "mindspeed" && cuts_ends(options, of.kind))
    return "right";
  if (options.get_bool_or("cut_max_seqlen", false)) {
    if (!options.is_given("truncation") || name == "right") return "right";
    throw UsageError(tr("[train] {} means --truncation right, beside {} {}; give one",
                        options.given_as("cut_max_seqlen"), options.given_as("truncation"), name));
  }
  if (name != "split" || has_texts_as_samples(options, of.task)) return name;
  if (of.task == Task::kPretrain) {
    log::notice("{} split: texts fill rows of max_length one behind the other, and none is cut off",
                options.given_as("truncation"));
    return "delete";
  }
  throw UsageError(
      tr("[train] {} split: only plain texts are split", options.given_as("truncation")),
      tr("danlu pretrain reads plain texts; left and right cut conversations"));
}

/// Whether a part that the line holds out is trained all the same, as ms-swift does where nothing
/// evaluates it, and of a stream. Elsewhere it is held out for nothing, which is said.
bool gives_back_held_out(const Options& options) {
  const bool asks = options.is_given("val_ratio") && options.get_float("val_ratio") > 0;
  if (!asks || options.has_value("write_samples")) return false;
  const std::string said =
      fmt::format("{} {:g}", options.given_as("val_ratio"), options.get_float("val_ratio"));
  if (is_of_swift3(options) && streams(options)) {
    log::notice("{}: nothing is held out of streams, as in ms-swift; --val_dataset is evaluated",
                said);
    return true;
  }
  if (evaluates(options)) return false;
  if (is_of_swift3(options)) {
    log::notice("{}: nothing is held out, as in ms-swift where nothing is evaluated", said);
    return true;
  }
  log::warning("{}: rows are held out, and nothing evaluates them", said);
  return false;
}

/// The rows that are held out, as a part or, above 1, as a number. Errors: UsageError.
void take_held_out(const Options& options, const DataOf& of, DataConfig& data) {
  if (gives_back_held_out(options)) return;
  const double said =
      options.get_float_or("val_ratio", of.task == Task::kSft && evaluates(options) ? 0.01 : 0.0);
  if (said < 1) {
    data.validation_ratio = said;
    data.splits_rows = said > 0 && of.task == Task::kSft && is_of_swift3(options);
    return;
  }
  const std::string flag = options.given_as("val_ratio");
  if (said == 1 || said != std::floor(said)) {
    throw UsageError(
        tr("[train] {} {}: expected a part below 1, or a number of rows above 1", flag, said));
  }
  if (of.task == Task::kPretrain && !has_texts_as_samples(options, of.task)) {
    throw UsageError(tr("[train] {} {}: texts of pretrain are held out as a part", flag, said),
                     tr("give a part below 1, or --val_dataset FILE"));
  }
  data.validation_rows = static_cast<int64_t>(said);
}

/// LLaMA-Factory's tokenized_path: the samples that are there are what is trained on, else they are
/// written there. Errors: UsageError for a directory of something else.
void take_tokenized_path(const Options& options, bool looks, DataConfig& data) {
  if (!options.has_value("tokenized_path") || !looks) return;
  const fs::path place = options.get_string("tokenized_path");
  const std::string flag = options.given_as("tokenized_path");
  std::error_code unknown;
  if (fs::exists(place / "train" / "rows.jsonl", unknown)) {
    log::notice(
        "{} {}: the samples there are trained on; what else says which rows, and how they "
        "are tokenised, has no effect",
        flag, place.string());
    data.train = {(place / "train").string()};
    data.validation.clear();
    if (fs::exists(place / "val" / "rows.jsonl", unknown))
      data.validation = {(place / "val").string()};
    data.validation_ratio = 0;
    data.validation_rows = 0;
    return;
  }
  if (fs::exists(place, unknown) &&
      !(fs::is_directory(place, unknown) && fs::is_empty(place, unknown)))
    throw UsageError(tr("[train] {} {}: holds no samples that danlu wrote", flag, place.string()),
                     tr("name a directory that is not there: rows are tokenised into it once, and "
                        "the same line then trains on them"));
  log::notice(
      "{} {}: nothing is trained yet: the samples are written there, and the same line then "
      "trains on them",
      flag, place.string());
  data.write_to = place;
}

/// Megatron's steps go on into the next epoch; Megatron-SWIFT leaves out what fills no micro-batch
/// of all ranks before.
void take_ends_of_epochs(const Options& options, const DataOf& of, DataConfig& data) {
  const std::string& system = options.profile().name;
  const bool of_rows = of.task == Task::kSft || has_texts_as_samples(options, of.task);
  const bool draws = of.kind == ObjectiveKind::kPolicy || of.kind == ObjectiveKind::kDistillation;
  data.drops_last = options.get_bool("dataloader_drop_last");
  data.runs_on = system == "mindspeed" && of.task == Task::kSft && !data.drops_last;
  if (system != "megatron-swift" || !of_rows || draws) return;
  const bool is_refused = options.is_given("dataloader_drop_last") && !data.drops_last;
  data.drops_last = data.runs_on = !is_refused;
}

}  // namespace

bool has_texts_as_samples(const Options& options, Task task) {
  if (task != Task::kPretrain || !is_of_swift(options.profile().name)) return false;
  const std::vector<std::string> names = options.get_list("dataset");
  std::error_code unknown;
  return std::none_of(names.begin(), names.end(),
                      [&](const std::string& name) { return fs::exists(name + ".idx", unknown); });
}

namespace {

void report_texts_as_samples(const Options& options, Task task) {
  if (!has_texts_as_samples(options, task)) return;
  log::notice(
      "each text is a sample, as in {}; with --profile danlu texts fill rows of max_length one "
      "behind the other",
      options.profile().name);
}

}  // namespace

DataConfig data_from(const Options& options, const DataOf& of) {
  const bool looks = !of.is_planned;
  DataConfig data;
  take_sources(options, looks, data);
  if (looks) report_texts_as_samples(options, of.task);
  take_held_out(options, of, data);
  if (!options.get_list("cached_dataset").empty() && !options.is_given("val_ratio"))
    hold_nothing_out(options, data);
  data.megatron_split = split_from(options);
  data.max_length = max_length_from(options, of.window);
  data.truncation = truncation_from(options, of);
  take_packs(options, of, data);
  take_order(options, of, data);
  data.write_to = options.get_string_or("write_samples", "");
  take_ends_of_epochs(options, of, data);
  take_tokenized_path(options, looks, data);
  data.seed = static_cast<uint64_t>(options.get_int_or("data_seed", static_cast<int64_t>(of.seed)));
  data.max_rows = options.get_int("max_samples");
  data.texts_end_epochs = options.profile().name == "llamafactory" && of.task == Task::kPretrain;
  data.limits_validation = options.profile().name == "llamafactory";
  take_choice(options, data);
  data.max_rows_of_all = options.get_int("max_total_samples");
  data.media = media_flags_from(options);
  data.strict = options.get_bool("strict");
  data.max_dropped_ratio = options.get_float("max_dropped_ratio");
  data.workers = options.get_int("workers");
  if (options.has_value("dataloader_num_workers"))
    data.media_workers = options.get_int("dataloader_num_workers");
  data.dataset_dir = options.get_string_or("dataset_dir", "");
  if (looks && !data.dataset_dir.empty() && !fs::is_directory(data.dataset_dir)) {
    throw UsageError(tr("[train] {} {}: no such directory", options.given_as("dataset_dir"),
                        data.dataset_dir.string()));
  }
  data.overwrite_cache = options.get_bool("overwrite_cache");
  data.append_eod = options.get_bool("append_eod");
  data.eod_mask_loss = options.get_bool("eod_mask_loss");
  data.reset_position_ids = options.get_bool("reset_position_ids");
  data.reset_attention_mask = options.get_bool("reset_attention_mask");
  data.handler_name = options.get_string_or("handler_name", "");
  if (options.has_value("columns")) data.columns = options.get_json("columns");
  if (options.has_value("map_keys")) data.map_keys = options.get_json("map_keys");
  data.json_keys = options.get_list("json_keys");
  data.template_name = template_of_line(options, options.get_string("template"));
  data.has_hermes_tools = options.get_string_or("agent_template", "none") == "hermes";
  data.templates_file = options.get_string_or("templates_file", "");
  data.system = system_message_from(options);
  read_names(options, "model_name", data.names.chinese_name, data.names.english_name);
  read_names(options, "model_author", data.names.chinese_author, data.names.english_author);
  if (options.has_value("enable_thinking"))
    data.template_variables = Json{{"enable_thinking", options.get_bool("enable_thinking")}};
  // LLaMA-Factory's default: an answer without a thought learns the empty one.
  data.variables_are_assumed =
      data.template_variables.is_null() && options.profile().name == "llamafactory";
  if (data.variables_are_assumed) data.template_variables = Json{{"enable_thinking", true}};
  return data;
}

std::string template_of_line(const Options& options, const std::string& name) {
  return options.profile().name == "llamafactory" ? text::name_in_llamafactory(name) : name;
}

int64_t longest_sample(const std::string& verb, const arch::ModelConfig& model) {
  return model.max_positions > 0 && verb != kPlanVerb ? model.max_positions : INT64_MAX;
}

}  // namespace danlu::settings
