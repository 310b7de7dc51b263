#include "api/tool_calls.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "api/whole_answer.h"
#include "base/file.h"
#include "base/json_text.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "text/template_tools.h"

namespace danlu::api {
namespace {

using text::ToolFormat;
using Kind = ToolCallEvent::Kind;

constexpr ToolFormat kAllToolFormats[] = {ToolFormat::kHermes,  ToolFormat::kLlama3,
                                          ToolFormat::kMistral, ToolFormat::kDeepSeekV3,
                                          ToolFormat::kGlm45,   ToolFormat::kQwenCoder};

const Json kGlmTools = Json::parse(R"([{"type": "function", "function": {"name": "get weather",
  "parameters": {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "number"}}}}}])");

struct Gathered {
  std::string content;
  std::vector<ParsedCall> calls;
  std::vector<Kind> ends;  ///< of each call: kEnd or kBroken
};

Gathered gather(ToolFormat format, const std::vector<std::string>& pieces, bool whole = false) {
  ToolCallOptions options{.tools = kGlmTools, .whole_calls = whole};
  options.make_id = [] { return "id"; };
  const auto parser = make_tool_call_parser(format, options);
  Gathered all;
  const auto add = [&](const std::vector<ToolCallEvent>& events) {
    for (const ToolCallEvent& event : events) {
      if (event.kind == Kind::kContent) {
        all.content += event.text;
      } else if (event.kind == Kind::kBegin) {
        EXPECT_EQ(event.index, all.calls.size());
        all.calls.push_back({event.id, event.name, ""});
      } else {
        ASSERT_EQ(event.index + 1, all.calls.size());
        if (event.kind == Kind::kArguments) {
          all.calls.back().arguments += event.text;
        } else {
          all.ends.push_back(event.kind);
        }
      }
    }
  };
  for (const std::string& piece : pieces) add(parser->push(piece));
  add(parser->finish());
  return all;
}

std::vector<std::string> in_bytes(const std::string& text) {
  std::vector<std::string> pieces;
  for (const char c : text) pieces.emplace_back(1, c);
  return pieces;
}

std::string described(const Gathered& all) {
  std::string text = "[" + all.content + "]";
  for (size_t i = 0; i < all.calls.size(); ++i) {
    text += " " + all.calls[i].name + "(" + all.calls[i].arguments + ")";
    text += i < all.ends.size() ? (all.ends[i] == Kind::kEnd ? "." : "!") : "?";
  }
  return text;
}

/// Asserts that cuts at every byte, and a cut around every byte, change nothing.
void expect_same_however_cut(ToolFormat format, const std::string& text) {
  SCOPED_TRACE(text);
  for (const bool whole : {false, true}) {
    const std::string expected = described(gather(format, {text}, whole));
    ASSERT_EQ(described(gather(format, in_bytes(text), whole)), expected) << whole;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      ASSERT_EQ(described(gather(format, {text.substr(0, cut), text.substr(cut)}, whole)), expected)
          << cut;
    }
  }
}

class RandomCalls {
 public:
  explicit RandomCalls(unsigned seed) : random_(seed) {}
  size_t below(size_t bound) { return random_() % bound; }

  std::string words() {
    static const std::vector<std::string> kWords = {"\"",
                                                    "\\",
                                                    "{",
                                                    "}",
                                                    "[",
                                                    "]",
                                                    "\n",
                                                    "\t",
                                                    "é",
                                                    "中文",
                                                    "😀",
                                                    "<",
                                                    "</tool_call>",
                                                    "<tool_call>",
                                                    "a",
                                                    "name",
                                                    "</arg_value",
                                                    ":",
                                                    ",",
                                                    "'",
                                                    "\\\"",
                                                    "\x01",
                                                    "```",
                                                    "[TOOL_CALLS]",
                                                    "\\u0041"};
    std::string text;
    for (size_t i = below(7); i > 0; --i) text += kWords[below(kWords.size())];
    return text;
  }
  Json value(int depth = 0) {
    switch (below(depth > 3 ? 5 : 7)) {
      case 0:
        return words();
      case 1:
        return static_cast<int64_t>(random_()) - 2000000000;
      case 2:
        return static_cast<double>(random_()) / 1000.0;
      case 3:
        return below(2) == 0;
      case 4:
        return nullptr;
      case 5: {
        Json list = Json::array();
        for (size_t i = below(4); i > 0; --i) list.push_back(value(depth + 1));
        return list;
      }
      default:
        return object(depth + 1);
    }
  }
  Json object(int depth = 0) {
    Json result = Json::object();
    for (size_t i = below(4); i > 0; --i) result[words()] = value(depth + 1);
    return result;
  }

