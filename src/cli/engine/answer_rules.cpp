#include "cli/engine/answer_rules.h"

#include <charconv>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/raw_encoder.h"

namespace danlu::cli {
namespace {

constexpr double kLargestBias = 100;

/// Errors: UsageError for what is no object of biases by id.
std::vector<std::pair<text::TokenId, float>> bias_from(const Options& options) {
  std::vector<std::pair<text::TokenId, float>> bias;
  if (!options.has_value("logit_bias")) return bias;
  const std::string flag = options.given_as("logit_bias");
  const Json json = options.get_json("logit_bias");
  if (!json.is_object()) {
    throw UsageError(tr("[{}] biases stand by token id, got {}", flag, json.dump()),
                     tr("give {{\"1234\": -100}}; danlu tokenize says the ids of a text"));
  }
  for (const auto& [key, value] : json.items()) {
    text::TokenId id = -1;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (problem != std::errc() || end != key.data() + key.size() || id < 0)
      throw UsageError(tr("[{}] '{}' is no token id", flag, key),
                       tr("danlu tokenize says the ids of a text"));
    const bool is_bias = value.is_number() && value.get<double>() >= -kLargestBias &&
                         value.get<double>() <= kLargestBias;
    if (!is_bias) {
      throw UsageError(tr("[{}] the bias of {} must be from -{} to {}, got {}", flag, id,
                          kLargestBias, kLargestBias, value.dump()));
    }
    bias.emplace_back(id, value.get<float>());
  }
  return bias;
}

/// The schema itself, or a file that holds it.
Json schema_from(const Options& options) {
  const std::string text = options.get_string("guided_json");
  const size_t first = text.find_first_not_of(" \t\n");
  const bool is_text = first != text.npos && (text[first] == '{' || text == "true");
  return is_text ? parse_json(text, options.given_as("guided_json")) : read_json_file(text);
}

/// The flag that says a form; "": none does. Errors: UsageError for several.
std::string form_flag(const Options& options) {
  std::string found;
  for (const char* name : {"guided_json", "guided_regex", "guided_choice"}) {
    if (!options.is_given(name)) continue;
    if (!found.empty()) {
      throw UsageError(tr("[{}] an answer has one form, and {} says another",
                          options.given_as(name), options.given_as(found)),
                       tr("give one of them"));
    }
    found = name;
  }
  return found;
}

/// Errors: UsageError naming a flag that beams would pass over.
void refuse_beside_beams(const Options& options) {
  for (const char* name : {"presence_penalty", "frequency_penalty", "logit_bias", "min_new_tokens",
                           "guided_json", "guided_regex", "guided_choice", "stop_words"}) {
    if (!options.is_given(name)) continue;
    throw UsageError(
        tr("[{}] it does not go with a search for beams (--num_beams)", options.given_as(name)),
        tr("leave out one of both"));
  }
}

/// Whether what is asked is text that answers go on with.
bool completes_text(const InferenceModel& loaded) {
  return !loaded.encoder || dynamic_cast<const text::RawTextEncoder*>(loaded.encoder.get());
}

}  // namespace

std::vector<std::string> stop_words_from(const Options& options) {
  if (!options.has_value("stop_words")) return {};
  std::vector<std::string> words = options.get_list("stop_words");
  for (const std::string& word : words) {
    if (word.empty())
      throw UsageError(
          tr("[{}] a text that ends answers must not be empty", options.given_as("stop_words")));
  }
  return words;
}

AnswerRules::AnswerRules(const Options& options, const InferenceModel& loaded, int64_t num_beams)
    : tokenizer_(loaded.tokenizer), continues_text_(completes_text(loaded)) {
  if (num_beams > 1) refuse_beside_beams(options);
  rules_.bias = bias_from(options);
  rules_.presence_penalty = options.get_float_or("presence_penalty", 0);
  rules_.frequency_penalty = options.get_float_or("frequency_penalty", 0);
  rules_.min_new_tokens = options.get_int_or("min_new_tokens", 0);
  infer::check_rules(rules_, loaded.model->config().vocab_size);
  reading_.stop = stop_words_from(options);
  reading_.min_tokens = rules_.min_new_tokens;
  const std::string form = form_flag(options);
  if (form.empty()) return;
  compiler_ = std::make_unique<const grammar::Compiler>(loaded.tokenizer, loaded.end_ids());
  if (form == "guided_json") {
    const Json schema = schema_from(options);
    schema_ = schema.dump();
    form_ = compiler_->json_schema(schema);
  } else if (form == "guided_regex") {
    form_ = compiler_->regex(options.get_string(form));
  } else {
    form_ = compiler_->choice(options.get_list(form));
  }
}

api::AnswerReader AnswerRules::reader(const infer::Request& request) const {
  api::AnswerReaderSettings settings = reading_;
  if (continues_text_) settings.before = api::text_before(request.prompt);
  return {tokenizer_, std::move(settings)};
}

infer::LogitRules AnswerRules::fresh() const {
  infer::LogitRules rules = rules_;
  if (form_) rules.constraint = compiler_->begin(form_);
  return rules;
}

}  // namespace danlu::cli
