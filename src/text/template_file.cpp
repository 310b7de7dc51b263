#include "text/template_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace danlu::text {

namespace {

class TemplateReader {
 public:
  TemplateReader(const Json& json, const std::string& origin) : json_(json), origin_(origin) {}

  NamedTemplate read() {
    static const std::vector<std::string> kKeys = {
        "name",           "format_prefix",       "format_system",
        "format_user",    "format_assistant",    "format_function",
        "format_tools",   "format_observation",  "format_separator",
        "default_system", "stop_words",          "efficient_eos",
        "replace_eos",    "force_system",        "template_class",
        "format_pair",    "default_instruction", "thought_words",
        "empty_thought"};
    if (!json_.is_object()) throw ModelError(tr("{}: every template must be an object", origin_));
    result_.name = string("name", "");
    if (result_.name.empty()) throw ModelError(tr("{}: a template has no name", origin_));
    for (const auto& [key, value] : json_.items()) {
      if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
        fail(tr("unknown key '{}'", key));
    }
    result_.efficient_eos = boolean("efficient_eos");
    result_.replace_eos = boolean("replace_eos");
    boolean("force_system");  // accepted, has no effect
    read_style();
    read_formats();
    read_stop_words();
    read_thoughts();
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ModelError(tr("{}: template '{}': {}", origin_, result_.name, what));
  }

  std::string string(const char* key, std::string fallback) const {
    const auto it = json_.find(key);
    if (it == json_.end() || it->is_null()) return fallback;
    if (it->is_array() &&
        std::all_of(it->begin(), it->end(), [](const Json& part) { return part.is_string(); })) {
      std::string joined;  // a long text may be written as a list of its parts
      for (const Json& part : *it) joined += part.get<std::string>();
      return joined;
    }
    if (!it->is_string()) fail(tr("'{}' must be a string, got {}", key, it->type_name()));
    return it->get<std::string>();
  }

  bool boolean(const char* key) const {
    const auto it = json_.find(key);
    if (it == json_.end() || it->is_null()) return false;
    if (!it->is_boolean()) fail(tr("'{}' must be true or false, got {}", key, it->type_name()));
    return it->get<bool>();
  }

  void read_style() {
    const std::string name = string("template_class", "");
    if (name == "Llama2Template") {
      result_.style = TemplateStyle::kLlama2;
    } else if (name == "ReasoningTemplate") {
      result_.style = TemplateStyle::kReasoning;
    } else if (name == "StanfordAlpacaTemplate") {
      result_.style = TemplateStyle::kStanfordAlpaca;
    } else if (!name.empty() && name != "Template") {
      fail(
          tr("unknown template_class '{}'; known: Template, Llama2Template, ReasoningTemplate, "
             "StanfordAlpacaTemplate",
             name));
    }
  }

  TemplateSlot slot(const char* key, const Json& json) const {
    using Kind = TemplateSlot::Kind;
    if (json.is_string()) return {Kind::kText, json.get<std::string>()};
    if (json.is_array() && json.size() == 1 && json[0] == "bos_token") return {Kind::kBos, ""};
    if (json.is_array() && json.size() == 1 && json[0] == "eos_token") return {Kind::kEos, ""};
    if (json.is_object() && json.size() == 1 && json.contains("token") &&
        json["token"].is_string()) {
      return {Kind::kToken, json["token"].get<std::string>()};
    }
    fail(
        tr("'{}': a slot must be a string, [\"bos_token\"], [\"eos_token\"] or "
           "{{\"token\": …}}, got {}",
           key, json.dump()));
  }

  /// {"slots": […]} or just […].
  TemplateSlots slots(const char* key, TemplateSlots fallback) const {
    const auto it = json_.find(key);
    if (it == json_.end() || it->is_null()) return fallback;
    const Json* list = &*it;
    if (it->is_object()) {
      const auto inner = it->find("slots");
      if (inner == it->end() || inner->is_null()) return fallback;
      list = &*inner;
    }
    if (!list->is_array())
      fail(tr("'{}' must hold a list of slots, got {}", key, list->type_name()));
    TemplateSlots result;
    for (const Json& json : *list) result.push_back(slot(key, json));
    return result;
  }

  bool has_placeholder(const TemplateSlots& slots, std::string_view placeholder) const {
    return std::any_of(slots.begin(), slots.end(), [&](const TemplateSlot& s) {
      return s.kind == TemplateSlot::Kind::kText && s.text.find(placeholder) != std::string::npos;
    });
  }

  void require_content(const char* key, const TemplateSlots& slots) const {
    if (!has_placeholder(slots, "{{content}}")) fail(tr("'{}' must contain {{{{content}}}}", key));
  }

  void read_formats() {
    const TemplateSlots content = {{TemplateSlot::Kind::kText, "{{content}}"}};
    TemplateSlots answer = content;
    TemplateSlots call = {
        {TemplateSlot::Kind::kText, "Action: {{name}}\nAction Input: {{arguments}}"}};
    if (!result_.efficient_eos) {
      answer.push_back({TemplateSlot::Kind::kEos, ""});
      call.push_back({TemplateSlot::Kind::kEos, ""});
    }
    result_.user = slots("format_user", content);
    result_.assistant = slots("format_assistant", answer);
    result_.system = slots("format_system", content);
    result_.function = slots("format_function", call);
    result_.observation = slots("format_observation", result_.user);
    result_.separator = slots("format_separator", {});
    result_.prefix = slots("format_prefix", {});
    require_content("format_user", result_.user);
    require_content("format_assistant", result_.assistant);
    require_content("format_system", result_.system);
    require_content("format_observation", result_.observation);
    const bool whole = has_placeholder(result_.function, "{{content}}");
    if (!whole && !(has_placeholder(result_.function, "{{name}}") &&
                    has_placeholder(result_.function, "{{arguments}}"))) {
      fail("'format_function' must contain {{content}}, or {{name}} and {{arguments}}");
    }
    result_.default_system = string("default_system", "");
    read_pair();
    if (const auto tools = json_.find("format_tools"); tools != json_.end() && tools->is_object()) {
      result_.tool_format = tools->value("tool_format", "default");
    }
  }

