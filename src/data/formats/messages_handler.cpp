// Rows that hold a list of messages: ShareGPT, OpenAI, and their relatives.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "base/json_text.h"
#include "base/message.h"
#include "data/formats/handlers.h"
#include "data/formats/media.h"
#include "data/formats/media_values.h"

namespace danlu::data {
namespace {

enum class Speaker { kSystem, kUser, kAssistant, kFunctionCall, kTool, kUnknown };

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Speaker usual_speaker(std::string_view role) {
  if (is_one_of(role, {"user", "human"})) return Speaker::kUser;
  if (is_one_of(role, {"assistant", "gpt", "bot"})) return Speaker::kAssistant;
  if (role == "system") return Speaker::kSystem;
  if (is_one_of(role, {"function_call", "tool_call"})) return Speaker::kFunctionCall;
  if (is_one_of(role, {"observation", "observations", "function_response", "tool_response", "tool",
                       "function"})) {
    return Speaker::kTool;
  }
  return Speaker::kUnknown;
}

/// A function call as ShareGPT writes it ({"name":…,"arguments":…} or a list of them, as text), in
/// OpenAI's form. Null if it is neither.
Json tool_calls_of(const std::string& text) {
  if (!wide_integer_in(text).empty()) return nullptr;  // as text it keeps its digits
  Json parsed = try_parse_json(text).value_or(nullptr);
  if (parsed.is_object()) parsed = Json::array({parsed});
  if (!parsed.is_array() || parsed.empty()) return nullptr;
  Json calls = Json::array();
  for (const Json& call : parsed) {
    if (!call.is_object() || !call.contains("name")) return nullptr;
    calls.push_back({{"type", "function"}, {"function", call}});
  }
  return calls;
}

class MessagesHandler : public RowHandler {
 public:
  MessagesHandler(RowFormat format, MessageTags tags) : format_(format), tags_(std::move(tags)) {}

  RowFormat format() const override { return format_; }

  std::string description() const override {
    return fmt::format("{} ({}{},{})", format_ == RowFormat::kShareGpt ? "sharegpt" : "messages",
                       tags_.unseen ? "" : tags_.messages + ": ", tags_.role, tags_.content);
  }
  std::vector<std::string> columns_read() const override {
    return {tags_.messages, tags_.system, tags_.tools};
  }

 private:
  RowResult read_row(const Json& row) const override {
    if (!row.is_object())
      return RowProblem{"row is not an object", fmt::format("got {}", kind_of(row))};
    const Json* value = find_value(row, tags_.messages);
    if (!value) return missing_column(tags_.messages);
    const auto list = parse_if_text(*value);
    if (!list || !list->is_array()) {
      return wrong_type(tags_.messages, "a list of messages", list ? *list : *value);
    }
    RowProblem problem;
    text::Conversation conversation;
    if (!read_tools(row, tags_.tools, &conversation.tools, &problem)) return problem;
    const Json* system = begins_with_system(*list) ? nullptr : find_value(row, tags_.system);
    if (system && system->is_string()) {
      const std::string& content = system->get_ref<const std::string&>();
      if (!content.empty()) conversation.messages.push_back({"system", content});
    }
    for (const Json& message : *list) {
      if (!add_message(message, &conversation.messages, &problem)) return problem;
    }
    if (tags_.answers_optional) drop_empty_answer(&conversation.messages);
    if (!join_neighbours(&conversation.messages, &problem)) return problem;
    if (is_lone_answer(conversation)) {
      // ms-swift's way to write a pre-training text.
      return Row(TextRow{{conversation.messages.back().content}});
    }
    if (!check_order(conversation.messages, &problem)) return problem;
    return Row(std::move(conversation));
  }

  /// A system message in the list counts, not the column beside it.
  bool begins_with_system(const Json& list) const {
    if (list.empty() || !list[0].is_object()) return false;
    const Json* role = find_value(list[0], tags_.role);
    return role && role->is_string() && speaker_of(role->get<std::string>()) == Speaker::kSystem;
  }

  /// One message of each run of questions, and of each run of answers and calls, as ms-swift makes
  /// of them. What a joined message could not say is left for check_order to refuse.
  static bool join_neighbours(std::vector<text::Message>* messages, RowProblem* problem) {
    std::vector<text::Message> joined;
    joined.reserve(messages->size());
    for (text::Message& message : *messages) {
      if (joined.empty() || !can_join(joined.back(), message)) {
        joined.push_back(std::move(message));
        continue;
      }
      text::Message& whole = joined.back();
      if (whole.train != message.train) {
        *problem = {"messages of one turn differ in \"loss\"",
                    fmt::format("message {}", joined.size())};
        return false;
      }
      for (text::MediaPlace& place : message.media) {
        place.offset += whole.content.size();
        whole.media.push_back(std::move(place));
      }
      whole.content += message.content;
      whole.train_is_said = whole.train_is_said || message.train_is_said;
      for (Json& call : message.extra["tool_calls"])
        whole.extra["tool_calls"].push_back(std::move(call));
    }
    *messages = std::move(joined);
    return true;
  }

