#include "api/completion_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace danlu::api {
namespace {

constexpr size_t kMaxPrompts = 1024;

[[noreturn]] void refuse_prompt(const std::string& name, const Json& found) {
  throw Refusal(fmt::format("'{}' must be a string, a list of strings, a list of token ids or a "
                            "list of such lists, got {}",
                            name, kind_of(found)),
                name);
}

std::vector<text::TokenId> prompt_ids(const std::string& name, const Json& list) {
  std::vector<text::TokenId> ids;
  ids.reserve(list.size());
  for (const Json& entry : list) {
    if (!entry.is_number_integer()) refuse_prompt(name, entry);
    const bool is_id = entry.is_number_unsigned()
                           ? entry.get<uint64_t>() <= std::numeric_limits<text::TokenId>::max()
                           : entry.get<int64_t>() >= 0;
    if (!is_id) throw Refusal(fmt::format("'{}': {} is no token id", name, entry.dump()), name);
    ids.push_back(entry.get<text::TokenId>());
  }
  return ids;
}

}  // namespace

std::vector<Prompt> read_prompts(Fields& fields, const std::string& name, size_t most) {
  const Json* json = fields.find(name);
  if (!json) throw Refusal(fmt::format("'{}' is missing", name), name);
  if (json->is_string()) return {json->get<std::string>()};
  if (!json->is_array()) refuse_prompt(name, *json);
  if (json->empty()) throw Refusal(fmt::format("'{}' is empty", name), name);
  if (json->front().is_number()) return {prompt_ids(name, *json)};
  if (json->size() > most) {
    throw Refusal(fmt::format("'{}' may have up to {} texts, got {}", name, most, json->size()),
                  name);
  }
  std::vector<Prompt> prompts;
  for (const Json& entry : *json) {
    if (entry.is_string()) {
      prompts.emplace_back(entry.get<std::string>());
    } else if (entry.is_array()) {
      prompts.emplace_back(prompt_ids(name, entry));
    } else {
      refuse_prompt(name, entry);
    }
  }
  return prompts;
}

CompletionRequest read_completion_request(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  CompletionRequest request;
  static_cast<GenerationWish&>(request) = read_generation(fields, limits);
  request.prompts = read_prompts(fields, "prompt", kMaxPrompts);
  request.echoes = fields.boolean_or("echo", false);
  request.max_tokens = fields.whole("max_tokens", request.echoes ? 0 : 1);
  if (!request.max_tokens) request.max_tokens = limits.completion_tokens;
  if (request.max_tokens && request.min_tokens > *request.max_tokens) {
    throw Refusal(fmt::format("'min_tokens' must be at most 'max_tokens', which is {}, got {}",
                              *request.max_tokens, request.min_tokens),
                  "min_tokens");
  }
  request.num_logprobs = fields.whole("logprobs", 0, limits.max_logprobs);
  const auto best_of = fields.whole("best_of", 1, limits.max_choices);
  if (best_of && *best_of != request.num_choices) {
    throw Refusal(fmt::format("'best_of' must be 'n', which is {}, got {}: answers are not ranked",
                              request.num_choices, *best_of),
                  "best_of");
  }
  fields.refuse("suffix", "text before a suffix is not built in");
  request.unread = fields.unread();
  return request;
}

TokenizeRequest read_tokenize_request(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  TokenizeRequest request;
  request.model = fields.text("model").value_or("");
  request.text = fields.text("prompt");
  if (!request.text) request.text = fields.text("content");
  if (request.text.has_value() == (fields.find("messages") != nullptr))
    throw Refusal("one of 'prompt' and 'messages' must be given", "prompt");
  if (!request.text) {
    read_messages(fields, limits, &request.conversation);
    request.template_arguments = read_template_arguments(fields);
    request.end = read_prompt_end(fields, request.conversation);
  }
  fields.refuse("chat_template", "tokens are counted with the server's template");
  request.adds_special = fields.boolean_or("add_special_tokens", true);
  request.returns_texts = fields.boolean_or("return_token_strs", false);
  fields.pass({"add_generation_prompt", "continue_final_message", "tools", "chat_template_kwargs",
               "user", "request_id"});
  fields.refuse("mm_processor_kwargs", "pictures have no token ids of their own");
  request.unread = fields.unread();
  return request;
}

DetokenizeRequest read_detokenize_request(const Json& body) {
  Fields fields(body);
  DetokenizeRequest request;
  request.model = fields.text("model").value_or("");
  const auto ids = fields.wholes("tokens");
  if (!ids) throw Refusal("'tokens' is missing", "tokens");
  for (const int64_t id : *ids) {
    if (id < 0 || id > std::numeric_limits<text::TokenId>::max())
      throw Refusal(fmt::format("'tokens': {} is no token id", id), "tokens");
    request.ids.push_back(static_cast<text::TokenId>(id));
  }
  request.unread = fields.unread();
  return request;
}

}  // namespace danlu::api
