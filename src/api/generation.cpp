#include "api/generation.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace danlu::api {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
constexpr int64_t kLargestId = std::numeric_limits<text::TokenId>::max();

text::TokenId id_of(int64_t number, const std::string& path) {
  if (number < 0 || number > kLargestId)
    throw Refusal(fmt::format("'{}': {} is no token id", path, number), path);
  return static_cast<text::TokenId>(number);
}

std::vector<text::TokenId> ids_of(Fields& fields, std::string_view name) {
  std::vector<text::TokenId> ids;
  if (const auto numbers = fields.wholes(name)) {
    for (const int64_t number : *numbers) ids.push_back(id_of(number, fields.path_of(name)));
  }
  return ids;
}

std::vector<std::pair<text::TokenId, float>> bias_of(Fields& fields) {
  std::vector<std::pair<text::TokenId, float>> bias;
  const Json* json = fields.find("logit_bias");
  if (!json) return bias;
  if (!json->is_object())
    throw Refusal(fmt::format("'logit_bias' must be an object, got {}", kind_of(*json)),
                  "logit_bias");
  for (const auto& [key, value] : json->items()) {
    int64_t id = -1;
    const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (problem != std::errc() || end != key.data() + key.size())
      throw Refusal(fmt::format("'logit_bias': '{}' is no token id", key), "logit_bias");
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100)) {
      throw Refusal(
          fmt::format("'logit_bias' of {} must be from -100 to 100, got {}", id, kind_of(value)),
          "logit_bias");
    }
    bias.emplace_back(id_of(id, "logit_bias"), value.get<float>());
  }
  return bias;
}

SamplingWish read_sampling(Fields& fields) {
  SamplingWish wish;
  wish.temperature = fields.number("temperature", 0, 2);
  wish.draws = fields.boolean("do_sample");
  wish.top_p = fields.number("top_p", 0, 1);
  wish.min_p = fields.number("min_p", 0, 1);
  wish.repetition_penalty = fields.number("repetition_penalty", 1e-3, 1e3);
  wish.top_k = fields.whole("top_k", -1);
  if (wish.top_k == -1) wish.top_k = 0;
  wish.seed = fields.whole("seed");
  if (wish.seed == -1) wish.seed.reset();
  wish.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  wish.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  wish.logit_bias = bias_of(fields);
  wish.allowed_ids = ids_of(fields, "allowed_token_ids");
  if (fields.find("allowed_token_ids") && wish.allowed_ids.empty())
    throw Refusal("'allowed_token_ids' is empty: no token could come", "allowed_token_ids");
  return wish;
}

std::optional<std::vector<std::string>> read_stop(Fields& fields, const RequestLimits& limits) {
  const Json* json = fields.find("stop");
  if (!json) return std::nullopt;
  std::vector<std::string> stop;
  if (json->is_string()) {
    stop.push_back(json->get<std::string>());
  } else {
    stop = *fields.texts("stop");
  }
  if (static_cast<int64_t>(stop.size()) > limits.max_stop_strings) {
    throw Refusal(fmt::format("'stop' may have up to {} strings, got {}", limits.max_stop_strings,
                              stop.size()),
                  "stop");
  }
  for (const std::string& text : stop) {
    if (text.empty()) throw Refusal("'stop' may not have an empty string", "stop");
  }
  return stop;
}

StreamWish read_stream(Fields& fields) {
  StreamWish wish;
  wish.is_on = fields.boolean_or("stream", false);
  const Json* json = fields.find("stream_options");
  if (!json) return wish;
  if (!wish.is_on)
    throw Refusal("'stream_options' may only be given when 'stream' is true", "stream_options");
  Fields options(*json, "stream_options.");
  wish.with_usage = options.boolean_or("include_usage", false);
  wish.with_running_usage = wish.with_usage && options.boolean_or("continuous_usage_stats", false);
  fields.take_unread(options);
  return wish;
}

