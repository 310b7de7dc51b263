// Conversations to ids and labels with Jinja templates: masks worked out by hand on a small
// tokenizer, and their invariants on real tokenizers and templates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "text/conversation.h"
#include "text/fake_tokenizer.h"

namespace danlu::text {
namespace {

using test::error_of;
using ::testing::HasSubstr;

constexpr char kChatMl[] =
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + "
    "'\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

std::shared_ptr<FakeTokenizer> chatml_tokenizer(const std::string& chat_template = kChatMl,
                                                std::vector<std::string> merges = {}) {
  return std::make_shared<FakeTokenizer>(
      std::vector<std::string>{"<|im_start|>", "<|im_end|>", "</s>"}, std::move(merges),
      chat_template, "<|im_end|>");
}

Conversation talk(std::initializer_list<const char*> contents) {
  Conversation c;
  for (const char* content : contents) {
    c.messages.push_back(
        {.role = c.messages.size() % 2 ? "assistant" : "user", .content = content});
  }
  return c;
}

/// The text with targets in [ ].
std::string marked(const Tokenizer& tokenizer, const EncodedConversation& encoded) {
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    const bool target = encoded.labels[i] != kIgnoreLabel;
    EXPECT_TRUE(!target || encoded.labels[i] == encoded.ids[i]);
    if (target != inside) out += target ? '[' : ']';
    inside = target;
    out += tokenizer.decode(std::span(encoded.ids).subspan(i, 1), false);
  }
  return inside ? out + ']' : out;
}

std::string marked(const std::shared_ptr<FakeTokenizer>& tokenizer,
                   const Conversation& conversation, const std::string& name = "",
                   const Json& arguments = nullptr) {
  return marked(*tokenizer,
                ChatEncoder::create(tokenizer, name, {}, arguments)->encode(conversation));
}

TEST(ChatEncoder, TrainsOnEveryAnswerAndItsEndOfTurnToken) {
  EXPECT_EQ(marked(chatml_tokenizer(), talk({"hi", "yo", "and?", "so"})),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[yo<|im_end|>]\n"
            "<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n[so<|im_end|>]\n");
}

TEST(ChatEncoder, LeavesOutAnswersNotToTrainOn) {
  Conversation c = talk({"hi", "yo", "and?", "so"});
  c.messages[1].train = false;
  EXPECT_EQ(marked(chatml_tokenizer(), c),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n"
            "<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n[so<|im_end|>]\n");
}

TEST(ChatEncoder, AnEmptyAnswerStillTeachesToStop) {
  EXPECT_EQ(marked(chatml_tokenizer(), talk({"hi", ""})),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n");
}

TEST(ChatEncoder, SpecialTokensWrittenInAnAnswerBelongToIt) {
  EXPECT_EQ(
      marked(chatml_tokenizer(), talk({"hi", "say <|im_end|> twice", "ok", "y"})),
      "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[say <|im_end|> twice<|im_end|>]\n"
      "<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\n[y<|im_end|>]\n");
}

// As transformers' char_to_token of the answer's first character has it.
TEST(ChatEncoder, TheTokenThatHoldsTheAnswersFirstCharacterIsATarget) {
  // "\n\n" is one token here: the header's line break and the answer's first one merge.
  const auto tokenizer = chatml_tokenizer(kChatMl, {"\n\n", "assistant"});
  EXPECT_EQ(marked(tokenizer, talk({"hi", "\nyo"})),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant[\n\nyo<|im_end|>]\n");

  // Words carry their space, as in most vocabularies.
  const std::string t =
      "{% for m in messages %}{% if m.role == 'user' %}Q: {{ m.content }} {% else %}A: "
      "{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}A: {% endif %}";
  const auto words = chatml_tokenizer(t, {" Rome", " is", " old", " no"});
  EXPECT_EQ(marked(words, talk({"which", "Rome is old"})), "Q: which A:[ Rome is old<|im_end|>]");
  EXPECT_EQ(marked(words, talk({"which", "Rome", "old", "no"})),
            "Q: which A:[ Rome<|im_end|>]Q: old A:[ no<|im_end|>]");
  // No token of the answer begins before it: nothing of the template is trained.
  EXPECT_EQ(marked(words, talk({"which", "x"})), "Q: which A: [x<|im_end|>]");
  EXPECT_EQ(marked(chatml_tokenizer(t, {" \n", "\n  ", "  Rome"}), talk({"a", "  Rome"})),
            "Q: a A: [  Rome<|im_end|>]");
}

Conversation with_tool(std::initializer_list<const char*> results, const char* said) {
  Conversation c = talk({"weather?", said});
  Json calls = Json::array();
  for (size_t i = 0; i < results.size(); ++i)
    calls.push_back({{"type", "function"}, {"function", {{"name", "look"}, {"arguments", {}}}}});
  c.messages[1].extra["tool_calls"] = calls;
  for (const char* result : results) c.messages.push_back({.role = "tool", .content = result});
  c.messages.push_back({.role = "assistant", .content = "fine"});
  return c;
}

/// Calls, results and text are one turn of the model.
constexpr char kResultsInside[] =
    "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}</user>\n"
    "{% elif m.role == 'assistant' %}<model>{% if m.tool_calls %}{% for c in m.tool_calls %}"
    "<call>{{ c.function.name }}</call>{% endfor %}{% for r in messages if r.role == 'tool' %}"
    "<result>{{ r.content }}</result>{% endfor %}{% endif %}{{ m.content }}</model>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<model>{% endif %}";

// The hub's templates of Qwen2-VL and Qwen2.5-VL know no tools: an answer would be learnt without
// its call.
TEST(ChatEncoder, ATemplateThatLeavesCallsOutTrainsNoneOfTheirAnswers) {
  const auto tokenizer = chatml_tokenizer(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  const auto encoder = ChatEncoder::create(tokenizer, "hf");
  const Conversation c = with_tool({"SUNNY"}, "I look");
  try {
    encoder->encode(c);
    FAIL() << "the call is not learnt";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("does not write tool calls, of which message 2"));
  }
  // To go on from such a talk needs no call that is learnt.
  Conversation asked = c;
  asked.messages.pop_back();
  EXPECT_FALSE(encoder->encode_prompt(asked).empty());
}

TEST(ChatEncoder, WhatToolsReturnedInsideTheModelsTurnIsNoTarget) {
  const auto tokenizer = chatml_tokenizer(kResultsInside);
  EXPECT_EQ(marked(tokenizer, with_tool({"SUNNY"}, "I look")),
            "<user>weather?</user>\n<model>[<call>look</call>]<result>SUNNY</result>[I look"
            "</model>]\n<model>[fine</model>]\n");
  EXPECT_EQ(marked(tokenizer, with_tool({"SUNNY", "", "look"}, "told")),
            "<user>weather?</user>\n<model>[<call>look</call><call>look</call><call>look</call>]"
            "<result>SUNNY</result><result></result><result>look</result>[told"
            "</model>]\n<model>[fine</model>]\n");
}

TEST(ChatEncoder, ResultsThatTheTemplateReadsAreFoundByTheirAbsence) {
  std::string t = kResultsInside;
  const std::string written = "{{ r.content }}";
  t.replace(t.find(written), written.size(),
            "{% if not r.content.startswith('{') %}{{ raise_exception('no JSON') }}{% endif %}"
            "{{ r.content | upper }}");
  EXPECT_EQ(marked(chatml_tokenizer(t), with_tool({R"({"sky": 1})"}, "I look")),
            "<user>weather?</user>\n<model>[<call>look</call>]<result>{\"SKY\": 1}</result>[I look"
            "</model>]\n<model>[fine</model>]\n");
}

// A model that is not shown the end of a turn does not learn to stop there.
TEST(ChatEncoder, APlainTextThatEndsTurnsIsATargetInEach) {
  EXPECT_EQ(marked(chatml_tokenizer(kResultsInside), talk({"a", "b", "c", "d"})),
            "<user>a</user>\n<model>[b</model>]\n<user>c</user>\n<model>[d</model>]\n");
  // Where history is printed in another way than it was, too.
  const std::string t =
      "{% for m in messages %}{% if m.role == 'user' %}<{{ messages | length }}>{{ m.content }}\n"
      "{% else %}A: {{ m.content }} END\n{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}A: {% endif %}";
  EXPECT_EQ(marked(chatml_tokenizer(t), talk({"a", "b", "c", "d"})),
            "<4>a\nA: [b END]\n<4>c\nA: [d END]\n");
}

TEST(ChatEncoder, ResultsInTurnsOfTheirOwnChangeNoMask) {
  const std::string before = "<|im_start|>user\nweather?<|im_end|>\n<|im_start|>assistant\n[";
  Conversation c = with_tool({"SUNNY", "SUNNY"}, "SUNNY");
  c.messages[1].extra.erase("tool_calls");  // which this template does not write
  EXPECT_EQ(marked(chatml_tokenizer(), c),
            before +
                "SUNNY<|im_end|>]\n<|im_start|>tool\nSUNNY<|im_end|>\n"
                "<|im_start|>tool\nSUNNY<|im_end|>\n<|im_start|>assistant\n[fine<|im_end|>]\n");
}

TEST(ChatEncoder, TheTemplateNamedToolUseWritesConversationsWithTools) {
  auto tokenizer = chatml_tokenizer("{% for m in messages %}{{ m.content }};{% endfor %}");
  tokenizer->set_tool_template(
      "T{{ tools | length }} {% for m in messages %}{{ m.content }};"
      "{% endfor %}");
  const auto encoder = ChatEncoder::create(tokenizer, "");
  Conversation c = talk({"a", "b"});
  EXPECT_EQ(encoder->render(c, false), "a;b;");
  c.tools = Json::array();
  EXPECT_EQ(encoder->render(c, false), "a;b;");
  c.tools.push_back({{"type", "function"}});
  EXPECT_EQ(encoder->render(c, false), "T1 a;b;");
  EXPECT_EQ(tokenizer->decode(encoder->encode(c).ids, false), "T1 a;b;");
  EXPECT_NE(encoder->content_hash(),
            ChatEncoder::create(chatml_tokenizer(tokenizer->chat_template()), "")->content_hash());
}

TEST(ChatEncoder, IdsAreThoseOfTheWholeText) {
  const auto tokenizer = chatml_tokenizer(kChatMl, {"\n\n"});
  const auto encoder = ChatEncoder::create(tokenizer, "");
  const Conversation c = talk({"a", "\n\nb\n\n", "c", "d"});
  EXPECT_EQ(encoder->encode(c).ids, tokenizer->encode(encoder->render(c, false), false));
}

TEST(ChatEncoder, HistoryThatIsRewrittenKeepsItsOwnSpans) {
  // Like Qwen3: the last answer is printed with a thought, earlier ones without.
  const std::string t =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last "
      "%}<think></think>"
      "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
      "%}<|im_start|>assistant\n<think>{% endif %}";
  EXPECT_EQ(
      marked(chatml_tokenizer(t), talk({"hi", "yo", "hi", "so"})),
      "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[yo<|im_end|>]\n"
      "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>[</think>so<|im_end|>]\n");
}

TEST(ChatEncoder, ThoughtsThatTheTemplateLeavesOutAreToldOnce) {
  // Like Qwen3: earlier thoughts go.
  const std::string t =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not "
      "loop.last %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}"
      "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  const auto said = [&](std::initializer_list<const char*> contents, bool learns_first) {
    const auto encoder = ChatEncoder::create(chatml_tokenizer(t), "");
    Conversation c = talk(contents);
    c.messages[1].train = learns_first;
    testing::internal::CaptureStderr();
    encoder->encode(c);
    encoder->encode(c);
    return testing::internal::GetCapturedStderr();
  };
  const std::string told = said({"a", "<think>why</think>b", "c", "<think>how</think>d"}, true);
  EXPECT_THAT(told, HasSubstr("leaves the thoughts of earlier answers out"));
  EXPECT_EQ(told.find("leaves the thoughts"), told.rfind("leaves the thoughts"));
  EXPECT_EQ(said({"a", "<think>why</think>b", "c", "d"}, false), "");
  EXPECT_EQ(said({"a", "<think>\n</think>b", "c", "<think>how</think>d"}, true), "");
  // Where turns part is asked of answers that are not learnt, too.
  const auto encoder = ChatEncoder::create(chatml_tokenizer(t), "");
  testing::internal::CaptureStderr();
  encoder->encode_all_answers(talk({"a", "<think>why</think>b", "c", "d"}));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ChatEncoder, SystemTextMovedToTheLastTurnDoesNotConfuseEarlierSpans) {
  // Like Mistral-Nemo.
  const std::string t =
      "{% for m in messages %}{% if m.role == 'user' %}[INST]{% if loop.index >= messages|length - "
      "1 %}SYS {% endif %}"
      "{{ m.content }}[/INST]{% else %}{{ m.content }}</s>{% endif %}{% endfor %}";
  EXPECT_EQ(marked(chatml_tokenizer(t), talk({"1", "1", "1", "1"})),
            "[INST]1[/INST][1</s>][INST]SYS 1[/INST][1</s>]");
}

TEST(ChatEncoder, GenerationBlocksDecide) {
  const std::string t =
      "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ "
      "m.content }}!{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %};{% endfor %}";
  EXPECT_EQ(marked(chatml_tokenizer(t), talk({"a", "b", "c", "d"})),
            "user: a;assistant: [b!];user: c;assistant: [d!];");
}

TEST(ChatEncoder, TemplatesThatAlwaysAskForAnAnswerEndUntrained) {
  // Like the first Llama 3 template.
  const std::string t =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content|trim }}<|im_end|>{% endfor "
      "%}{{ '<|im_start|>assistant\n' }}";
  EXPECT_EQ(marked(chatml_tokenizer(t), talk({"a", " b ", "c", "d"})),
            "<|im_start|>user\na<|im_end|><|im_start|>assistant\n[b<|im_end|>]<|im_start|>user\nc<|"
            "im_end|>"
            "<|im_start|>assistant\n[d<|im_end|>]<|im_start|>assistant\n");
}

TEST(ChatEncoder, ToolCallsAreTargetsUpToTheEndOfTurn) {
  const std::string t =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls "
      "%}<call>{{ c.function.name }}"
      "</call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
      "%}<|im_start|>assistant\n{% endif %}";
  Conversation c = talk({"q", "", "r", "done"});
  c.messages[1].extra["tool_calls"] = {{{"function", {{"name", "f"}}}}};
  c.messages[2].role = "tool";
  EXPECT_EQ(marked(chatml_tokenizer(t), c),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[<call>f</call><|im_end|>]\n"
            "<|im_start|>tool\nr<|im_end|>\n<|im_start|>assistant\n[done<|im_end|>]\n");
}

TEST(ChatEncoder, PromptEndsWhereTheAnswerBegins) {
  const auto tokenizer = chatml_tokenizer();
  const auto encoder = ChatEncoder::create(tokenizer, "auto");
  EXPECT_EQ(tokenizer->decode(encoder->encode_prompt(talk({"hi"})), false),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(encoder->stop_ids(), std::vector<TokenId>{257});
  EXPECT_EQ(encoder->description(), "tokenizer_config.json (jinja)");
}

TEST(ChatEncoder, TemplateArgumentsReachTheTemplateAndTheHash) {
  const std::string t = "{{ mode }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}";
  const auto tokenizer = chatml_tokenizer(t);
  const auto plain = ChatEncoder::create(tokenizer, "");
  const auto fast = ChatEncoder::create(tokenizer, "", {}, {{"mode", "fast:"}});
  EXPECT_EQ(fast->render(talk({"q"}), false), "fast:q<|im_end|>");
  EXPECT_NE(plain->content_hash(), fast->content_hash());
  EXPECT_THAT(error_of([&] { ChatEncoder::create(tokenizer, "", {}, Json::array()); }),
              HasSubstr("must be a JSON object, got array"));
}

TEST(ChatEncoder, BadConversationsSayWhy) {
  const auto encoder =
      ChatEncoder::create(chatml_tokenizer("{{ raise_exception('roles must alternate') }}"), "");
  EXPECT_EQ(error_of([&] { encoder->encode(talk({"a", "b"})); }),
            "the chat template cannot write this conversation: tokenizer_config.json:1: roles must "
            "alternate");
  EXPECT_EQ(error_of([&] { encoder->encode(talk({"a"})); }),
            "the conversation has no message of the assistant");
  EXPECT_EQ(error_of([&] { encoder->encode_prompt(talk({"a", "b"})); }),
            "a prompt must not end with a message of the assistant");
  EXPECT_THROW(ChatEncoder::create(chatml_tokenizer("{% if %}"), ""), ModelError);
}

TEST(ChatEncoder, ValuesNoTemplateCanHoldAreFaultsOfTheRow) {
  const auto encoder = ChatEncoder::create(chatml_tokenizer(), "");
  Conversation c = talk({"hi", "yo"});
  c.messages[0].extra["id"] = uint64_t{18446744073709551615u};
  EXPECT_THAT(error_of([&] { encoder->encode(c); }),
              HasSubstr("integer 18446744073709551615 does not fit 64 bits"));
  EXPECT_THROW(encoder->encode(c), DataError);
  Json deep = 1;
  for (int i = 0; i < 200; ++i) deep = Json::array({deep});
  c.messages[0].extra = {{"tree", deep}};
  EXPECT_THROW(encoder->encode(c), DataError);
}

TEST(ChatEncoder, ATemplateThatHitsItsLimitsIsAFaultOfTheModel) {
  const auto encoder = ChatEncoder::create(
      chatml_tokenizer("{% if messages|length > 2 %}{{ 'x' * 10000000000 }}{% endif %}"), "");
  encoder->render(talk({"a", "b"}), false);
  EXPECT_THROW(encoder->encode(talk({"a", "b", "c", "d"})), ModelError);
  // What a large conversation makes of a harmless template is its own.
  const std::string long_text(2 << 20, 'x');
  EXPECT_THROW(ChatEncoder::create(chatml_tokenizer("{{ messages[0]['content'] * 10000 }}"), "")
                   ->encode(talk({long_text.c_str(), "b"})),
               DataError);
  // Real templates that cannot render the conversation leave other rows alone.
  EXPECT_THROW(ChatEncoder::create(chatml_tokenizer("{{ 1 // 0 }}"), "")->encode(talk({"a", "b"})),
               DataError);
}

TEST(ChatEncoder, ModelsWithoutTemplateNeedAName) {
  const auto tokenizer = chatml_tokenizer("");
  EXPECT_THAT(error_of([&] { ChatEncoder::create(tokenizer, ""); }),
              HasSubstr("ships no chat template; choose one with --template: default, empty"));
  EXPECT_THAT(error_of([&] { ChatEncoder::create(tokenizer, "hf"); }),
              HasSubstr("ships no chat template"));
  EXPECT_THAT(error_of([&] { ChatEncoder::create(tokenizer, "lama2"); }),
              HasSubstr("unknown template 'lama2' (did you mean 'llama2'?)"));
}

TEST(ParseConversation, ReadsMessagesAndNamesWhatIsWrong) {
  const Conversation c =
      parse_conversation(Json::parse(R"({"messages": [{"role": "user", "content": "a"},
                   {"role": "assistant", "content": null, "tool_calls": [1], "train": false}], "tools": [2]})"),
                         "m.json");
  ASSERT_EQ(c.messages.size(), 2u);
  EXPECT_TRUE(c.messages[1].extra.at("content").is_null());
  EXPECT_FALSE(c.messages[1].train);
  EXPECT_EQ(c.tools, Json::array({2}));
  const auto error = [](const char* text) {
    return error_of([&] { parse_conversation(Json::parse(text), "m.json"); });
  };
  EXPECT_EQ(error(R"([{"role": "user", "content": "a"}, {"content": "b"}])"),
            "m.json: message 2: \"role\" must be a string");
  EXPECT_EQ(error(R"([{"role": "user", "content": 5}])"),
            "m.json: message 1: \"content\" must be a string, got number");
  EXPECT_EQ(error(R"([{"role": "user"}])"), "m.json: message 1: \"content\" is missing");
  EXPECT_THAT(error("3"), HasSubstr("expected a list of messages"));
}

