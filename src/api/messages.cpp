// The messages of a chat: OpenAI's parts into what encoders of templates take.
#include <fmt/format.h>

#include "api/chat_request.h"
#include "base/json_text.h"
#include "text/base64.h"

namespace danlu::api {
namespace {

std::string place_of(size_t index, const std::string& name) {
  return fmt::format("messages[{}]{}{}", index, name.empty() ? "" : ".", name);
}

/// The bytes of "data:image/png;base64,…". Nothing of the host or the net is read.
std::shared_ptr<const std::string> picture_bytes(const std::string& url, const std::string& place) {
  constexpr std::string_view kScheme = "data:", kCoding = ";base64";
  if (!url.starts_with(kScheme)) {
    throw Refusal(fmt::format("'{}' must be a data: URL with the picture in base64; neither files "
                              "nor the net are read",
                              place),
                  place);
  }
  const size_t comma = url.find(',');
  if (comma == url.npos || !std::string_view(url).substr(0, comma).ends_with(kCoding))
    throw Refusal(fmt::format("'{}' must be a data: URL in base64", place), place);
  std::string bytes;
  if (!text::decode_base64(std::string_view(url).substr(comma + 1), &bytes) || bytes.empty())
    throw Refusal(fmt::format("'{}' is not base64", place), place);
  return std::make_shared<const std::string>(std::move(bytes));
}

class MessageReader {
 public:
  explicit MessageReader(size_t index) : index_(index) {}

  text::Message read(const Json& json) {
    Fields fields(json, place_of(index_, "") + ".");
    const auto role = fields.text("role");
    if (!role || role->empty()) refuse("role", "is missing");
    message_.role = *role == "developer" ? "system" : *role;
    static const std::set<std::string> known = {"system", "user", "assistant", "tool", "function"};
    if (!known.contains(message_.role))
      refuse("role", fmt::format("must be system, user, assistant or tool, got '{}'", *role));
    read_calls(fields);
    read_content(fields);
    if (const auto id = fields.text("tool_call_id")) message_.extra["tool_call_id"] = *id;
    if (message_.role == "tool" && message_.extra.value("tool_call_id", "").empty())
      refuse("tool_call_id", "is missing");
    if (const auto name = fields.text("name")) message_.extra["name"] = *name;
    for (const char* name : {"reasoning", "reasoning_content"}) {
      if (const auto thought = fields.text(name)) message_.extra["reasoning_content"] = *thought;
    }
    return std::move(message_);
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    const std::string place = place_of(index_, name);
    throw Refusal(fmt::format("'{}' {}", place, what), place);
  }

  void read_calls(Fields& fields) {
    const Json* calls = fields.find("tool_calls");
    if (!calls) return;
    if (!calls->is_array()) refuse("tool_calls", "must be a list, got " + kind_of(*calls));
    Json list = Json::array();
    for (size_t i = 0; i < calls->size(); ++i) {
      const std::string name = fmt::format("tool_calls[{}]", i);
      Fields call((*calls)[i], place_of(index_, name) + ".");
      const Json* function = call.find("function");
      if (!function) refuse(name + ".function", "is missing");
      Fields parts(*function, place_of(index_, name) + ".function.");
      const auto called = parts.text("name");
      if (!called) refuse(name + ".function.name", "is missing");
      list.push_back({{"id", call.text("id").value_or("")},
                      {"type", "function"},
                      {"function",
                       {{"name", *called},
                        {"arguments", arguments_of(parts, name + ".function.arguments")}}}});
    }
    if (!list.empty()) message_.extra["tool_calls"] = std::move(list);
  }

  /// Templates write them as JSON: as a string they would be quoted once more.
  Json arguments_of(Fields& parts, const std::string& name) const {
    const Json* given = parts.find("arguments");
    if (!given) return Json::object();
    if (given->is_object()) return *given;
    if (!given->is_string()) refuse(name, "must be JSON in a string, got " + kind_of(*given));
    const auto& text = given->get_ref<const std::string&>();
    if (text.empty()) return Json::object();
    if (has_wider_object(text, kMostMembers)) refuse(name, "has an object with too many members");
    auto parsed = try_parse_json(text);
    if (!parsed || !parsed->is_object()) refuse(name, "must be a JSON object in a string");
    return std::move(*parsed);
  }

  void read_content(Fields& fields) {
    const Json* content = fields.find("content");
    if (!content) {
      if (message_.role != "assistant") refuse("content", "is missing");
      return;
    }
    if (content->is_string()) {
      message_.content = content->get<std::string>();
    } else if (content->is_array()) {
      for (size_t i = 0; i < content->size(); ++i) read_part((*content)[i], i);
    } else {
      refuse("content", "must be a string or a list of parts, got " + kind_of(*content));
    }
  }