/// What clients send and has no effect on an answer here; and what would have one and is not built
/// in.
void read_others(Fields& fields) {
  fields.pass({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
               "prompt_cache_retention", "verbosity", "spaces_between_special_tokens",
               "echo_logprobs"});
  for (const char* name : {"use_beam_search", "length_penalty"}) {
    if (std::string_view(name) == "length_penalty") {
      fields.pass({name});  // of beams alone
    } else {
      fields.refuse(name, "there is no beam search in this server");
    }
  }
  fields.refuse_unless("num_beams", 1, "there is no beam search in this server");
  for (const char* name : {"images", "videos", "audios"})
    fields.refuse(name, "pictures stand in the messages, as parts of type image_url");
  fields.refuse("logprob_token_ids", "'top_logprobs' and 'logprobs' tell the likeliest tokens");
  fields.refuse("repetition_detection", "see repetition_penalty and frequency_penalty");
  // llama.cpp's names, and Hugging Face's.
  fields.refuse("grammar", "grammars are not built in: give structured_outputs or response_format");
  fields.refuse("json_schema", "give 'response_format' in its place");
  for (const char* name : {"n_predict", "max_new_tokens"})
    fields.refuse(name, "give 'max_tokens' in its place");
  fields.refuse_unless("repeat_penalty", 1, "give 'repetition_penalty' in its place");
  for (const char* name : {"mirostat", "dry_multiplier", "xtc_probability", "dynatemp_range"})
    fields.refuse(name, "this way of drawing tokens is not built in");
  if (fields.find("typical_p") && fields.number("typical_p", 0, 1) != 1)
    fields.refuse("typical_p", "this way of drawing tokens is not built in");
  fields.refuse("bad_words", "words that are kept out are not built in: see logit_bias");
  fields.refuse_unless("thinking_token_budget", -1, "a limit of thoughts is not built in");
  fields.refuse("logits_processors", "no code of a request is run");
  fields.refuse("kv_transfer_params", "there is one server");
  fields.refuse("mm_processor_kwargs", "how pictures are read is said when the server starts");
}

}  // namespace

int64_t read_priority(Fields& fields, const RequestLimits& limits) {
  const int64_t priority = fields.whole("priority").value_or(0);
  if (priority != 0 && !limits.follows_priority) {
    throw Refusal(fmt::format("'priority' must be 0, got {}: requests are answered in the order in "
                              "which they come (--scheduling-policy priority follows it)",
                              priority),
                  "priority");
  }
  return priority;
}

bool read_keeps_beginning(Fields& fields, bool fallback) {
  const auto side = fields.text("truncation_side");
  if (!side) return fallback;
  if (*side != "left" && *side != "right") {
    throw Refusal(fmt::format("'truncation_side' must be one of left, right, got '{}'", *side),
                  "truncation_side");
  }
  return *side == "right";
}

std::string read_request_id(Fields& fields) {
  constexpr size_t kLongestId = 256;
  std::string id = fields.text("request_id").value_or("");
  if (id.size() > kLongestId) {
    throw Refusal(
        fmt::format("'request_id' may have up to {} bytes, got {}", kLongestId, id.size()),
        "request_id");
  }
  return id;
}

GenerationWish read_generation(Fields& fields, const RequestLimits& limits) {
  GenerationWish wish;
  wish.model = fields.text("model").value_or("");
  wish.num_choices = fields.whole("n", 1, limits.max_choices).value_or(1);
  wish.sampling = read_sampling(fields);
  wish.min_tokens = fields.whole("min_tokens", 0).value_or(0);
  wish.stop = read_stop(fields, limits);
  wish.includes_stop = fields.boolean_or("include_stop_str_in_output", false);
  wish.stop_ids = ids_of(fields, "stop_token_ids");
  wish.ignores_eos = fields.boolean_or("ignore_eos", false);
  wish.form = read_output_form(fields);
  wish.stream = read_stream(fields);
  wish.num_prompt_logprobs = fields.whole("prompt_logprobs", 0, limits.max_logprobs);
  if (wish.num_prompt_logprobs && wish.stream.is_on)
    throw Refusal("'prompt_logprobs' does not go with 'stream'", "prompt_logprobs");
  wish.skips_special = fields.boolean_or("skip_special_tokens", true);
  wish.adds_special = fields.boolean("add_special_tokens");
  wish.returns_ids = fields.boolean_or("return_token_ids", false);
  wish.wants_tokens_as_ids = fields.boolean_or("return_tokens_as_token_ids", false);
  wish.truncate_prompt = fields.whole("truncate_prompt_tokens", -1, kLargest);
  if (wish.truncate_prompt == 0)
    throw Refusal("'truncate_prompt_tokens' must be at least 1, or -1, got 0",
                  "truncate_prompt_tokens");
  wish.keeps_beginning = read_keeps_beginning(fields, /*fallback=*/false);
  const auto salt = fields.text("cache_salt");
  if (salt && salt->empty()) throw Refusal("'cache_salt' may not be empty", "cache_salt");
  wish.salt = salt.value_or("");
  wish.priority = read_priority(fields, limits);
  wish.request_id = read_request_id(fields);
  if (!wish.sampling.allowed_ids.empty() && wish.form.kind != OutputForm::Kind::kFree) {
    throw Refusal(fmt::format("'allowed_token_ids' does not go with '{}'", wish.form.param),
                  "allowed_token_ids");
  }
  read_others(fields);
  return wish;
}

}  // namespace danlu::api
