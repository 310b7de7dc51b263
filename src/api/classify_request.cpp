#include "api/classify_request.h"

#include <algorithm>
#include <utility>

#include "api/generation.h"

namespace danlu::api {
namespace {

constexpr size_t kMostTexts = 2048;  // as texts that become vectors

Json usage_of_prompts(int64_t tokens) {
  return {{"prompt_tokens", tokens}, {"completion_tokens", 0}, {"total_tokens", tokens}};
}

}  // namespace

ClassifyRequest read_classify_request(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  ClassifyRequest request;
  request.model = fields.text("model").value_or("");
  if (fields.find("messages")) {
    if (fields.find("input")) throw Refusal("'input' does not go with 'messages'", "input");
    text::Conversation conversation;
    read_messages(fields, limits, &conversation);
    request.inputs.emplace_back(std::move(conversation));
  } else {
    for (Prompt& prompt : read_prompts(fields, "input", kMostTexts)) {
      std::visit([&](auto&& one) { request.inputs.emplace_back(std::move(one)); },
                 std::move(prompt));
    }
  }
  const auto older = fields.boolean("activation");
  request.activates = fields.boolean("use_activation").value_or(older.value_or(true));
  request.truncate_prompt = fields.whole("truncate_prompt_tokens", -1);
  request.keeps_beginning = read_keeps_beginning(fields, /*fallback=*/true);
  request.priority = read_priority(fields, limits);
  request.request_id = read_request_id(fields);
  fields.pass({"user", "add_special_tokens", "add_generation_prompt"});
  fields.refuse("mm_processor_kwargs", "texts alone are sorted");
  request.unread = fields.unread();
  return request;
}

Json classified_json(const AnswerHead& head, const std::vector<std::vector<double>>& numbers,
                     const std::vector<std::string>& names, int64_t prompt_tokens) {
  Json data = Json::array();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto largest = std::max_element(numbers[i].begin(), numbers[i].end());
    data.push_back({{"index", i},
                    {"label", names.at(static_cast<size_t>(largest - numbers[i].begin()))},
                    {"probs", numbers[i]},
                    {"num_classes", numbers[i].size()}});
  }
  return {
      {"id", head.id},       {"object", "list"},        {"created", head.created_s},
      {"model", head.model}, {"data", std::move(data)}, {"usage", usage_of_prompts(prompt_tokens)}};
}

Json judged_chat_json(const AnswerHead& head, const Json& label, int64_t prompt_tokens) {
  Json json = answer_json(head, "chat.completion");
  json["choices"].push_back({{"index", 0},
                             {"message", {{"role", "assistant"}, {"content", label}}},
                             {"logprobs", nullptr},
                             {"finish_reason", "stop"}});
  json["usage"] = usage_of_prompts(prompt_tokens);
  return json;
}

}  // namespace danlu::api