  void read_part(const Json& json, size_t part) {
    const std::string name = fmt::format("content[{}]", part);
    if (json.is_string()) return add_text(json.get<std::string>());
    Fields fields(json, place_of(index_, name) + ".");
    const std::string type = fields.text("type").value_or("");
    if (type == "text" || type == "input_text" || type == "output_text" || type == "refusal") {
      const auto text = fields.text(type == "refusal" ? "refusal" : "text");
      if (!text) refuse(name + ".text", "is missing");
      return add_text(*text);
    }
    if (type != "image_url") {
      refuse(name + ".type",
             fmt::format("must be text or image_url, got '{}': nothing else is read", type));
    }
    const Json* image = fields.find("image_url");
    std::string place = name + ".image_url", url;
    if (image && image->is_string()) {
      url = image->get<std::string>();
    } else if (image) {
      place += ".url";
      url = Fields(*image, place_of(index_, name) + ".image_url.").text("url").value_or("");
    }
    if (url.empty()) refuse(place, "is missing");
    const std::string whole = place_of(index_, place);
    message_.media.push_back(
        {.offset = message_.content.size(),
         .media = {.kind = text::MediaKind::kImage,
                   .pieces = {{.name = whole, .bytes = picture_bytes(url, whole)}}}});
    follows_text_ = false;
  }

  /// Parts of text alone are lines; around a picture they are one text.
  void add_text(const std::string& text) {
    if (follows_text_) message_.content += '\n';
    message_.content += text;
    follows_text_ = true;
  }

  size_t index_;
  text::Message message_;
  bool follows_text_ = false;
};

/// Members of tools that nothing reads are told of as the request's, each once.
void check_tools(const Json& tools, const RequestLimits& limits, Fields& request) {
  if (!tools.is_array()) throw Refusal("'tools' must be a list, got " + kind_of(tools), "tools");
  if (tools.empty()) throw Refusal("'tools' must have a tool: leave it out for none", "tools");
  if (tools.size() > limits.max_tools) {
    throw Refusal(
        fmt::format("'tools' may have up to {} functions, got {}", limits.max_tools, tools.size()),
        "tools");
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = fmt::format("tools[{}]", i);
    Fields tool(tools[i], place + ".");
    if (tool.text("type").value_or("function") != "function")
      throw Refusal(fmt::format("'{}.type' must be function", place), place + ".type");
    const Json* function = tool.find("function");
    if (!function)
      throw Refusal(fmt::format("'{}.function' is missing", place), place + ".function");
    Fields parts(*function, place + ".function.");
    if (parts.text("name").value_or("").empty()) {
      throw Refusal(fmt::format("'{}.function.name' is missing", place), place + ".function.name");
    }
    parts.text("description");
    const Json* parameters = parts.find("parameters");
    if (parameters && !parameters->is_object()) {
      throw Refusal(fmt::format("'{}.function.parameters' must be a JSON schema", place),
                    place + ".function.parameters");
    }
    request.take_unread(tool, "tools[].");
    request.take_unread(parts, "tools[].function.");
  }
}

}  // namespace

void read_messages(Fields& fields, const RequestLimits& limits, text::Conversation* conversation) {
  const Json* messages = fields.find("messages");
  if (!messages) throw Refusal("'messages' is missing", "messages");
  if (!messages->is_array())
    throw Refusal("'messages' must be a list, got " + kind_of(*messages), "messages");
  if (messages->empty()) throw Refusal("'messages' must have a message", "messages");
  for (size_t i = 0; i < messages->size(); ++i)
    conversation->messages.push_back(MessageReader(i).read((*messages)[i]));
  if (const Json* tools = fields.find("tools")) {
    check_tools(*tools, limits, fields);
    conversation->tools = *tools;
  }
}

Json read_template_arguments(Fields& fields) {
  Json arguments = Json::object();
  if (const Json* given = fields.find("chat_template_kwargs")) {
    if (!given->is_object()) {
      throw Refusal("'chat_template_kwargs' must be an object, got " + kind_of(*given),
                    "chat_template_kwargs");
    }
    arguments = *given;
  }
  if (const auto thinks = fields.boolean("enable_thinking")) arguments["enable_thinking"] = *thinks;
  if (const auto effort = fields.text("reasoning_effort")) {
    if (!arguments.contains("reasoning_effort")) arguments["reasoning_effort"] = *effort;
  }
  return arguments;
}

}  // namespace danlu::api
