#include "serve/served_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "infer/end_ids.h"
#include "serve/prompt_text.h"
#include "serve/token_limits.h"
#include "text/judged_text.h"
#include "text/query_and_document.h"

namespace danlu::serve {
namespace {

constexpr size_t kKeptEncoders = 16;
constexpr size_t kTailTokens = 32;  // in which a prompt may open a thought

bool has_media(const text::Conversation& conversation) {
  return std::any_of(conversation.messages.begin(), conversation.messages.end(),
                     [](const text::Message& message) { return !message.media.empty(); });
}

text::Conversation with_system(text::Conversation conversation, const std::string& system) {
  if (!system.empty() && conversation.messages.front().role != "system")
    conversation.messages.insert(conversation.messages.begin(), text::Message{"system", system});
  return conversation;
}

/// A request's variables of the template over those of the adapter that it names. An effort says
/// whether the model is to think, as in vLLM, where nothing else in the request does.
Json with_arguments(const Json& of_request, const AdapterPrompt& own) {
  Json all = own.template_arguments.empty() ? Json::object() : own.template_arguments;
  const auto effort = of_request.find("reasoning_effort");
  if (effort != of_request.end()) all["enable_thinking"] = *effort != "none";
  all.update(of_request);
  return all;
}

/// read(), whose refusal of a conversation names the field, and what the server can be told.
template <typename Read>
auto of_messages(const Read& read) {
  try {
    return read();
  } catch (const DataError& error) {
    const std::string hint = error.hint().empty() ? "" : " (" + error.hint() + ")";
    throw api::Refusal(error.what() + hint, "messages");
  }
}

void encode_chat(const ModelDescription& model, const text::ChatEncoder& encoder,
                 const text::Conversation& conversation, infer::Request* request) {
  // A model that sees reads texts as others do where an answer follows an answer.
  const bool follows_answer =
      !has_media(conversation) && conversation.messages.back().role == "assistant";
  of_messages([&] {
    if (model.encode_media && !follows_answer)
      return model.encode_media(encoder, conversation, model.max_model_len, request);
    request->prompt = prompt_ids(*model.tokenizer, encoder, conversation);
  });
}

/// Clients send `reasoning_effort` to every model; a template that knows no such variable, or none
/// that follows from it, is asked without it, as Jinja's pass over it.
std::shared_ptr<const text::ChatEncoder> made_encoder(const ModelDescription& model,
                                                      const Json& arguments, bool thinks_by_effort,
                                                      const std::string* chat_template) {
  Json others = arguments;
  try {
    return model.make_encoder(others, chat_template);
  } catch (const UsageError&) {
    if (others.erase("reasoning_effort") == 0) throw;
  }
  try {
    return model.make_encoder(others, chat_template);
  } catch (const UsageError&) {
    if (!thinks_by_effort) throw;
  }
  others.erase("enable_thinking");
  return model.make_encoder(others, chat_template);
}

std::vector<text::TokenId> all_stops(const ModelDescription& model) {
  return infer::end_ids(model.stop_ids, *model.tokenizer, model.encoder.get());
}

}  // namespace

api::Refusal unknown_model(const std::string& name) {
  return api::Refusal(fmt::format("The model `{}` does not exist.", name), "model", 404,
                      "model_not_found");
}

void refuse_many_visual_tokens(int64_t max_tokens, int64_t count, int64_t tokens) {
  if (max_tokens == 0 || tokens < max_tokens) return;
  throw api::Refusal(
      fmt::format(
          "This model's maximum context length is {} tokens. However, the {} picture(s) and "
          "video(s) of the request take {}: send fewer or smaller ones.",
          max_tokens, count, tokens),
      "messages", 400, "context_length_exceeded");
}

ServedModel::ServedModel(ModelDescription description)
    : model_(std::move(description)),
      constraints_(model_.tokenizer, all_stops(model_)),
      adapters_(model_.adapters, model_.names) {}

void ServedModel::require_name(const std::string& name) const { adapter_named(name); }

infer::AdapterPtr ServedModel::adapter_named(const std::string& name) const {
  if (name.empty() || std::count(model_.names.begin(), model_.names.end(), name) > 0) return {};
  if (const auto found = adapters_.find(name)) return found->adapter;
  if (!model_.takes_any_name) throw unknown_model(name);
  std::call_once(named_otherwise_, [&] {
    log::notice("requests name a model that is not served: {} answers them", model_.names.front());
  });
  return {};
}

std::vector<api::ModelCard> ServedModel::cards() const {
  std::vector<api::ModelCard> cards;
  const std::string& base = model_.names.front();
  for (const std::string& name : model_.names) {
    cards.push_back({.id = name,
                     .root = base,
                     .created_s = model_.created_s,
                     .max_model_len = model_.max_model_len,
                     .sees = model_.encode_media != nullptr,
                     .completes = model_.completes,
                     .ranks = model_.ranking.has_value(),
                     .judges = model_.judging.has_value()});
  }
  for (const ServedAdapter& adapter : adapters_.all()) {
    cards.push_back({.id = adapter.name,
                     .root = adapter.name,
                     .parent = adapter.parent.empty() ? base : adapter.parent,
                     .created_s = adapter.created_s,
                     .max_model_len = model_.max_model_len,
                     .sees = model_.encode_media != nullptr,
                     .completes = model_.completes,
                     .ranks = model_.ranking.has_value(),
                     .judges = model_.judging.has_value()});
  }
  return cards;
}

std::shared_ptr<const text::ChatEncoder> ServedModel::encoder_for(
    const Json& of_request, const AdapterPrompt& own, const std::string* chat_template) const {
  const Json arguments = with_arguments(of_request, own);
  if (arguments.empty() && !chat_template) {
    if (model_.encoder) return model_.encoder;
    throw api::Refusal(
        "the model has no chat template: start the server with --template, or use /v1/completions",
        "messages");
  }
  const bool thinks_by_effort = !of_request.contains("enable_thinking");
  const std::string key =
      dump_text(arguments) + (thinks_by_effort ? "" : "!") + (chat_template ? *chat_template : "");
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(encoders_.begin(), encoders_.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    if (found != encoders_.end()) {
      encoders_.splice(encoders_.begin(), encoders_, found);
      return encoders_.front().second;
    }
  }
  if (!model_.make_encoder || (!model_.encoder && !chat_template))
    throw api::Refusal("the model has no chat template", "messages");
  // Others need not wait while a template is parsed; two that ask for one at a time make two.
  const std::shared_ptr<const text::ChatEncoder> made =
      made_encoder(model_, arguments, thinks_by_effort, chat_template);
  const std::lock_guard lock(mutex_);
  encoders_.emplace_front(key, made);
  if (encoders_.size() > kKeptEncoders) encoders_.pop_back();
  return made;
}

AdapterPrompt ServedModel::prompt_of(const std::string& name) const {
  const bool is_base = std::count(model_.names.begin(), model_.names.end(), name) > 0;
  const auto adapter = is_base ? std::nullopt : adapters_.find(name);
  return adapter ? adapter->prompt : AdapterPrompt{.system = model_.system};
}

/// Before it becomes tokens, which takes thirty times the memory of the text.
void ServedModel::refuse_long_text(size_t bytes, const std::optional<int64_t>& truncate,
                                   const char* param) const {
  constexpr int64_t kMostBytesOfAToken = 256, kAlwaysRead = int64_t{1} << 20;
  const int64_t limit = model_.max_model_len;
  const auto size = static_cast<int64_t>(bytes);
  if (limit == 0 || truncate || size <= std::max(kAlwaysRead, limit * kMostBytesOfAToken)) return;
  throw api::Refusal(fmt::format("This model's maximum context length is {} tokens. However, you "
                                 "requested {} bytes of text, which are more.",
                                 limit, size),
                     param, 400, "context_length_exceeded");
}

BuiltPrompt ServedModel::chat_prompt(const api::ChatRequest& wish) const {
  BuiltPrompt built;
  size_t bytes = 0;
  for (const text::Message& message : wish.conversation.messages) bytes += message.content.size();
  refuse_long_text(bytes, wish.truncate_prompt, "messages");
  const AdapterPrompt own = prompt_of(wish.model);
  text::Conversation conversation = with_system(wish.conversation, own.system);
  if (wish.tool_choice.kind == api::ToolChoice::Kind::kNone) conversation.tools = nullptr;
  const auto encoder = encoder_for(wish.template_arguments, own,
                                   wish.chat_template ? &*wish.chat_template : nullptr);
  const bool sees = has_media(conversation);
  if (sees && !model_.encode_media)
    throw api::Refusal("this model reads text alone: 'image_url' is not for it", "messages");
  if (wish.end == api::PromptEnd::kNewAnswer && !wish.adds_special.value_or(false)) {
    encode_chat(model_, *encoder, conversation, &built.request);
  } else {
    if (sees) {
      const char* const field = wish.continues_last()                    ? "continue_final_message"
                                : wish.end == api::PromptEnd::kNewAnswer ? "add_special_tokens"
                                                                         : "add_generation_prompt";
      throw api::Refusal(fmt::format("'{}' does not go with pictures", field), field);
    }
    const std::string text =
        of_messages([&] { return rendered(*encoder, conversation, wish.end); });
    if (wish.continues_last() && wish.echoes) built.echo = conversation.messages.back().content;
    built.request.prompt =
        model_.tokenizer->encode(text, /*add_special=*/wish.adds_special.value_or(false));
  }
  const std::vector<text::TokenId> stops = encoder->stop_ids();
  built.request.stop_ids = stops;
  fit_prompt(most_tokens(wish.truncate_prompt, wish.max_tokens.value_or(1)), wish.keeps_beginning,
             &built.request);
  if (model_.splits_reasoning && wish.continues_last()) {
    built.thought = api::thought_within(conversation.messages.back().content);
  } else if (model_.splits_reasoning) {
    const auto& ids = built.request.prompt;
    const size_t tail = std::min(ids.size(), kTailTokens);
    built.thought = api::thought_after(
        model_.tokenizer->decode(std::span(ids).last(tail), /*skip_special=*/false));
  }
  return built;
}

BuiltPrompt ServedModel::completion_prompt(const api::CompletionRequest& wish,
                                           const api::Prompt& prompt) const {
  BuiltPrompt built;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    refuse_long_text(text->size(), wish.truncate_prompt, "prompt");
    built.request.prompt = model_.tokenizer->encode(*text, wish.adds_special.value_or(true));
    built.echo = *text;
  } else {
    built.request.prompt = std::get<std::vector<text::TokenId>>(prompt);
    check_ids(built.request.prompt, "prompt");
    if (wish.echoes) built.echo = model_.tokenizer->decode(built.request.prompt);
  }
  if (built.request.prompt.empty()) throw api::Refusal("'prompt' is empty", "prompt");
  fit_prompt(most_tokens(wish.truncate_prompt, wish.max_tokens.value_or(1)), wish.keeps_beginning,
             &built.request);
  return built;
}

