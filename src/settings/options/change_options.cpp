#include "settings/options/change_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/nearest_name.h"
#include "weights/lora/peft.h"

namespace danlu::settings {
namespace {

/// Rows of a grown table: ms-swift's and LLaMA-Factory's multiples.
constexpr int64_t kRowsOfSwift = 128, kRowsOfLlamaFactory = 64;

bool is_off(const std::string& text) { return text.empty() || lower_case(text) == "none"; }

/// Errors: UsageError for text that is neither a JSON object nor one of `words`.
Json scaling_from(const Options& options, const std::vector<std::string>& words) {
  const std::string text = options.get_string("rope_scaling"),
                    flag = options.given_as("rope_scaling");
  if (text.starts_with('{')) {
    try {
      return parse_json(text, flag);
    } catch (const DataError& error) {
      throw UsageError(error.what(), "--rope_scaling '{\"rope_type\": \"yarn\", \"factor\": 4}'");
    }
  }
  const std::string word = lower_case(text);
  if (std::find(words.begin(), words.end(), word) != words.end()) return {{"rope_type", word}};
  const auto near = nearest_name(word, words);
  throw UsageError(tr("[{}] \"{}\" is neither a kind ({}) nor a JSON object", flag, text,
                      fmt::join(words, ", ")),
                   near ? tr("did you mean {}?", *near)
                        : "--rope_scaling '{\"rope_type\": \"yarn\", \"factor\": 4}'");
}

std::optional<int64_t> length_from(const Options& options) {
  if (!options.is_given("max_model_len")) return std::nullopt;
  return options.get_int("max_model_len");
}

/// LLaMA-Factory's: the factor follows from the longest sample, and there is none where that fits.
arch::PositionChange positions_of_llamafactory(const Options& options,
                                               const arch::ModelConfig& model, Json scaling) {
  const std::string flag = options.given_as("rope_scaling");
  const bool is_llama3 = arch::scaling_type(scaling) == "llama3";
  // Its llama3 counts as the others do.
  Json counted = {{"rope_type", is_llama3 ? Json("linear") : scaling["rope_type"]}};
  arch::PositionChange change =
      completed_positions(model, counted, options.get_int("max_length"), flag);
  const auto factor = change.scaling.at("factor").get<double>();
  const auto original = change.scaling.at("original_max_position_embeddings").get<int64_t>();
  if (factor <= 1.0) {
    log::warning(
        "{} {}: samples have up to {} tokens, and the model {} positions: nothing is "
        "stretched",
        flag, options.get_string("rope_scaling"), options.get_int("max_length"), original);
    return {};
  }
  change.max_positions = static_cast<int64_t>(static_cast<double>(original) * factor);
  if (is_llama3)
    change.scaling.update(
        {{"rope_type", "llama3"}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}});
  return change;
}

arch::PositionChange positions_to_train(const Options& options, const arch::ModelConfig& model) {
  const std::optional<int64_t> length = length_from(options);
  if (!is_off(options.get_string_or("rope_scaling", ""))) {
    const bool by_length = options.profile().name == "llamafactory" && !length;
    Json scaling = scaling_from(
        options, by_length ? std::vector<std::string>{"linear", "dynamic", "yarn", "llama3"}
                           : std::vector<std::string>{"linear", "dynamic", "yarn"});
    if (by_length && scaling.size() == 1)
      return positions_of_llamafactory(options, model, std::move(scaling));
    return completed_positions(model, std::move(scaling), length, options.given_as("rope_scaling"));
  }
  if (!length) return {};
  // ms-swift: a model that stretches its positions does so to another length.
  Json scaling = arch::scaling_of(model.raw);
  static const std::set<std::string> kStretched = {"linear", "dynamic", "yarn"};
  if (kStretched.count(arch::scaling_type(scaling))) {
    scaling.erase("factor");
    return completed_positions(model, std::move(scaling), length,
                               options.given_as("max_model_len"));
  }
  if (scaling.is_null() || scaling.empty()) {
    log::notice("{}: the model's positions are not stretched; {} says how long samples may be",
                options.given_as("max_model_len"), options.given_as("max_length"));
  } else {
    log::notice("{}: positions stay as config.json stretches them ({})",
                options.given_as("max_model_len"), arch::scaling_type(scaling));
  }
  return {};
}

/// The words of ms-swift's list, and those of its files; of LLaMA-Factory's, which commas divide.
/// Errors: UsageError for a file that is not there.
std::vector<std::string> listed_tokens(const Options& options) {
  const bool is_divided =
      options.profile().name == "llamafactory" || options.get_bool("resize_vocab");
  std::vector<std::string> tokens;
  for (const std::string& entry : options.get_list("new_special_tokens")) {
    if (is_divided || !entry.ends_with(".txt")) {
      std::istringstream parts(entry);
      std::string part;
      if (!is_divided) tokens.push_back(entry);
      while (is_divided && std::getline(parts, part, ',')) tokens.push_back(part);
      continue;
    }
    if (!fs::is_regular_file(entry)) {
      throw UsageError(tr("[{}] {}: no such file", options.given_as("new_special_tokens"), entry),
                       tr("a .txt file holds one token in a line"));
    }
    std::istringstream words(read_file(entry));
    for (std::string word; words >> word;) tokens.push_back(word);
  }
  return tokens;
}

/// Errors: UsageError for a token without a character to be seen.
std::vector<text::NewToken> tokens_from(const Options& options) {
  std::vector<text::NewToken> tokens;
  const auto add = [&](const char* flag, const std::vector<std::string>& words, bool special) {
    for (const std::string& word : words) {
      if (word.find_first_not_of(" \t\r\n") == word.npos)
        throw UsageError(tr("[{}] a token has no character to be seen", options.given_as(flag)));
      const auto is_it = [&](const text::NewToken& other) { return other.content == word; };
      if (std::none_of(tokens.begin(), tokens.end(), is_it)) tokens.push_back({word, special});
    }
  };
  add("add_tokens", options.get_list("add_tokens"), /*special=*/false);
  add("add_special_tokens", options.get_list("add_special_tokens"), /*special=*/true);
  add("new_special_tokens", listed_tokens(options), /*special=*/true);
  return tokens;
}

/// Whether rows are made as LLaMA-Factory makes them, whose flags ask for them.
bool grows_as_llamafactory(const Options& options) {
  return options.get_bool("resize_vocab") || !options.get_list("add_tokens").empty() ||
         !options.get_list("add_special_tokens").empty() ||
         options.has_value("init_special_tokens");
}

void add_rows(const Options& options, const ModelSource& source, const arch::ModelConfig& model,
              ModelChanges& changes) {
  const bool as_llamafactory = grows_as_llamafactory(options);
  const int64_t multiple = as_llamafactory ? kRowsOfLlamaFactory : kRowsOfSwift;
  const text::GrownTokenizer grown = text::load_with_tokens(source.tokenizer, changes.tokens);
  weights::NewRows rows = rows_of_tokens(model, grown, multiple);
  const auto size = static_cast<int64_t>(grown.tokenizer->size());
  if (rows.vocab_size == 0 && options.get_bool("resize_vocab") && size > model.vocab_size)
    rows.vocab_size = (size + multiple - 1) / multiple * multiple;
  // Adapters that are trained further may have more.
  rows.vocab_size = std::max(rows.vocab_size, changes.rows.vocab_size);
  rows.noise = as_llamafactory ? weights::RowNoise::kOfWidth : weights::RowNoise::kSlight;
  rows.seed = static_cast<uint64_t>(options.get_int("seed"));
  if (!grown.new_ids.empty()) {
    log::info(
        "{} new tokens, ids {} to {}{}", grown.new_ids.size(), grown.new_ids.front(),
        grown.new_ids.back(),
        rows.vocab_size > 0
            ? tr("; the vocabulary grows from {} to {} rows", model.vocab_size, rows.vocab_size)
            : tr(", in rows that were padding: the vocabulary stays {}", model.vocab_size));
  }
  changes.rows = std::move(rows);
}

/// vLLM's keys of config.json. Errors: UsageError for one that says nothing of positions.
arch::PositionChange overrides_from(const Options& options, const arch::ModelConfig& model) {
  const std::string flag = options.given_as("hf_overrides");
  Json keys = options.get_json("hf_overrides");
  if (keys.is_object() && keys.size() == 1 && keys.contains("text_config"))
    keys = Json(keys["text_config"]);
  if (!keys.is_object())
    throw UsageError(tr("[{}] must be a JSON object, got {}", flag, dump_text(keys)));
  arch::PositionChange change;
  for (const auto& [key, value] : keys.items()) {
    if (key == "max_position_embeddings") {
      change.max_positions = json_get<int64_t>(keys, key);
    } else if (key == "rope_theta") {
      change.theta = json_get<double>(keys, key);
    } else if ((key == "rope_scaling" || key == "rope_parameters") && value.is_object()) {
      Json scaling = value;
      if (const auto theta = json_get<double>(scaling, "rope_theta")) change.theta = theta;
      scaling.erase("rope_theta");
      if (scaling.contains("rope_type") || scaling.contains("type"))
        change.scaling = std::move(scaling);
    } else {
      throw UsageError(
          tr("[{}] {}: only what says how positions are stretched is taken", flag, key),
          tr("rope_scaling, rope_parameters, rope_theta, max_position_embeddings; other keys are "
             "changed in config.json itself"));
    }
  }
  if (change.scaling.is_null()) return change;
  const auto theta = change.theta;
  const auto positions = change.max_positions;
  change = completed_positions(model, change.scaling, positions, flag);
  change.theta = theta;
  return change;
}

}  // namespace