  void read_pair() {
    result_.pair = string("format_pair", "");
    result_.default_instruction = string("default_instruction", "");
    if (result_.pair.empty()) return;
    for (const char* placeholder : {"{{query}}", "{{document}}"}) {
      if (result_.pair.find(placeholder) == std::string::npos)
        fail(tr("'format_pair' must contain {}", placeholder));
    }
  }

  void read_stop_words() {
    const auto it = json_.find("stop_words");
    if (it != json_.end() && !it->is_null()) {
      if (!it->is_array()) fail("'stop_words' must be a list of strings");
      for (const Json& word : *it) {
        if (!word.is_string()) fail("'stop_words' must be a list of strings");
        result_.stop_words.push_back(word.get<std::string>());
      }
    }
    if (result_.replace_eos && result_.stop_words.empty())
      fail("'replace_eos' needs a stop word to become EOS");
  }

  void read_thoughts() {
    const auto it = json_.find("thought_words");
    if (it != json_.end() && !it->is_null()) {
      const auto is_word = [](const Json& word) { return word.is_string() && word != ""; };
      if (!it->is_array() || it->size() != 2 || !std::all_of(it->begin(), it->end(), is_word))
        fail("'thought_words' must be two strings: what opens a thought, and what closes it");
      result_.thought_begin = (*it)[0].get<std::string>();
      result_.thought_end = (*it)[1].get<std::string>();
      result_.empty_thought = result_.thought_begin + result_.thought_end;
    }
    result_.empty_thought = string("empty_thought", result_.empty_thought);
  }

  const Json& json_;
  const std::string& origin_;
  NamedTemplate result_;
};

/// What LLaMA-Factory takes for parts that a template of its list leaves out.
Json with_llamafactory_defaults(Json templates) {
  for (Json& one : templates) {
    if (!one.contains("format_function")) {
      Json answer = Json::array({"{{content}}"});
      if (!one.value("efficient_eos", false)) answer.push_back(Json::array({"eos_token"}));
      one["format_function"] = one.value("format_assistant", answer);
    }
    if (!one.contains("format_tools")) one["format_tools"] = {{"tool_format", "actions"}};
    if (!one.contains("thought_words"))
      one["thought_words"] = Json::array({"<think>\n", "\n</think>\n\n"});
  }
  return templates;
}

const NamedTemplate* with_name(const std::vector<NamedTemplate>& templates, std::string_view name) {
  const auto found = std::find_if(templates.begin(), templates.end(),
                                  [&](const NamedTemplate& one) { return one.name == name; });
  return found == templates.end() ? nullptr : &*found;
}

}  // namespace

std::vector<NamedTemplate> parse_templates(const Json& json, const std::string& origin) {
  if (!json.is_array())
    throw ModelError(tr("{}: expected a list of templates, got {}", origin, json.type_name()));
  std::vector<NamedTemplate> templates;
  for (const Json& entry : json) {
    templates.push_back(TemplateReader(entry, origin).read());
    const auto same = [&](const NamedTemplate& t) { return t.name == templates.back().name; };
    if (std::any_of(templates.begin(), templates.end() - 1, same)) {
      throw ModelError(tr("{}: template '{}' appears twice", origin, templates.back().name));
    }
  }
  return templates;
}

const std::vector<NamedTemplate>& builtin_templates() {
  static const auto* const templates = new std::vector<NamedTemplate>(
      parse_templates(parse_json(kBuiltinTemplatesJson, "templates.json"), "templates.json"));
  return *templates;
}

const std::vector<NamedTemplate>& llamafactory_templates() {
  static const auto* const templates = [] {
    const std::string origin = "llamafactory_templates.json";
    auto* const parsed = new std::vector<NamedTemplate>(parse_templates(
        with_llamafactory_defaults(parse_json(kLlamaFactoryTemplatesJson, origin)), origin));
    for (NamedTemplate& one : *parsed) one.as_in_llamafactory = true;
    return parsed;
  }();
  return *templates;
}

std::string name_in_llamafactory(const std::string& name) {
  return with_name(llamafactory_templates(), name) ? std::string(kOfLlamaFactory) + name : name;
}

std::optional<NamedTemplate> find_template(const std::string& name,
                                           const std::filesystem::path& templates_file) {
  const bool is_theirs = name.starts_with(kOfLlamaFactory);
  const std::string_view plain =
      std::string_view(name).substr(is_theirs ? kOfLlamaFactory.size() : 0);
  if (!templates_file.empty()) {
    const auto ours = parse_templates(read_json_file(templates_file), templates_file.string());
    if (const NamedTemplate* found = with_name(ours, plain)) return *found;
  }
  const NamedTemplate* found =
      with_name(is_theirs ? llamafactory_templates() : builtin_templates(), plain);
  if (!found) return std::nullopt;
  NamedTemplate result = *found;
  result.name = name;
  return result;
}

}  // namespace danlu::text