std::vector<text::TokenId> ServedModel::tokenize(const api::TokenizeRequest& request) const {
  if (request.text) return model_.tokenizer->encode(*request.text, request.adds_special);
  if (has_media(request.conversation))
    throw api::Refusal("pictures have no token ids of their own", "messages");
  const AdapterPrompt own = prompt_of(request.model);
  const auto encoder = encoder_for(request.template_arguments, own, nullptr);
  const text::Conversation conversation = with_system(request.conversation, own.system);
  return of_messages([&] {
    if (request.end == api::PromptEnd::kNewAnswer)
      return prompt_ids(*model_.tokenizer, *encoder, conversation);
    return model_.tokenizer->encode(rendered(*encoder, conversation, request.end),
                                    /*add_special=*/false);
  });
}

std::vector<text::TokenId> ServedModel::embedded_tokens(const api::EmbeddingRequest& wish,
                                                        const std::string& text,
                                                        const text::ChatEncoder* encoder,
                                                        const std::string& system) const {
  refuse_long_text(text.size(), wish.truncate_prompt, "input");
  const auto most = most_tokens(wish.truncate_prompt, /*for_answer=*/0);
  if (encoder) {
    const auto asked = [&](const std::string& said) {
      text::Conversation conversation;
      conversation.messages.push_back({"user", said});
      return of_messages([&] { return encoder->encode_prompt(with_system(conversation, system)); });
    };
    std::vector<text::TokenId> ids = asked(text);
    const int64_t excess = std::ssize(ids) - most.value_or(std::ssize(ids));
    return excess > 0 && wish.keeps_beginning
               ? asked(without_last_tokens(*model_.tokenizer, text, excess))
               : ids;
  }
  if (most && wish.keeps_beginning && wish.adds_special)
    return beginning_of(*model_.tokenizer, text, *most);
  return model_.tokenizer->encode(text, wish.adds_special);
}