 private:
  std::mt19937 random_;
};

std::string spelled(const Json& value, size_t style) {
  return style == 0 ? value.dump() : style == 1 ? value.dump(2) : value.dump(-1, ' ', true);
}

/// What a model would write, in a random one of a form's spellings.
std::string written(ToolFormat format, const std::vector<std::pair<std::string, Json>>& calls,
                    RandomCalls& random) {
  std::string text;
  const size_t style = random.below(3), form = random.below(2);
  for (const auto& [name, arguments] : calls) {
    const std::string json = spelled(arguments, style);
    const std::string member = format == ToolFormat::kLlama3 ? "parameters" : "arguments";
    const std::string object =
        form == 0 ? "{\"name\": " + Json(name).dump() + ", \"" + member + "\": " + json + "}"
                  : "{\n\"" + member + "\": " + json + ",\"name\":" + Json(name).dump() + "\n}";
    switch (format) {
      case ToolFormat::kHermes:
        text += "\n<tool_call>\n" + object +
                (form == 0 || &name != &calls.back().first ? "\n</tool_call>" : "");
        break;
      case ToolFormat::kLlama3:
        text += text.empty() ? (form ? "<|python_tag|>" : "") + object : "; " + object;
        break;
      case ToolFormat::kMistral:
        if (form == 0) {
          text += (text.empty() ? "[TOOL_CALLS] [" : ", ") + object;
        } else {
          text += "[TOOL_CALLS]" + name + (style == 0 ? "[ARGS]" : "") + json;
        }
        break;
      case ToolFormat::kDeepSeekV3:
        if (text.empty()) text = "<｜tool▁calls▁begin｜>";
        text += form == 0 ? "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n```json\n" +
                                json + "\n```<｜tool▁call▁end｜>\n"
                          : "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + json +
                                "<｜tool▁call▁end｜>";
        break;
      case ToolFormat::kGlm45:
        text += "\n<tool_call>" + name + "\n";
        for (const auto& [key, value] : arguments.items()) {
          const bool bare = value.is_string() && key == "s";
          text += "<arg_key>" + key + "</arg_key>\n<arg_value>" +
                  (bare ? value.get<std::string>() : value.dump()) + "</arg_value>\n";
        }
        text += "</tool_call>";
        break;
      case ToolFormat::kQwenCoder:
        text += "\n<tool_call>\n<function=" + name + ">\n";
        for (const auto& [key, value] : arguments.items()) {
          const bool bare = value.is_string() && key == "s";
          text += "<parameter=" + key + ">\n" + (bare ? value.get<std::string>() : value.dump()) +
                  "\n</parameter>\n";
        }
        text += "</function>\n</tool_call>";
        break;
    }
  }
  if (format == ToolFormat::kMistral && form == 0 && !text.empty()) text += "]";
  if (format == ToolFormat::kDeepSeekV3 && !text.empty()) text += "<｜tool▁calls▁end｜>";
  return text;
}

TEST(ToolCalls, RandomCallsComeBackHoweverTheyAreCut) {
  for (const ToolFormat format : kAllToolFormats) {
    RandomCalls random(7 + static_cast<unsigned>(format));
    for (int round = 0; round < 300; ++round) {
      std::vector<std::pair<std::string, Json>> calls;
      for (size_t i = 1 + random.below(3); i > 0; --i) {
        Json arguments = random.object();
        const bool in_tags = format == ToolFormat::kGlm45 || format == ToolFormat::kQwenCoder;
        if (in_tags) {
          arguments = Json::object();
          if (random.below(2)) arguments["s"] = "a \"b\"\\ </arg_value \n 中";
          if (random.below(2)) arguments["n"] = random.value();
        }
        const bool spaced = in_tags || format == ToolFormat::kHermes;
        calls.emplace_back(spaced ? "get weather" : "get_weather", arguments);
      }
      const std::string text = written(format, calls, random);
      SCOPED_TRACE(text);
      for (const bool whole : {false, true}) {
        const Gathered got = gather(format, in_bytes(text), whole);
        ASSERT_EQ(got.content, "");
        ASSERT_EQ(got.calls.size(), calls.size());
        for (size_t i = 0; i < calls.size(); ++i) {
          ASSERT_EQ(got.calls[i].name, calls[i].first);
          ASSERT_EQ(parse_json(got.calls[i].arguments, "arguments"), calls[i].second);
          ASSERT_EQ(got.ends[i], Kind::kEnd);
        }
      }
      if (round < 15) expect_same_however_cut(format, text);
    }
  }
}

