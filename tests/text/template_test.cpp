// Named templates: exact strings of MindSpeed-LLM's, masks, truncation, users' files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/file.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/conversation.h"
#include "text/fake_tokenizer.h"
#include "text/query_and_document.h"
#include "text/template_file.h"

namespace danlu::text {
namespace {

using test::error_of;
using ::testing::HasSubstr;

std::shared_ptr<FakeTokenizer> rich_tokenizer(std::vector<std::string> merges = {}) {
  auto tokenizer = std::make_shared<FakeTokenizer>(
      std::vector<std::string>{"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "[gMASK]",
                               "sop", "<|user|>", "<|assistant|>", "<|system|>", "<|observation|>",
                               "<reserved_106>", "<reserved_107>", "<|eot|>", "<|eom|>"},
      std::move(merges), "", "</s>");
  tokenizer->set_bos("<s>");
  return tokenizer;
}

Conversation two_turns(const std::string& system = "S") {
  Conversation c;
  if (!system.empty()) c.messages.push_back({.role = "system", .content = system});
  for (const char* content : {"U1", "A1", "U2", "A2"}) {
    c.messages.push_back({.role = content[0] == 'U' ? "user" : "assistant", .content = content});
  }
  return c;
}

std::string bracketed(const Tokenizer& tokenizer, const EncodedConversation& e) {
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < e.ids.size(); ++i) {
    const bool target = e.labels[i] != kIgnoreLabel;
    if (target != inside) out += target ? "⟦" : "⟧";
    inside = target;
    out += *tokenizer.id_to_token(e.ids[i]);
    if (target && e.labels[i] != e.ids[i]) out += "(" + *tokenizer.id_to_token(e.labels[i]) + ")";
  }
  return inside ? out + "⟧" : out;
}

std::string encoded(const std::string& name, const Conversation& conversation,
                    const Json& arguments = nullptr) {
  const auto tokenizer = rich_tokenizer();
  return bracketed(*tokenizer,
                   ChatEncoder::create(tokenizer, name, {}, arguments)->encode(conversation));
}

TEST(NamedTemplates, WriteExactlyMindSpeedsStrings) {
  const std::string h = "<|start_header_id|>", e = "<|end_header_id|>\n\n";
  const std::pair<const char*, std::string> cases[] = {
      {"default", "S\nHuman: U1\nAssistant:⟦A1</s>⟧\nHuman: U2\nAssistant:⟦A2</s>⟧"},
      {"empty", "SU1⟦A1⟧U2⟦A2⟧"},
      {"trl", "<s>SU1⟦A1⟧U2⟦A2⟧"},
      {"chatml",
       "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n<|im_start|>"
       "assistant\n⟦A1<|im_end|>⟧\n"
       "<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n⟦A2<|im_end|>⟧"},
      {"llama2",
       "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU1 [/INST]⟦A1</s>⟧<s>[INST] U2 [/INST]⟦A2</s>⟧"},
      {"mistral", "<s>S[INST] U1 [/INST]⟦A1</s>⟧[INST] U2 [/INST]⟦A2</s>⟧"},
      {"llama3", "<s>" + h + "system" + e + "S<|eot_id|>" + h + "user" + e + "U1<|eot_id|>" + h +
                     "assistant" + e + "⟦A1<|eot_id|>⟧" + h + "user" + e + "U2<|eot_id|>" + h +
                     "assistant" + e + "⟦A2<|eot_id|>⟧"},
      {"llama4",
       "<s><|header_start|>system<|header_end|>\n\nS<|eot|><|header_start|>user"
       "<|header_end|>\n\nU1<|eot|><|header_start|>assistant<|header_end|>\n\n⟦A1<|eot|>⟧"
       "<|header_start|>user<|header_end|>\n\nU2<|eot|><|header_start|>assistant"
       "<|header_end|>\n\n⟦A2<|eot|>⟧"},
      {"alpaca",
       "S### Instruction:\nU1\n\n### Response:\n⟦A1</s>⟧\n\n### Instruction:\nU2\n\n### "
       "Response:\n⟦A2</s>⟧"},
      {"deepseek2", "<s>S\n\nUser: U1\n\nAssistant:⟦A1</s>⟧User: U2\n\nAssistant:⟦A2</s>⟧"},
      {"deepseek3", "<s>S<｜User｜>U1<｜Assistant｜>⟦A1</s>⟧<｜User｜>U2<｜Assistant｜>⟦A2</s>⟧"},
      {"cpm", "<s>S<用户>U1<AI>⟦A1</s>⟧<用户>U2<AI>⟦A2</s>⟧"},
      {"intern2",
       "<s><|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n<|im_start|>"
       "assistant\n⟦A1<|im_end|>\n⟧"
       "<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n⟦A2<|im_end|>\n⟧"},
      // efficient_eos: the first prompt token of later turns is labelled EOS, and one EOS ends the
      // sample.
      {"baichuan2",
       "S<reserved_106>U1<reserved_107>⟦A1<reserved_106>(</s>)⟧U2<reserved_107>⟦A2</s>⟧"},
      {"gemma",
       "<s>S<start_of_turn>user\nU1<end_of_turn>\n<start_of_turn>model\n⟦A1<(</"
       "s>)⟧end_of_turn>\n<start_of_turn>user\n"
       "U2<end_of_turn>\n<start_of_turn>model\n⟦A2</s>⟧"},
      {"chatglm2",
       "[gMASK]sopS[Round 0]\n\n问：U1\n\n答：⟦A1\n(</s>)⟧\n[Round 1]\n\n问：U2\n\n答：⟦A2</s>⟧"},
      {"chatglm3",
       "[gMASK]sop<|system|>\nS<|user|>\nU1<|assistant|>⟦\nA1<|user|>(</"
       "s>)⟧\nU2<|assistant|>⟦\nA2</s>⟧"},
  };
  for (const auto& [name, wanted] : cases) EXPECT_EQ(encoded(name, two_turns()), wanted) << name;
}

TEST(NamedTemplates, DefaultSystemTextsStandInWhenNoneIsGiven) {
  EXPECT_THAT(
      encoded("qwen", two_turns("")),
      testing::StartsWith(
          "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nU1"));
  EXPECT_THAT(encoded("qwen_lf", two_turns("")),
              testing::StartsWith("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You "
                                  "are a helpful assistant.<|im_end|>"));
  EXPECT_THAT(encoded("qwen_math_r1", two_turns("")), HasSubstr("within \\boxed{}."));
  EXPECT_THAT(encoded("qwen_r1", two_turns("")),
              HasSubstr("final answer within \\\\boxed{}. U1<|im_end|>"));
  EXPECT_THAT(encoded("alpaca", two_turns("")),
              testing::StartsWith("Below is an instruction that describes a task. Write a response "
                                  "that appropriately completes the request.\n\n### Instruction:"));
  EXPECT_THAT(encoded("chatml", two_turns("")), testing::StartsWith("<|im_start|>user"));
  EXPECT_THAT(encoded("chatml_de", two_turns("")), HasSubstr("Du bist ein freundlicher"));
}

// With replace_eos the first stop word ends every answer: labels of caches depend on it.
TEST(NamedTemplates, StopWordsArePartOfWhatCachesAreNamedBy) {
  const auto hash = [](const std::string& keys) {
    const test::TemporaryDirectory directory;
    const std::string file = directory.path() / "templates.json";
    write_file_atomic(file, R"([{"name": "mine", "format_user": ["{{content}}"], )" + keys + "}]");
    return ChatEncoder::create(rich_tokenizer(), "mine", file)->content_hash();
  };
  const std::string tail = R"(, "replace_eos": true)";
  EXPECT_NE(hash(R"("stop_words": ["<|im_end|>"])" + tail),
            hash(R"("stop_words": ["<|eot_id|>"])" + tail));
  EXPECT_NE(hash(R"("stop_words": ["<|im_end|>"])"),
            hash(R"("stop_words": ["<|im_end|>", "<|eot_id|>"])"));
  EXPECT_NE(hash(R"("default_system": "a")"),
            hash(R"("default_system": "", "format_prefix": ["a"])"));
}

TEST(NamedTemplates, AllMindSpeedNamesAreThere) {
  const std::vector<std::string> names = ChatEncoder::names();
  for (const char* name :
       {"chatglm2",  "chatglm3",       "chatglm3_system", "glm4",         "chatml",
        "chatml_de", "qwen",           "qwen_r1",         "qwen_math_r1", "llama2",
        "mistral",   "mixtral",        "llama3",          "gemma",        "alpaca",
        "deepseek2", "deepseek2-lite", "minicpm3",        "deepseek3",    "intern2",
        "cpm",       "baichuan2",      "hunyuan",         "default",      "empty",
        "trl",       "qwen_lf",        "qwen2.5",         "qwen3",        "stanford_alpaca",
        "glm4_moe",  "magistral",      "bailing_mini",    "plm",          "gpt_oss"}) {
    EXPECT_THAT(names, testing::Contains(name));
  }
}

TEST(NamedTemplates, ThoughtsHaveTheWordsOfTheTemplate) {
  const std::string open = "<|channel|>analysis<|message|>",
                    close = "<|end|><|start|>assistant<|channel|>final<|message|>";
  Conversation c = two_turns();
  c.messages[4].content = open + "why" + close + "A2";
  EXPECT_EQ(
      encoded("gpt_oss", c),
      "<|start|>system<|message|>S<|end|><|start|>user<|message|>U1<|end|><|start|>assistant" +
          open + close + "⟦A1<|end|><(</s>)⟧|start|>user<|message|>U2<|end|><|start|>assistant⟦" +
          c.messages[4].content + "<|end|></s>⟧");
}

TEST(NamedTemplates, ElementsAreTokenisedByThemselves) {
  // "\nH" is one token of this vocabulary, but the separator "\n" and "Human: …" are two elements.
  const auto plain = ChatEncoder::create(rich_tokenizer(), "default")->encode(two_turns(""));
  const auto merging =
      ChatEncoder::create(rich_tokenizer({"\nH"}), "default")->encode(two_turns(""));
  EXPECT_EQ(merging.ids, plain.ids);
}

TEST(NamedTemplates, ReasoningAddsAnEmptyThoughtOutsideTheLossUnlessAsked) {
  Conversation c = two_turns("");
  c.messages[3].content = "<think>\nx\n</think>\n\nA2";
  EXPECT_EQ(encoded("qwen3", c),
            "<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\n<think>\n\n</"
            "think>\n\n⟦A1<|im_end|>\n⟧"
            "<|im_start|>user\nU2<|im_end|>\n<|im_start|>assistant\n⟦<think>\nx\n</"
            "think>\n\nA2<|im_end|>\n⟧");
  EXPECT_THAT(encoded("qwen3", c, {{"enable_thinking", true}}),
              HasSubstr("assistant\n⟦<think>\n\n</think>\n\nA1"));
  EXPECT_THAT(encoded("qwen3", c, {{"enable_thinking", false}}),
              HasSubstr("assistant\n<think>\n\n</think>\n\n⟦A2<|im_end|>"));
  EXPECT_THAT(error_of([&] { encoded("qwen", c, {{"enable_thinking", false}}); }),
              HasSubstr("template 'qwen' knows no argument enable_thinking"));
}

TEST(NamedTemplates, ToolsAndCallsFollowTheTemplatesFormat) {
  Conversation c = two_turns("");
  c.messages[1].content = "";
  c.messages[1].extra["tool_calls"] = {{{"function", {{"name", "f"}, {"arguments", "{\"x\":1}"}}}}};
  c.messages[2].role = "tool";
  EXPECT_THAT(encoded("default", c),
              HasSubstr("Assistant:⟦Action: f\nAction Input: {\"x\": 1}</s>⟧\nHuman: U2"));
  EXPECT_THAT(encoded("chatml", c),
              HasSubstr("<|im_start|>tool\nU2<|im_end|>\n<|im_start|>assistant\n⟦A2"));
  // Arguments written as text keep digits that no value holds.
  Conversation wide = c;
  wide.messages[1].extra["tool_calls"][0]["function"]["arguments"] =
      R"({"order":20250101123456789012})";
  EXPECT_THAT(encoded("default", wide), HasSubstr(R"(Input: {"order":20250101123456789012})"));
  EXPECT_THAT(encoded("qwen_lf", c),
              HasSubstr("⟦<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
                        "1}}\n</tool_call><|im_end|>\n⟧<|im_start|>user\n"
                        "<tool_response>\nU2\n</tool_response><|im_end|>"));
  c.tools = {{{"type", "function"}, {"function", {{"name", "f"}, {"description", "d"}}}}};
  EXPECT_THAT(encoded("default", c),
              testing::StartsWith("You have access to the following tools:\n> Tool Name: f\nTool "
                                  "Description: d\nTool Args:\n\n"));
  EXPECT_THAT(error_of([&] { encoded("glm4", c); }), HasSubstr("has no words for tools"));
  Conversation talking = c;
  talking.messages[1].content = "I look.";
  EXPECT_THAT(error_of([&] { encoded("default", talking); }),
              HasSubstr("template 'default' writes no text beside a tool call"));
  EXPECT_THAT(encoded("qwen_lf", talking), HasSubstr("⟦I look.\n<tool_call>"));
  c.messages[1].extra["tool_calls"].push_back(c.messages[1].extra["tool_calls"][0]);
  EXPECT_THAT(error_of([&] { encoded("default", c); }),
              HasSubstr("one tool call per message, got 2"));
}

TEST(NamedTemplates, AQueryAndADocumentAreWrittenAsQwen3RerankersCardHasThem) {
  const auto tokenizer = rich_tokenizer();
  const auto encoder = ChatEncoder::create(tokenizer, "qwen3_reranker");
  const auto written = [&](const QueryAndDocument& pair) {
    return tokenizer->decode(encoder->encode_pair(conversation_of(pair)), false);
  };
  const std::string begin =
      "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
      "and "
      "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
      "<|im_start|>user\n<Instruct>: ";
  const std::string end =
      "\n<Query>: Q\n<Document>: D<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
  EXPECT_EQ(
      written({"", "Q", "D"}),
      begin + "Given a web search query, retrieve relevant passages that answer the query" + end);
  EXPECT_EQ(written({"I", "Q", "D"}), begin + "I" + end);
  // What a text itself says of places is no place.
  EXPECT_THAT(written({"{{document}}", "{{instruction}}", "D"}),
              HasSubstr("<Instruct>: {{document}}\n<Query>: {{instruction}}\n<Document>: D<"));
  Conversation none = conversation_of({"", "Q", "D"});
  none.messages.pop_back();
  EXPECT_THAT(error_of([&] { encoder->encode_pair(none); }), HasSubstr("the document"));
}

TEST(NamedTemplates, OtherTemplatesHaveADocumentAsTheAnswer) {
  const auto tokenizer = rich_tokenizer();
  const auto encoder = ChatEncoder::create(tokenizer, "qwen");
  const Conversation pair = conversation_of({"I", "Q", "D"});
  EXPECT_EQ(encoder->encode_pair(pair), encoder->encode(pair).ids);
  EXPECT_EQ(pair_ids(pair, *tokenizer, encoder.get()), encoder->encode(pair).ids);
  EXPECT_EQ(pair_ids(pair, *tokenizer, nullptr), tokenizer->encode("QD", true));
}

TEST(NamedTemplates, OfALongPairTheEndOfTheDocumentIsLeftOut) {
  const auto tokenizer = rich_tokenizer();
  const auto encoder = ChatEncoder::create(tokenizer, "qwen3_reranker");
  const Conversation whole = conversation_of({"I", "Q", std::string(100, 'D')}),
                     none = conversation_of({"I", "Q", ""});
  const auto least = std::ssize(encoder->encode_pair(none));
  const auto most = least + 7;
  const std::vector<TokenId> cut = pair_ids(whole, *tokenizer, encoder.get(), most);
  EXPECT_LE(std::ssize(cut), most);
  EXPECT_GT(std::ssize(cut), least);
  const std::string text = tokenizer->decode(cut, false);
  EXPECT_THAT(text, HasSubstr("<Document>: DD"));
  EXPECT_TRUE(text.ends_with("</think>\n\n"));
  EXPECT_EQ(pair_ids(whole, *tokenizer, encoder.get(), 10000), encoder->encode_pair(whole));
  EXPECT_THAT(error_of([&] { pair_ids(whole, *tokenizer, encoder.get(), least - 1); }),
              HasSubstr("no room"));
}

/// What is no whole character is decoded as three bytes, each a token again.
class ByteFallback : public FakeTokenizer {
 public:
  ByteFallback() : FakeTokenizer({}, {}) {}
  std::string decode(std::span<const TokenId> ids, bool) const override {
    const std::string text = FakeTokenizer::decode(ids, false);
    const size_t begin = text.find('\xF0');
    if (begin == text.npos || begin + 4 <= text.size()) return text;
    return text.substr(0, begin) + "\xEF\xBF\xBD";
  }
};

TEST(NamedTemplates, ADocumentThatIsCutAmidACharacterEndsBeforeIt) {
  const ByteFallback tokenizer;
  const Conversation pair = conversation_of({"", "Q", "DD\xF0\x9F\x99\x82"});
  for (const int64_t most : {4, 5, 6})
    EXPECT_EQ(pair_ids(pair, tokenizer, nullptr, most), tokenizer.encode("QDD", true)) << most;
  EXPECT_EQ(std::ssize(pair_ids(pair, tokenizer, nullptr, 7)), 7);
}

TEST(NamedTemplates, PromptsStopWhereTheAnswerBegins) {
  const auto tokenizer = rich_tokenizer();
  const auto encoder = ChatEncoder::create(tokenizer, "qwen");
  Conversation c = two_turns();
  c.messages.pop_back();
  EXPECT_EQ(tokenizer->decode(encoder->encode_prompt(c), false), encoder->render(c, true));
  EXPECT_TRUE(encoder->render(c, true).ends_with("U2<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(encoder->stop_ids(), std::vector<TokenId>{*tokenizer->token_to_id("<|im_end|>")});
}

TEST(NamedTemplates, BadConversationsSayWhy) {
  Conversation c = two_turns();
  c.messages[2].role = "user";
  EXPECT_EQ(
      error_of([&] { encoded("qwen", c); }),
      "message 3: expected role assistant, got 'user' (template 'qwen' needs turns in order) | the "
      "tokenizer's own template may take another order: --template hf");
  c = two_turns();
  c.messages.pop_back();
  EXPECT_EQ(error_of([&] { encoded("qwen", c); }),
            "the conversation ends without an answer of the assistant");
  EXPECT_EQ(error_of([&] { encoded("qwen", {}); }), "the conversation has no user message");
}

TEST(NamedTemplates, MissingTokensAreNamedBeforeAnythingIsEncoded) {
  const auto bare =
      std::make_shared<FakeTokenizer>(std::vector<std::string>{}, std::vector<std::string>{});
  EXPECT_THAT(error_of([&] { ChatEncoder::create(bare, "qwen"); }),
              HasSubstr("the token <|im_end|>, which this tokenizer does not have"));
  EXPECT_THAT(error_of([&] { ChatEncoder::create(bare, "chatglm3"); }),
              HasSubstr("template 'chatglm3' makes use of the token [gMASK]"));
  EXPECT_THAT(error_of([&] { ChatEncoder::create(bare, "default"); }),
              HasSubstr("names no EOS token"));
}

TEST(NamedTemplates, Baichuan2UsesItsTokenizersMarkers) {
  DANLU_REQUIRES_SHARED();
  const std::shared_ptr<const Tokenizer> tokenizer =
      Tokenizer::load(test::unpacked("tokenizers") / "baichuan2");
  const auto encoder = ChatEncoder::create(tokenizer, "baichuan2");
  const EncodedConversation e = encoder->encode(two_turns(""));
  EXPECT_EQ(e.ids.front(), 195);  // <reserved_106>
  EXPECT_EQ(e.ids.back(), 2);     // </s>
  EXPECT_EQ(std::count(e.ids.begin(), e.ids.end(), 196), 2);
}

// --- Stanford Alpaca -----------------------------------------------------------------------------

Conversation alpaca_row(const std::string& instruction, const std::string& input,
                        const std::string& output) {
  Conversation c;
  c.messages = {{.role = "user", .content = instruction + (input.empty() ? "" : "\n" + input)},
                {.role = "assistant", .content = output}};
  c.messages[0].extra = {{"instruction", instruction}, {"input", input}};
  return c;
}

TEST(StanfordAlpaca, ChoosesThePromptByTheInput) {
  const auto tokenizer = rich_tokenizer();
  const auto encoder = ChatEncoder::create(tokenizer, "stanford_alpaca");
  EXPECT_EQ(bracketed(*tokenizer, encoder->encode(alpaca_row("Say {input}", "", "hi"))),
            "Below is an instruction that describes a task. Write a response that appropriately "
            "completes the request.\n\n"
            "### Instruction:\nSay {input}\n\n### Response:⟦hi</s>⟧");
  EXPECT_EQ(bracketed(*tokenizer, encoder->encode(alpaca_row("Sum", "1 2", "3"))),
            "Below is an instruction that describes a task, paired with an input that provides "
            "further context. Write a "
            "response that appropriately completes the request.\n\n### Instruction:\nSum\n\n### "
            "Input:\n1 2\n\n### Response:⟦3</s>⟧");
}

TEST(StanfordAlpaca, ATokenAcrossTheBorderIsNoTarget) {
  const auto tokenizer = rich_tokenizer({":h", ":"});
  const auto encoder = ChatEncoder::create(tokenizer, "stanford_alpaca");
  EXPECT_THAT(bracketed(*tokenizer, encoder->encode(alpaca_row("Say", "", "hi"))),
              testing::EndsWith("### Response:h⟦i</s>⟧"));
}

TEST(StanfordAlpaca, RefusesWhatItCannotWrite) {
  EXPECT_THAT(error_of([] { encoded("stanford_alpaca", two_turns()); }),
              HasSubstr("one user message and one answer"));
}

// --- files and truncation ------------------------------------------------------------------------

class TemplateFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    const std::filesystem::path path = directory_ / "templates.json";
    std::ofstream(path) << text;
    return path;
  }
  std::string error(const std::string& text) {
    const auto path = write(text);
    return error_of([&] { ChatEncoder::create(rich_tokenizer(), "mine", path); });
  }

 private:
  const test::TemporaryDirectory directory_;
};

TEST_F(TemplateFile, UsersTemplatesAddToAndHideTheBuiltInOnes) {
  const auto path =
      write(R"([{"name": "mine", "format_user": {"slots": [["bos_token"], "Q: {{content}}\nA:"]}},
                              {"name": "qwen", "format_user": ["{{content}}"]}])");
  const auto tokenizer = rich_tokenizer();
  EXPECT_EQ(ChatEncoder::create(tokenizer, "mine", path)->render(two_turns(""), false),
            "<s>Q: U1\nA:A1</s><s>Q: U2\nA:A2</s>");
  EXPECT_EQ(ChatEncoder::create(tokenizer, "qwen", path)->render(two_turns(""), false),
            "U1A1</s>U2A2</s>");
  EXPECT_EQ(ChatEncoder::names(path)[0], "mine");
}