ModelChanges changes_to_train(const Options& options, const ModelSource& source,
                              const arch::ModelConfig& model, bool is_planned) {
  ModelChanges changes = recorded_changes(source.adapter, model);
  const arch::PositionChange positions = positions_to_train(options, model);
  if (!positions.empty()) changes.positions = positions;
  const std::vector<text::NewToken> tokens = tokens_from(options);
  if (!tokens.empty()) changes.tokens = tokens;
  if (changes.tokens.empty() && !options.get_bool("resize_vocab")) return changes;
  try {
    add_rows(options, source, model, changes);
  } catch (const text::MissingTokenizer&) {
    if (!is_planned) throw;
  }
  return changes;
}

namespace {

/// --rope_scaling of a line that asks; nothing where it is a word that the adapter's training says
/// too, which knows the factor.
arch::PositionChange positions_to_ask(const Options& options, const arch::ModelConfig& model,
                                      const arch::PositionChange& recorded) {
  const bool is_llamafactory = options.profile().name == "llamafactory";
  const std::string flag = options.given_as("rope_scaling");
  std::vector<std::string> words = {"linear", "dynamic", "yarn"};
  if (is_llamafactory) words.push_back("llama3");
  Json scaling = scaling_from(options, words);
  if (scaling.size() > 1) return completed_positions(model, std::move(scaling), {}, flag);
  // A length beside a factor is that of answers, and not of the model.
  const std::optional<int64_t> length = length_from(options);
  const std::string type = arch::scaling_type(scaling);
  if (!length && arch::scaling_type(recorded.scaling) == type) return {};
  if (!length && is_llamafactory) {
    scaling["factor"] = 2.0;
    if (type == "llama3") scaling.update({{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}});
    log::notice("{} {}: positions are stretched by 2, as LLaMA-Factory does where it asks", flag,
                type);
  }
  return completed_positions(model, std::move(scaling), length, flag);
}

}  // namespace