TEST(ToolCalls, ArgumentsComeWhileTheyAreWritten) {
  const auto parser = make_tool_call_parser(ToolFormat::kHermes);
  EXPECT_TRUE(parser->push("<tool_call>{\"name\": \"f\", \"argum").empty());
  auto events = parser->push("ents\": {\"a\": \"x");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "f");
  EXPECT_EQ(events[0].id.size(), std::string("chatcmpl-tool-").size() + 32);
  EXPECT_EQ(events[1].text, "{\"a\": \"x");
  events = parser->push("y\"}}\n</tool_");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].text, "y\"}");
  EXPECT_EQ(events[1].kind, Kind::kEnd);
  EXPECT_TRUE(parser->push("call>").empty());
  EXPECT_TRUE(parser->finish().empty());
}

TEST(ToolCalls, TextAroundCallsIsContentWithoutTheSpaceBetween) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(
      described(gather(ToolFormat::kHermes, {"Let me look.\n\n" + call + "\n" + call + " \n"})),
      "[Let me look.] f({}). f({}).");
  EXPECT_EQ(described(gather(ToolFormat::kHermes, {call + "\nDone."})), "[\nDone.] f({}).");
  // Without the closing tag the next call, or text, follows.
  EXPECT_EQ(described(gather(ToolFormat::kHermes, {call.substr(0, call.size() - 12) + call + "x"})),
            "[x] f({}). f({}).");
}

/// Small models write words and fences around their calls.
TEST(ToolCalls, LlamasCallsMayStandAnywhere) {
  const std::string call = "{\"name\": \"f\", \"parameters\": {\"a\": 1}}";
  const auto read = [](const std::string& text) {
    expect_same_however_cut(ToolFormat::kLlama3, text);
    return described(gather(ToolFormat::kLlama3, {text}));
  };
  EXPECT_EQ(read("Sure:\n" + call), "[Sure:] f({\"a\": 1}).");
  EXPECT_EQ(read("```json\n" + call + "\n```"), "[```json\n```] f({\"a\": 1}).");
  EXPECT_EQ(read("<" + call), "[<] f({\"a\": 1}).");
  EXPECT_EQ(read("{\"x\": [1]} then " + call), "[{\"x\": [1]} then] f({\"a\": 1}).");
  EXPECT_EQ(read("{x " + call), "[{x] f({\"a\": 1}).");
}