std::vector<infer::EngineRequest> ServedModel::embedding_requests(
    const api::EmbeddingRequest& wish) const {
  const infer::AdapterPtr adapter = adapter_named(wish.model);
  const AdapterPrompt own = prompt_of(wish.model);
  const TextVectors how = own.vectors.value_or(model_.vectors);
  const auto encoder =
      how.by_template && model_.encoder ? encoder_for(Json::object(), own, nullptr) : nullptr;
  std::vector<infer::EngineRequest> requests;
  for (const api::Prompt& input : wish.inputs) {
    infer::EngineRequest& one = requests.emplace_back();
    std::vector<text::TokenId>& ids = one.request.prompt;
    if (const auto* text = std::get_if<std::string>(&input)) {
      ids = embedded_tokens(wish, *text, encoder.get(), own.system);
    } else {
      ids = std::get<std::vector<text::TokenId>>(input);
      check_ids(ids, "input");
    }
    if (ids.empty()) throw api::Refusal("'input' is empty", "input");
    fit_prompt(most_tokens(wish.truncate_prompt, /*for_answer=*/0), wish.keeps_beginning,
               &one.request);
    require_length(ids, "input");
    one.request.max_new_tokens = 0;
    one.pooling = how.pooling;
    one.priority = wish.priority;
    one.adapter = adapter;
  }
  return requests;
}

