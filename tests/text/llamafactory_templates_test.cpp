// LLaMA-Factory's named templates against its own encoder: llamafactory_templates.json holds what
// its data/template.py (ff6d4d12) makes of these conversations with the same vocabulary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "base/file.h"
#include "base/json.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/conversation.h"
#include "text/fake_tokenizer.h"
#include "text/template_file.h"
#include "text/template_record.h"
#include "text/tool_format.h"

namespace danlu::text {
namespace {

using test::error_of;
using ::testing::Contains;
using ::testing::HasSubstr;

const Json& expectations() {
  static const auto* const json = new Json(
      read_json_file(std::filesystem::path(DANLU_SOURCE_DIR) / "tests/text/"
                                                               "llamafactory_templates.json"));
  return *json;
}

std::shared_ptr<FakeTokenizer> their_tokenizer() {
  auto tokenizer =
      std::make_shared<FakeTokenizer>(expectations().at("special").get<std::vector<std::string>>(),
                                      std::vector<std::string>{}, "", "</s>");
  tokenizer->set_bos("<s>");
  return tokenizer;
}

/// Targets stand in ⟦ ⟧; a label that is not the token itself follows it in ( ).
std::string with_targets_marked(const Tokenizer& tokenizer, const EncodedConversation& encoded) {
  std::string out;
  bool is_inside = false;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    const bool is_target = encoded.labels[i] != kIgnoreLabel;
    if (is_target != is_inside) out += is_target ? "⟦" : "⟧";
    is_inside = is_target;
    out += *tokenizer.id_to_token(encoded.ids[i]);
    if (is_target && encoded.labels[i] != encoded.ids[i])
      out += "(" + *tokenizer.id_to_token(encoded.labels[i]) + ")";
  }
  return is_inside ? out + "⟧" : out;
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

/// The conversation of a case; "<T>" stands for a thought in the words of its template.
Conversation conversation_of_case(const Json& one) {
  const std::string name = one.at("conversation").get<std::string>();
  Conversation conversation = parse_conversation(expectations().at("conversations").at(name), name);
  const Json words = expectations()
                         .at("thoughts")
                         .value(one.at("template").get<std::string>(), Json::array({"", ""}));
  for (Message& message : conversation.messages)
    replace_all(message.content, "<T>",
                words[0].get<std::string>() + "why" + words[1].get<std::string>());
  if (one.value("prompt", false)) conversation.messages.pop_back();
  if (one.value("last_answer", false)) {
    for (size_t i = 0; i + 1 < conversation.messages.size(); ++i)
      conversation.messages[i].train = false;
  }
  return conversation;
}

std::string without_date(const std::string& text) {
  static const std::regex date("Today Date: [0-9]{2} [A-Z][a-z]{2} [0-9]{4}\n");
  return std::regex_replace(text, date, "Today Date: TODAY\n");
}

TEST(LlamaFactoryTemplates, WriteAndTeachWhatItsOwnEncoderDoes) {
  const auto tokenizer = their_tokenizer();
  for (const Json& one : expectations().at("cases")) {
    const Json arguments =
        one.contains("thinking") ? Json{{"enable_thinking", one["thinking"]}} : Json();
    const std::string name = one.at("template").get<std::string>();
    const auto encoder = ChatEncoder::create(tokenizer, "llamafactory:" + name, {}, arguments);
    const Conversation conversation = conversation_of_case(one);
    const std::string written =
        one.value("prompt", false) ? tokenizer->decode(encoder->encode_prompt(conversation), false)
                                   : with_targets_marked(*tokenizer, encoder->encode(conversation));
    EXPECT_EQ(without_date(written), one.at("expected").get<std::string>())
        << name << " " << one.at("conversation") << " " << arguments.dump();
  }
}

TEST(LlamaFactoryTemplates, AreAllThere) {
  std::vector<std::string> names;
  for (const Json& one : expectations().at("cases")) names.push_back(one.at("template"));
  for (const NamedTemplate& one : llamafactory_templates()) EXPECT_THAT(names, Contains(one.name));
  EXPECT_EQ(llamafactory_templates().size(), 123u);
  for (const char* name : {"qwen3_nothink", "qwen3_vl_nothink", "deepseekr1", "vicuna", "gemma2",
                           "mistral_small", "phi4", "zephyr"})
    EXPECT_TRUE(find_template("llamafactory:" + std::string(name), {})) << name;
}

// --- whose template a name is --------------------------------------------------------------------

TEST(LlamaFactoryTemplates, ANameOfBothSystemsIsMindSpeedsUnlessTheirsIsSaid) {
  const auto system = [](const std::string& name) {
    return find_template(name, {}).value().default_system;
  };
  EXPECT_EQ(system("qwen"), "You are a helpful assistant.");
  EXPECT_EQ(system("llamafactory:qwen"),
            "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
  EXPECT_EQ(name_in_llamafactory("qwen"), "llamafactory:qwen");
  EXPECT_FALSE(find_template("qwen3_nothink", {}));
  for (const char* name : {"", "auto", "hf", "mine.jinja", "qwen2.5", "llamafactory:qwen", "none"})
    EXPECT_EQ(name_in_llamafactory(name), name);
}

TEST(LlamaFactoryTemplates, AUsersFileHidesThem) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path() / "templates.json";
  write_file_atomic(file, R"([{"name": "qwen", "format_user": ["{{content}}"]}])");
  for (const char* name : {"qwen", "llamafactory:qwen"})
    EXPECT_TRUE(find_template(name, file).value().stop_words.empty()) << name;
  EXPECT_TRUE(find_template("llamafactory:qwen3", file).value().as_in_llamafactory);
}

TEST(LlamaFactoryTemplates, AnUnknownNameLeadsToTheModelsOwn) {
  const auto error = [](const std::string& name) {
    return error_of([&] { ChatEncoder::create(their_tokenizer(), name); });
  };
  for (const char* name : {"qwen3_nothink", "qwen3_nothinks", "llamafactory:qwen3_nothinks"})
    EXPECT_THAT(error(name), HasSubstr("did you mean 'llamafactory:qwen3_nothink'?"));
  EXPECT_THAT(error("qwem"), HasSubstr("did you mean 'qwen'?"));
  EXPECT_THAT(error("qwem"), HasSubstr("--template auto takes the model's own"));
  EXPECT_THAT(error("llamafactory:qwem"), HasSubstr("did you mean 'llamafactory:qwen'?"));
  EXPECT_THAT(error("llamafactory:qwem"), HasSubstr("--template auto takes the model's own"));
}

TEST(LlamaFactoryTemplates, ARunThatBeganWithMindSpeedsTextGoesOnWithIt) {
  const auto goes_on = [](const char* recorded, const char* profile) {
    return template_of_earlier_run({{"template", recorded}, {"profile", profile}},
                                   "llamafactory:qwen");
  };
  EXPECT_EQ(goes_on("qwen", "llamafactory"), "qwen");
  EXPECT_EQ(goes_on("llamafactory:qwen", "llamafactory"), "llamafactory:qwen");
  EXPECT_EQ(goes_on("qwen3", "llamafactory"), "llamafactory:qwen");
  EXPECT_EQ(goes_on("qwen", "danlu"), "llamafactory:qwen");
  EXPECT_EQ(template_of_earlier_run({{"template", "qwen"}, {"profile", "llamafactory"}}, "qwen3"),
            "qwen3");
}

// --- thoughts and tools --------------------------------------------------------------------------

TEST(LlamaFactoryTemplates, EnableThinkingMayBeGivenWhereThereAreNoThoughts) {
  const auto with = [](const Json& arguments) {
    return ChatEncoder::create(their_tokenizer(), "llamafactory:qwen", {}, arguments);
  };
  EXPECT_NO_THROW(with({{"enable_thinking", false}}));
  EXPECT_THAT(error_of([&] { with({{"x", 1}}); }), HasSubstr("knows no argument x=1"));
}

TEST(LlamaFactoryTemplates, ServersReadTheCallsThatTheyKnow) {
  const auto format = [](const std::string& name) {
    return tool_format_of_named(find_template("llamafactory:" + name, {}).value().tool_format);
  };
  EXPECT_EQ(format("qwen3"), ToolFormat::kHermes);
  EXPECT_EQ(format("llama3"), ToolFormat::kLlama3);
  EXPECT_EQ(format("mistral"), ToolFormat::kMistral);
  EXPECT_EQ(format("glm4_moe"), ToolFormat::kGlm45);
  EXPECT_EQ(format("qwen3_5"), ToolFormat::kQwenCoder);
  EXPECT_EQ(format("alpaca"), std::nullopt);
}

TEST(LlamaFactoryTemplates, CallsThatAFormHasNoWordsForAreRefused) {
  const auto error = [](const std::string& name, const Json& calls) {
    Conversation c;
    c.messages = {{.role = "user", .content = "U"}, {.role = "assistant", .content = ""}};
    c.messages[1].extra["tool_calls"] = calls;
    return error_of(
        [&] { ChatEncoder::create(their_tokenizer(), "llamafactory:" + name)->encode(c); });
  };
  const auto call = [](const Json& arguments) {
    return Json{{"function", {{"name", "f"}, {"arguments", arguments}}}};
  };
  const Json two = Json::array({call(Json::object()), call(Json::object())});
  EXPECT_THAT(error("glm4", two), HasSubstr("tool format 'glm4' can write one call per message"));
  for (const Json& arguments : {Json("no object"), Json(R"({"n":20250101123456789012})")}) {
    EXPECT_THAT(error("qwen3_5", Json::array({call(arguments)})),
                HasSubstr("the arguments of the call of f cannot be written one by one"));
  }
}

TEST(LlamaFactoryTemplates, WhatIsSaidBeforeACallStandsRightBeforeIt) {
  Conversation c;
  c.messages = {{.role = "user", .content = "U"}, {.role = "assistant", .content = "I look. "}};
  c.messages[1].extra["tool_calls"] = Json::array({{{"function", {{"name", "f"}}}}});
  const auto tokenizer = their_tokenizer();
  const auto text = [&](const std::string& name) {
    return ChatEncoder::create(tokenizer, name)->render(c, false);
  };
  EXPECT_THAT(text("llamafactory:qwen"), HasSubstr("assistant\nI look. <tool_call>\n{"));
  EXPECT_THAT(text("qwen_lf"), HasSubstr("assistant\nI look. \n<tool_call>\n{"));
}

}  // namespace
}  // namespace danlu::text