  /// Text behind calls would stand before them, and of other keys a message has one each.
  static bool can_join(const text::Message& first, const text::Message& second) {
    if (first.role != second.role || (first.role != "user" && first.role != "assistant"))
      return false;
    const size_t calls = second.extra.contains("tool_calls") ? 1 : 0;
    if (second.extra.size() > calls || first.extra.contains("content")) return false;
    if (calls > 0 && !second.extra["tool_calls"].is_array()) return false;
    return !first.extra.contains("tool_calls") || second.content.empty();
  }

  static bool is_lone_answer(const text::Conversation& conversation) {
    return conversation.messages.size() == 1 && conversation.messages[0].role == "assistant" &&
           conversation.messages[0].media.empty() &&
           !conversation.messages[0].extra.contains("tool_calls");
  }

  /// {"role": "assistant", "content": ""} at the end: the place where an answer is to stand.
  static void drop_empty_answer(std::vector<text::Message>* messages) {
    if (messages->size() < 2) return;
    const text::Message& last = messages->back();
    if (last.role == "assistant" && last.content.empty() && !last.extra.contains("tool_calls"))
      messages->pop_back();
  }

  Speaker speaker_of(const std::string& role) const {
    if (role == tags_.user) return Speaker::kUser;
    if (role == tags_.assistant) return Speaker::kAssistant;
    if (role == tags_.observation) return Speaker::kTool;
    if (role == tags_.function) return Speaker::kFunctionCall;
    if (role == tags_.system_role) return Speaker::kSystem;
    return usual_speaker(role);
  }

  bool add_message(const Json& message, std::vector<text::Message>* messages,
                   RowProblem* problem) const {
    if (!message.is_object()) {
      *problem = {"a message is not an object", fmt::format("got {}", kind_of(message))};
      return false;
    }
    const Json* role = find_value(message, tags_.role);
    if (!role) return add_pair(message, messages, problem);
    if (!role->is_string()) {
      *problem = wrong_type(tags_.role, "a string", *role);
      return false;
    }
    const Speaker speaker = speaker_of(role->get<std::string>());
    if (speaker == Speaker::kUnknown) {
      *problem = {"unknown role", fmt::format("got \"{}\"", role->get<std::string>())};
      return false;
    }
    text::Message result;
    copy_extra(message, speaker, &result);
    if (!read_content(message, &result, problem)) return false;
    if (speaker == Speaker::kFunctionCall && !call_function(&result, problem)) return false;
    constexpr std::string_view kRoles[] = {"system", "user", "assistant", "assistant", "tool"};
    result.role = kRoles[static_cast<size_t>(speaker)];
    messages->push_back(std::move(result));
    return true;
  }

  /// {"human": question, "assistant": answer} as one list item.
  bool add_pair(const Json& message, std::vector<text::Message>* messages,
                RowProblem* problem) const {
    std::string question, answer;
    bool has_question = false, has_answer = false;
    for (const auto& [key, value] : message.items()) {
      const Speaker speaker = speaker_of(key);
      if (!value.is_string()) continue;
      if (speaker == Speaker::kUser) {
        question = value.get<std::string>();
        has_question = true;
      } else if (speaker == Speaker::kAssistant) {
        answer = value.get<std::string>();
        has_answer = true;
      }
    }
    if (!has_question || (!has_answer && !tags_.answers_optional)) {
      *problem = {fmt::format("a message has no \"{}\"", tags_.role), ""};
      return false;
    }
    messages->push_back({"user", std::move(question)});
    if (has_answer) messages->push_back({"assistant", std::move(answer)});
    return true;
  }

  void copy_extra(const Json& message, Speaker speaker, text::Message* result) const {
    if (const Json* loss = find_value(message, "loss"); loss && loss->is_boolean()) {
      result->train = loss->get<bool>();
      result->train_is_said = true;
    }
    if (const Json* weight = find_value(message, "weight"); weight && weight->is_number()) {
      result->train = weight->get<double>() != 0;
      result->train_is_said = true;
    }
    if (format_ == RowFormat::kShareGpt) return;
    for (const auto& [key, value] : message.items()) {
      if (key == tags_.role || key == tags_.content || key == "loss" || key == "weight") continue;
      if (value.is_null() || (key == "tool_calls" && value.empty())) continue;
      result->extra[key] = value;
    }
  }

  /// A picture or a video at the end of what was read of the message.
  bool add_media(const Json& block, text::Message* result, RowProblem* problem) const {
    const std::string what = tr("a message holds \"{}\"", media_block_name(block));
    if (!tags_.reads_media) refuse_media(what);
    if (is_audio_block(block)) refuse_unread_media(what);
    text::MediaPlace& place = result->media.emplace_back();
    place.offset = result->content.size();
    return read_media_part(block, &place.media, problem);
  }