/// As its template writes them; vLLM's reader takes one line break from each end of a value.
TEST(ToolCalls, QwenCodersValuesAreOfTheTypesOfTheSchema) {
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {
      "properties": {"code": {"type": "string"}, "n": {"type": "integer"}, "on": {"type": "boolean"},
        "list": {"type": "array"}, "may": {"type": ["string", "null"]}}}}}])");
  const auto read = [&](const std::string& inner) {
    const ParsedAnswer answer =
        parse_tool_calls("Look.\n<tool_call>\n<function=f>\n" + inner + "</function>\n</tool_call>",
                         ToolFormat::kQwenCoder, {.tools = tools});
    EXPECT_EQ(answer.content, "Look.");
    EXPECT_EQ(answer.calls.size(), 1u);
    return answer.calls.empty() ? Json() : parse_json(answer.calls[0].arguments, "arguments");
  };
  EXPECT_EQ(read(""), Json::object());
  EXPECT_EQ(read("<parameter=code>\n\n  if a < b:\n    \"x\"\n\n</parameter>\n"),
            (Json{{"code", "\n  if a < b:\n    \"x\"\n"}}));
  EXPECT_EQ(read("<parameter=code>5</parameter>\n<parameter=n>\n5\n</parameter>"),
            (Json{{"code", "5"}, {"n", 5}}));
  EXPECT_EQ(
      read("<parameter=on>\nTrue\n</parameter>\n<parameter=list>\n[1, \"a\"]\n</parameter>\n"),
      (Json{{"on", true}, {"list", {1, "a"}}}));
  EXPECT_EQ(read("<parameter=may>\nnull\n</parameter>\n<parameter=other>\n7 and 8\n</parameter>\n"),
            (Json{{"may", nullptr}, {"other", "7 and 8"}}));
  EXPECT_EQ(read("<parameter=may>\n7\n</parameter>\n"), (Json{{"may", "7"}}));
  // Without the outer tag, as larger ones write it at times.
  const std::string bare = "<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\nDone";
  EXPECT_EQ(described(gather(ToolFormat::kQwenCoder, {bare})), "[\nDone] f({\"n\": 1}).");
  EXPECT_EQ(text::tool_format_of_template("<tool_call><function=x><parameter=y>"),
            ToolFormat::kQwenCoder);
}