/// Every real template with every conversation it accepts: ids are those of the text, and each
/// target run is an answer with its end.
TEST(ChatEncoder, RealTokenizersKeepTheInvariants) {
  DANLU_REQUIRES_SHARED();
  const Json conversations = read_json_file(std::filesystem::path(DANLU_SOURCE_DIR) /
                                            "tests/text/golden_templates/conversations.json");
  for (const char* name : {"qwen1_5", "qwen2_5", "qwen3", "llama3", "internlm2"}) {
    const std::shared_ptr<const Tokenizer> tokenizer =
        Tokenizer::load(test::unpacked("tokenizers") / name);
    const auto encoder = ChatEncoder::create(tokenizer, "");
    const std::string eot = std::string(name) == "llama3" ? "<|eot_id|>" : "<|im_end|>";
    int encoded_count = 0;
    for (const Json& json : conversations) {
      const std::string label = std::string(name) + ", " + json["name"].get<std::string>();
      const Conversation conversation = parse_conversation(json, "conversations.json");
      std::vector<std::string> answers;
      for (const Message& m : conversation.messages) {
        if (m.role == "assistant") answers.push_back(m.content);
      }
      if (answers.empty() || conversation.messages.back().role != "assistant") continue;
      EncodedConversation encoded;
      try {
        encoded = encoder->encode(conversation);
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr("cannot write this conversation"),
                                                 HasSubstr("does not write tool calls")))
            << label;
        continue;
      }
      ++encoded_count;
      EXPECT_EQ(encoded.ids, tokenizer->encode(encoder->render(conversation, false), false))
          << label;
      std::vector<std::string> runs;
      for (size_t i = 0; i < encoded.ids.size(); ++i) {
        if (encoded.labels[i] == kIgnoreLabel) continue;
        size_t end = i;
        while (end < encoded.ids.size() && encoded.labels[end] != kIgnoreLabel) ++end;
        runs.push_back(tokenizer->decode(std::span(encoded.ids).subspan(i, end - i), false));
        i = end;
      }
      ASSERT_EQ(runs.size(), answers.size()) << label;
      for (size_t i = 0; i < runs.size(); ++i) {
        EXPECT_TRUE(runs[i].ends_with(eot)) << label << ": " << runs[i];
        EXPECT_EQ(runs[i].find(eot), runs[i].size() - eot.size()) << label << ": " << runs[i];
        if (answers[i].find("think") == std::string::npos &&
            answers[i].find_first_of(" \n\t") != 0) {
          EXPECT_THAT(runs[i],
                      HasSubstr(answers[i].substr(0, answers[i].find_last_not_of(" \n\t") + 1)))
              << label;
        }
      }
    }
    EXPECT_GE(encoded_count, 8) << name;
  }
}

}  // namespace
}  // namespace danlu::text