ModelChanges changes_to_ask(const Options& options, const fs::path& adapter,
                            const arch::ModelConfig& model) {
  ModelChanges changes = recorded_changes(adapter, model);
  arch::PositionChange positions;
  if (options.has_value("hf_overrides")) positions = overrides_from(options, model);
  if (!is_off(options.get_string_or("rope_scaling", ""))) {
    const auto theta = positions.theta;
    positions = positions_to_ask(options, model, changes.positions);
    positions.theta = theta;
  }
  if (options.has_value("rope_theta")) positions.theta = options.get_float("rope_theta");
  if (!positions.empty()) changes.positions = std::move(positions);
  return changes;
}

void record_changes(const ModelChanges& changes, Json& args) {
  if (!changes.positions.scaling.is_null()) {
    args["rope_scaling"] = dump_text(changes.positions.scaling);
    args["max_model_len"] =
        changes.positions.max_positions ? Json(*changes.positions.max_positions) : Json();
  }
  if (changes.tokens.empty()) return;
  Json ordinary = Json::array(), special = Json::array();
  for (const text::NewToken& token : changes.tokens)
    (token.special ? special : ordinary).push_back(token.content);
  args["add_tokens"] = std::move(ordinary);
  args["add_special_tokens"] = Json::array();
  args["new_special_tokens"] = std::move(special);
}

void save_new_rows(const arch::ModelConfig& model, TrainConfig& config) {
  if (config.tuner != Tuner::kLora || !config.model.adapter.empty() ||
      config.model.changes.rows.empty())
    return;
  std::vector<std::string> added;
  for (const arch::ParamSpec& spec : arch::parameters_of(model)) {
    const bool is_of_tokens = spec.role == arch::Role::kEmbedding || spec.role == arch::Role::kHead;
    if (!is_of_tokens || !spec.tied_to.empty() || spec.is_bias || spec.layer >= 0) continue;
    const std::string module = arch::module_of(spec.name);
    std::vector<std::string>& whole = config.lora.modules_to_save;
    const bool is_there = std::any_of(whole.begin(), whole.end(), [&](const std::string& entry) {
      return weights::is_named(module, entry);
    });
    if (is_there) continue;
    added.push_back(arch::last_name(module));
    whole.push_back(added.back());
  }
  if (added.empty()) return;
  log::info("new tokens: {} trained whole beside the adapters (--modules_to_save)",
            fmt::join(added, ", "));
}

}  // namespace danlu::settings