size_t ServedModel::vector_size(const api::EmbeddingRequest& wish) const {
  require_name(wish.model);
  if (!wish.dimensions || wish.dimensions == model_.vector_size) return 0;
  const std::vector<int64_t> sizes = prompt_of(wish.model).vectors.value_or(model_.vectors).sizes;
  if (sizes.empty()) {
    throw api::Refusal(
        "'dimensions': this model's vectors have one length, and parts of them mean "
        "nothing",
        "dimensions");
  }
  if (std::count(sizes.begin(), sizes.end(), *wish.dimensions) == 0) {
    throw api::Refusal(
        fmt::format("'dimensions': this model's vectors may be cut to {} numbers, got {}",
                    fmt::join(sizes, ", "), *wish.dimensions),
        "dimensions");
  }
  return static_cast<size_t>(*wish.dimensions);
}

void ServedModel::require_length(const std::vector<text::TokenId>& ids, const char* param) const {
  const auto size = static_cast<int64_t>(ids.size()), limit = model_.max_model_len;
  if (limit == 0 || size <= limit) return;
  throw api::Refusal(fmt::format("This model's maximum context length is {} tokens. However, "
                                 "you requested {} tokens in the {}.",
                                 limit, size, param),
                     param, 400, "context_length_exceeded");
}

void ServedModel::require_words() const {
  if (model_.completes) return;
  if (model_.judging) {
    throw api::Refusal("this model says what texts are: POST /classify or /v1/chat/completions",
                       "model", 400);
  }
  if (!model_.ranking)
    throw api::Refusal("this model gives vectors of texts: POST /v1/embeddings", "model", 400);
  throw api::Refusal("this model gives scores alone: POST /v1/rerank or /v1/score", "model", 400);
}

void ServedModel::require_known_calls(const api::ChatRequest& wish) const {
  const bool may_call = wish.tool_choice.kind == api::ToolChoice::Kind::kAuto;
  if (!may_call || model_.tool_format || model_.leaves_calls) return;
  throw api::Refusal(
      "'tools': how this model writes calls is not known: start the server with "
      "--tool_call_parser NAME, or with none, which leaves them in the text",
      "tools");
}

std::vector<text::TokenId> ServedModel::judged_tokens(
    const std::variant<std::string, std::vector<text::TokenId>, text::Conversation>& input,
    const std::optional<int64_t>& truncate) const {
  if (const auto* ids = std::get_if<std::vector<text::TokenId>>(&input)) {
    check_ids(*ids, "input");
    return *ids;
  }
  text::Conversation asked;
  if (const auto* text = std::get_if<std::string>(&input)) {
    refuse_long_text(text->size(), truncate, "input");
    asked.messages.push_back({"user", *text});
  } else {
    asked = std::get<text::Conversation>(input);
    if (has_media(asked)) throw api::Refusal("texts alone are judged", "messages");
  }
  return of_messages([&] {
    return text::judged_ids(asked, model_.tokenizer.get(), model_.judging->encoder.get());
  });
}