TEST(ToolCalls, ArgumentsMayBeAbsentNullOrAString) {
  const auto hermes = [](const std::string& inner) {
    return described(gather(ToolFormat::kHermes, {"<tool_call>" + inner + "</tool_call>"}));
  };
  EXPECT_EQ(hermes(R"({"name": "f"})"), "[] f({}).");
  EXPECT_EQ(hermes(R"({"name": "f", "arguments": null})"), "[] f({}).");
  EXPECT_EQ(hermes(R"({"arguments": "{\"a\": 1}", "name": "f"})"), "[] f({\"a\": 1}).");
  EXPECT_EQ(hermes(R"({"id": 12, "name": "f", "arguments": {}})"), "[] f({}).");
}

struct BrokenCase {
  ToolFormat format;
  std::string text;
};
const std::vector<BrokenCase> kNoCalls = {
    {ToolFormat::kHermes, "<tool_call> is a tag, <tool_call"},
    {ToolFormat::kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"},
    {ToolFormat::kHermes, "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>"},
    {ToolFormat::kHermes, "<tool_call>{\"arguments\": {}}</tool_call>"},
    {ToolFormat::kHermes, "<tool_call>{'name': 'f'}</tool_call>\n"},
    {ToolFormat::kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}"},
    {ToolFormat::kHermes, "<tool_call>{\"name\": \"f\", "},
    {ToolFormat::kLlama3, "{\"answer\": {\"name\": \"f\", \"parameters\": {}}}"},
    {ToolFormat::kLlama3, "{\"name\": \"Bob\", \"age\": 3}"},
    {ToolFormat::kLlama3, "{\"name\": \"Bob\"}"},
    {ToolFormat::kLlama3,
     "Say {\"name\": \"f\", \"arguments\": [{\"name\": \"f\", \"parameters\": {}}]} so"},
    {ToolFormat::kLlama3, "{} and <{\"a\": {\"name\": \"f\", \"parameters\": {}}}"},
    {ToolFormat::kQwenCoder, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"},
    {ToolFormat::kQwenCoder, "<tool_call>\n<function=>\n</function>"},
    {ToolFormat::kQwenCoder, "a <function b"},
    {ToolFormat::kLlama3, "<|python_tag|>print(1)\n"},
    {ToolFormat::kMistral, "[TOOL_CALLS] none"},
    {ToolFormat::kMistral, "[TOOL_CALLS][1]"},
    {ToolFormat::kMistral, "[TOOL_CALLS]f[ARGS](1)"},
    {ToolFormat::kDeepSeekV3, "<｜tool▁calls▁begin｜>none"},
    {ToolFormat::kDeepSeekV3, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```python\n1"},
    {ToolFormat::kGlm45, "<tool_call><b>"},
    {ToolFormat::kGlm45, "<tool_call>f\nnothing"},
};

TEST(ToolCalls, WhatIsNoCallIsContentToTheByte) {
  for (const BrokenCase& c : kNoCalls) {
    SCOPED_TRACE(c.text);
    const Gathered got = gather(c.format, {c.text});
    EXPECT_EQ(got.content, c.text);
    EXPECT_TRUE(got.calls.empty());
    expect_same_however_cut(c.format, c.text);
  }
}

TEST(ToolCalls, ACallThatBreaksIsContentWhereCallsAreWhole) {
  const std::string broken =
      "Hm.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oops}}</tool_call>";
  EXPECT_EQ(described(gather(ToolFormat::kHermes, {broken}, true)), "[" + broken + "]");
  EXPECT_EQ(described(gather(ToolFormat::kHermes, {broken})),
            "[Hm.oops}}</tool_call>] f({\"a\": )!");
  const std::string good = "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(described(gather(ToolFormat::kHermes, {good + broken.substr(4) + good}, true)),
            "[" + broken.substr(4) + "] g({}). g({}).");
}

TEST(ToolCalls, AnAnswerThatIsCutOffLosesNothingWhereCallsAreWhole) {
  for (const ToolFormat format : kAllToolFormats) {
    RandomCalls random(11);
    const std::string name = "f";
    const std::string text = written(format, {{name, Json{{"s", "x y"}}}}, random);
    for (size_t end = 0; end < text.size(); ++end) {
      const Gathered got = gather(format, {text.substr(0, end)}, true);
      if (got.calls.empty()) {
        ASSERT_EQ(got.content, text.substr(0, end));
      } else {
        ASSERT_EQ(got.content, "");
      }
      for (const ParsedCall& call : gather(format, {text.substr(0, end)}).calls) {
        ASSERT_EQ(call.name, "f");
      }
    }
  }
}

TEST(ToolCalls, AnyCutOfDamagedCallsGivesTheSame) {
  for (const ToolFormat format : kAllToolFormats) {
    RandomCalls random(13);
    for (int round = 0; round < 25; ++round) {
      std::string text =
          written(format, {{"f", Json{{"s", random.words()}}}, {"g", random.object()}}, random);
      for (size_t i = 1 + random.below(3); i > 0; --i) {
        const size_t at = random.below(text.size());
        if (random.below(2)) {
          text.erase(at, 1 + random.below(3));
        } else {
          text.insert(at, std::string(1, "{}[]\"\\,:<>x \n"[random.below(13)]));
        }
        if (text.empty()) text = "{";
      }
      expect_same_however_cut(format, text);
    }
  }
}

TEST(ToolCalls, WhatTemplatesWriteIsRead) {
  const std::vector<text::ToolCall> calls = {{"f", "{\"a\": \"}\"}"}, {"g", "{}"}};
  const ParsedAnswer answer =
      parse_tool_calls(text::tool_calls_text(calls, "qwen"), *text::tool_format_of_named("qwen"));
  EXPECT_EQ(answer.content, "");
  ASSERT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.calls[0].arguments, calls[0].arguments);
  EXPECT_EQ(answer.calls[1].name, "g");
}

TEST(ToolCalls, RealTemplatesTellTheirForm) {
  DANLU_REQUIRES_SHARED();
  const std::map<std::string, std::string> expected = {
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", ""},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
      {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3"},
      {"fireworks-ai-llama-3-firefunction-v2", ""},
      {"google-gemma-2-2b-it", ""},
      {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json"},
      {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json"},
      {"microsoft-Phi-3.5-mini-instruct", ""},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"}};
  for (const auto& [name, format] : expected) {
    const auto found = text::tool_format_of_template(
        read_file(test::shared_dir() / "data" / "chat_templates" / (name + ".jinja")));
    EXPECT_EQ(found ? text::tool_format_name(*found) : "", format) << name;
  }
}

TEST(ToolCalls, FormsHaveNames) {
  for (const std::string& name : text::tool_format_names()) text::tool_format_of_name(name);
  EXPECT_EQ(
      test::error_of<UsageError>([] { text::tool_format_of_name("xml"); }),
      "form of tool calls 'xml' is not known; known: hermes, llama3_json, mistral, deepseek_v3, "
      "deepseek_v31, glm45, qwen3_coder, qwen3_xml");
  EXPECT_EQ(new_call_id(ToolFormat::kMistral).size(), 9u);
}

}  // namespace
}  // namespace danlu::api