TEST_F(TemplateFile, MistakesAreNamed) {
  EXPECT_THAT(error(R"([{"name": "mine", "format_usr": []}])"),
              HasSubstr("template 'mine': unknown key 'format_usr'"));
  EXPECT_THAT(error(R"([{"name": "mine", "format_user": ["no placeholder"]}])"),
              HasSubstr("'format_user' must contain {{content}}"));
  EXPECT_THAT(error(R"([{"name": "mine", "format_user": [3]}])"),
              HasSubstr("a slot must be a string"));
  EXPECT_THAT(error(R"([{"name": "mine", "replace_eos": true}])"), HasSubstr("needs a stop word"));
  EXPECT_THAT(error(R"([{"name": "mine", "template_class": "X"}])"),
              HasSubstr("unknown template_class 'X'"));
  for (const char* words : {R"("<think>")", R"(["<think>"])", R"(["<think>", ""])"}) {
    EXPECT_THAT(error(R"([{"name": "mine", "thought_words": )" + std::string(words) + "}]"),
                HasSubstr("'thought_words' must be two strings"));
  }
  EXPECT_THAT(error(R"([{"name": "mine"}, {"name": "mine"}])"), HasSubstr("appears twice"));
  EXPECT_THAT(error(R"({"name": "mine"})"), HasSubstr("expected a list of templates"));
}

}  // namespace
}  // namespace danlu::text