  bool read_content(const Json& message, text::Message* result, RowProblem* problem) const {
    const Json* content = find_value(message, tags_.content);
    if (!content) {
      if (result->extra.contains("tool_calls")) return true;
      *problem = {fmt::format("a message has no \"{}\"", tags_.content), ""};
      return false;
    }
    if (content->is_string()) {
      result->content = content->get<std::string>();
      return true;
    }
    if (!content->is_array()) {
      *problem = wrong_type(tags_.content, "a string", *content);
      return false;
    }
    for (const Json& block : *content) {
      const bool is_read = is_media_block(block) ? add_media(block, result, problem)
                                                 : add_block(block, result, problem);
      if (!is_read) return false;
    }
    return true;
  }

  /// One part of a message that is a list: text, reasoning, or a tool call.
  static bool add_block(const Json& block, text::Message* result, RowProblem* problem) {
    const std::string type =
        block.is_object() ? json_get<std::string>(block, "type").value_or("text") : "";
    const Json* piece =
        type.empty() ? nullptr : find_value(block, block.contains("value") ? "value" : type);
    if (type == "text" && piece && piece->is_string()) {
      result->content += piece->get_ref<const std::string&>();
      return true;
    }
    if (type == "reasoning" && piece && piece->is_string()) {
      result->extra["reasoning_content"] = *piece;
      return true;
    }
    if ((type == "tool_call" || type == "tool_calls") && piece && piece->is_string()) {
      const Json calls = tool_calls_of(piece->get_ref<const std::string&>());
      for (const Json& call : calls) result->extra["tool_calls"].push_back(call);
      if (!calls.is_null()) return true;
    }
    *problem = {"a message holds something other than text",
                type.empty() ? "got " + kind_of(block) : fmt::format("got \"{}\"", type)};
    return false;
  }

  /// Where the call begins: LLaMA-Factory's rows may have a thought before it.
  static size_t behind_thought(const std::string& text) {
    constexpr std::string_view kEnd = "</think>";
    const size_t end = text.find(kEnd);
    if (end == text.npos) return 0;
    return std::min(text.find_first_not_of(" \t\r\n", end + kEnd.size()), text.size());
  }

  static bool call_function(text::Message* result, RowProblem* problem) {
    size_t begin = 0;
    Json calls = tool_calls_of(result->content);
    if (calls.is_null()) {
      begin = behind_thought(result->content);
      calls = tool_calls_of(result->content.substr(begin));
    }
    if (calls.is_null()) {
      *problem = {"a function call is not {\"name\":…, \"arguments\":…}",
                  fmt::format("got {}", result->content.substr(0, 80))};
      return false;
    }
    result->extra["tool_calls"] = std::move(calls);
    result->content.resize(begin);
    return true;
  }

  /// [system] then questions (or tool results) and answers in turn, an answer last unless answers
  /// are optional.
  bool check_order(const std::vector<text::Message>& messages, RowProblem* problem) const {
    const auto out_of_order = [&](size_t at, const char* rule) {
      *problem = {"roles out of order",
                  fmt::format("message {} is \"{}\": {}", at + 1, messages[at].role, rule)};
      return false;
    };
    std::string_view before = "start";
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::string& role = messages[i].role;
      const bool has_calls = messages[i].extra.contains("tool_calls");
      if (role == "system") {
        if (i > 0) return out_of_order(i, "a system message stands first");
        continue;
      }
      if (role == "user" && before != "start" && before != "assistant") {
        return out_of_order(i, "an answer must come before the next question");
      }
      if (role == "tool" && before != "assistant" && before != "tool") {
        return out_of_order(i, "a tool result follows an answer");
      }
      if (role == "assistant") {
        const bool is_alone =
            tags_.takes_lone_answers && before == "start" && i + 1 == messages.size();
        if (before != "user" && before != "tool" && !is_alone) {
          return out_of_order(i, "an answer follows a question or a tool result");
        }
        if (messages[i].content.empty() && messages[i].media.empty() && !has_calls) {
          *problem = {"empty answer", fmt::format("message {}", i + 1)};
          return false;
        }
      }
      before = role;
    }
    if (before == "assistant") return true;
    if (tags_.answers_optional && (before == "user" || before == "tool")) return true;
    *problem = messages.empty() ? RowProblem{"no messages", ""}
                                : RowProblem{"the last message is not an answer",
                                             fmt::format("got \"{}\"", messages.back().role)};
    return false;
  }

  RowFormat format_;
  MessageTags tags_;
};

}  // namespace

std::unique_ptr<RowHandler> make_messages_handler(RowFormat format, MessageTags tags) {
  return std::make_unique<MessagesHandler>(format, std::move(tags));
}

}  // namespace danlu::data