std::vector<infer::EngineRequest> ServedModel::judging_requests(
    const api::ClassifyRequest& wish) const {
  const infer::AdapterPtr adapter = adapter_named(wish.model);
  if (!model_.judging) {
    throw api::Refusal("this model sorts no texts: a model of danlu sft --task_type seq_cls does",
                       "model");
  }
  std::vector<infer::EngineRequest> requests;
  for (const auto& input : wish.inputs) {
    infer::EngineRequest& one = requests.emplace_back();
    one.request.prompt = judged_tokens(input, wish.truncate_prompt);
    if (one.request.prompt.empty()) throw api::Refusal("'input' is empty", "input");
    fit_prompt(most_tokens(wish.truncate_prompt, /*for_answer=*/0), wish.keeps_beginning,
               &one.request);
    require_length(one.request.prompt, "input");
    one.request.max_new_tokens = 0;
    one.pooling = infer::Pooling::kLast;
    one.priority = wish.priority;
    one.adapter = adapter;
  }
  return requests;
}

std::vector<text::TokenId> ServedModel::pair_tokens(const api::RankRequest& wish,
                                                    size_t pair) const {
  text::QueryAndDocument parts{wish.instruction, wish.queries[pair], wish.documents[pair]};
  if (parts.instruction.empty()) parts.instruction = prompt_of(wish.model).system;
  refuse_long_text(parts.query.size() + parts.document.size(), wish.truncate_prompt, "documents");
  const int64_t most = !wish.truncate_prompt       ? 0
                       : *wish.truncate_prompt < 0 ? model_.max_model_len
                                                   : *wish.truncate_prompt;
  try {
    return text::pair_ids(text::conversation_of(parts), *model_.tokenizer,
                          model_.ranking->encoder.get(), most);
  } catch (const DataError& error) {
    throw api::Refusal(error.what(), "documents");
  }
}

std::vector<infer::EngineRequest> ServedModel::rank_requests(const api::RankRequest& wish) const {
  const infer::AdapterPtr adapter = adapter_named(wish.model);
  if (!model_.ranking) {
    throw api::Refusal(
        "this model does not rank: start the server with --task_type generative_reranker, or with "
        "a "
        "model that has a head of one score",
        "model");
  }
  std::vector<infer::EngineRequest> requests;
  for (size_t pair = 0; pair < wish.documents.size(); ++pair) {
    infer::EngineRequest& one = requests.emplace_back();
    one.request.prompt = pair_tokens(wish, pair);
    if (one.request.prompt.empty()) throw api::Refusal("a pair without a token", "documents");
    require_length(one.request.prompt, "documents");
    one.request.max_new_tokens = 0;
    one.pooling = infer::Pooling::kLast;
    one.priority = wish.priority;
    one.adapter = adapter;
  }
  return requests;
}

void ServedModel::check_ids(const std::vector<text::TokenId>& ids, const char* param) const {
  for (const text::TokenId id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= model_.tokenizer->size()) {
      throw api::Refusal(fmt::format("'{}': token id {} is not in the vocabulary, which has {}",
                                     param, id, model_.tokenizer->size()),
                         param);
    }
  }
}

std::optional<int64_t> ServedModel::most_tokens(const std::optional<int64_t>& truncate,
                                                int64_t for_answer) const {
  if (!truncate || *truncate >= 0) return truncate;
  if (model_.max_model_len == 0) return std::nullopt;
  return std::max<int64_t>(1, model_.max_model_len - for_answer);
}

void ServedModel::fit_prompt(const std::optional<int64_t>& most, bool keeps_beginning,
                             infer::Request* request) const {
  if (!most) return;
  if (!request->pictures.empty())
    throw api::Refusal("'truncate_prompt_tokens' does not go with pictures",
                       "truncate_prompt_tokens");
  std::vector<text::TokenId>& ids = request->prompt;
  const auto begin = ids.begin(), end = ids.end();
  if (std::ssize(ids) <= *most) return;
  if (keeps_beginning) {
    ids.erase(begin + *most, end);
  } else {
    ids.erase(begin, end - *most);
  }
}

int64_t ServedModel::room_for_answer(const api::GenerationWish& wish, int64_t prompt_tokens) const {
  const int64_t limit = model_.max_model_len;
  // Far above any window, and far enough from the type's end to be added to.
  constexpr int64_t kMost = int64_t{1} << 40;
  const int64_t wanted = std::clamp<int64_t>(wish.max_tokens.value_or(0), 1, kMost);
  if (limit > 0 && prompt_tokens + wanted > limit) {
    throw api::Refusal(
        fmt::format("This model's maximum context length is {} tokens. However, you requested {} "
                    "tokens ({} in the prompt, {} in the answer).",
                    limit, prompt_tokens + wanted, prompt_tokens, wanted),
        wish.max_tokens ? "max_tokens" : "messages", 400, "context_length_exceeded");
  }
  if (wish.max_tokens) return wanted;
  const int64_t usual = model_.max_new_tokens.value_or(limit > 0 ? limit : 512);
  return limit > 0 ? std::min(usual, limit - prompt_tokens) : usual;
}

infer::SamplingParams ServedModel::sampling_of(const api::SamplingWish& wish, uint64_t seed) const {
  constexpr double kGreedyBelow = 1e-5, kLeastTemperature = 0.01, kLeastMass = 1e-6;
  infer::SamplingParams params = model_.sampling;
  if (wish.temperature) {
    params.do_sample = *wish.temperature >= kGreedyBelow;
    params.temperature = params.do_sample ? std::max(*wish.temperature, kLeastTemperature) : 1.0;
  }
  if (wish.top_k) params.top_k = *wish.top_k;
  if (wish.top_p) params.top_p = std::max(*wish.top_p, kLeastMass);
  if (wish.min_p) params.min_p = std::min(*wish.min_p, 1 - kLeastMass);
  if (wish.repetition_penalty) params.repetition_penalty = *wish.repetition_penalty;
  if (wish.draws && (!*wish.draws || !wish.temperature)) params.do_sample = *wish.draws;
  params.seed = wish.seed ? static_cast<uint64_t>(*wish.seed) : seed;
  return params;
}

std::vector<infer::EngineRequest> ServedModel::engine_requests(
    const api::GenerationWish& wish, infer::Request prompt, uint64_t seed,
    const std::shared_ptr<text::TokenConstraint>& constraint, int64_t prompt_number) const {
  infer::EngineRequest one;
  one.request = std::move(prompt);
  infer::Request& request = one.request;
  request.num_tokens = static_cast<int64_t>(model_.tokenizer->size());
  request.sampling = sampling_of(wish.sampling, seed);
  request.max_new_tokens = room_for_answer(wish, static_cast<int64_t>(request.prompt.size()));
  if (wish.min_tokens > request.max_new_tokens) {
    throw api::Refusal(fmt::format("'min_tokens' must be at most the {} that an answer may have, "
                                   "got {}",
                                   request.max_new_tokens, wish.min_tokens),
                       "min_tokens");
  }
  check_ids(wish.stop_ids, "stop_token_ids");
  check_ids(wish.sampling.allowed_ids, "allowed_token_ids");
  if (constraint) {
    // A form that is complete leaves nothing but the end, whatever the request says of it.
    request.stop_ids = constraints_.stop_ids();
  } else if (wish.ignores_eos) {
    request.stop_ids.clear();
  } else {
    request.stop_ids.insert(request.stop_ids.end(), model_.stop_ids.begin(), model_.stop_ids.end());
  }
  request.stop_ids.insert(request.stop_ids.end(), wish.stop_ids.begin(), wish.stop_ids.end());
  for (const auto& [id, bias] : wish.sampling.logit_bias) check_ids({id}, "logit_bias");
  request.rules.bias = wish.sampling.logit_bias;
  request.rules.presence_penalty = wish.sampling.presence_penalty;
  request.rules.frequency_penalty = wish.sampling.frequency_penalty;
  request.rules.min_new_tokens = wish.min_tokens;
  one.num_logprobs = wish.num_logprobs;
  one.num_prompt_logprobs = wish.num_prompt_logprobs;
  one.salt = wish.salt;
  one.adapter = adapter_named(wish.model);
  one.priority = wish.priority;
  one.prompt_number = wish.num_choices > 1 ? prompt_number : 0;
  std::shared_ptr<text::TokenConstraint> shared = constraint;
  if (!wish.sampling.allowed_ids.empty()) shared = allowed_ids(wish.sampling.allowed_ids);
  std::vector<infer::EngineRequest> all;
  for (int64_t i = 0; i < wish.num_choices; ++i) {
    infer::EngineRequest& choice = all.emplace_back(one);
    choice.request.stream = static_cast<uint64_t>(i);
    if (shared) choice.request.rules.constraint = shared->clone();
  }
  return all;
}

}  // namespace danlu::serve
