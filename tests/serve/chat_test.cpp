#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <sstream>
#include <streambuf>

#include "base/error.h"
#include "base/interrupt.h"
#include "serve/chat_repl.h"
#include "serve/chat_session.h"
#include "serve/side_by_side.h"

namespace danlu::serve {
namespace chat_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// One id per byte.
class ByteTokenizer : public text::Tokenizer {
 public:
  void encode_append(std::string_view text, bool, std::vector<text::TokenId>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode(std::span<const text::TokenId> ids, bool) const override {
    std::string text;
    for (const text::TokenId id : ids) text += static_cast<char>(id);
    return text;
  }
  size_t size() const override { return 256; }
  std::optional<text::TokenId> token_to_id(std::string_view) const override { return std::nullopt; }
  std::optional<std::string> id_to_token(text::TokenId) const override { return std::nullopt; }
  bool is_special(text::TokenId) const override { return false; }
};

/// "s:…|u:…|a:…|u:…|a:" as text.
class PlainEncoder : public text::ChatEncoder {
 public:
  text::EncodedConversation encode(const text::Conversation&) const override { return {}; }
  std::vector<text::TokenId> encode_prompt(const text::Conversation& conversation) const override {
    return ByteTokenizer().encode(render(conversation, true));
  }
  std::string render(const text::Conversation& conversation, bool) const override {
    std::string out;
    for (const text::Message& m : conversation.messages)
      out += m.role.substr(0, 1) + ":" + m.content + "|";
    return out + "a:";
  }
  std::vector<text::TokenId> stop_ids() const override { return {'|'}; }
  std::string description() const override { return "plain"; }
  uint64_t content_hash() const override { return 0; }
};

/// A model that says "ok<n>" and remembers what it was asked.
struct EchoModel {
  std::vector<std::string> prompts;
  int raise_interrupt_after = -1, signal = SIGINT;

  AnswerFn fn() {
    return [this](const infer::Request& request, const infer::OnToken& on_token,
                  infer::GenerationStats*) {
      prompts.push_back(ByteTokenizer().decode(request.prompt, false));
      const std::string text = "ok" + std::to_string(prompts.size());
      infer::Answer answer;
      for (size_t i = 0; i < text.size(); ++i) {
        answer.ids.push_back(text[i]);
        if (static_cast<int>(i) == raise_interrupt_after) std::raise(signal);
        if (!on_token(0, text[i])) break;
      }
      return answer;
    };
  }
};

ChatSession session_of(EchoModel& model, int64_t window = 0, ChatSettings settings = {}) {
  return ChatSession(model.fn(), window, std::make_shared<ByteTokenizer>(),
                     std::make_shared<PlainEncoder>(), settings);
}

auto ignore_text() {
  return [](const std::string&) { return true; };
}

TEST(ChatSession, RemembersEarlierTurns) {
  EchoModel model;
  ChatSession chat = session_of(model);
  EXPECT_EQ(chat.ask("one", ignore_text()), "ok1");
  chat.ask("two", ignore_text());
  EXPECT_THAT(model.prompts, ElementsAre("u:one|a:", "u:one|a:ok1|u:two|a:"));
}

TEST(ChatSession, DropsTheOldestTurnsWhenTheWindowIsFullAndCountsThem) {
  ChatSettings settings;
  settings.max_new_tokens = 4;
  settings.system = "S";
  EchoModel model;
  // "s:S|" 4 + per turn "u:xxx|" 6 + "a:ok1|" 6 + "u:xxx|a:" 8 = 4 + 12 k + 8; with 4 for the
  // answer, 40 holds k = 2.
  ChatSession chat = session_of(model, 40, settings);
  for (const char* text : {"one", "two", "thr", "fou"}) chat.ask(text, ignore_text());
  EXPECT_EQ(model.prompts.back(), "s:S|u:two|a:ok2|u:thr|a:ok3|u:fou|a:");
  EXPECT_EQ(chat.dropped_turns(), 1);
}

TEST(ChatSession, AFailureBehindATurnThatWasDroppedLosesNoHistory) {
  ChatSettings settings;
  settings.max_new_tokens = 4;
  EchoModel model;
  bool fails = false;
  ChatMedia media;
  media.message = [](const std::string& content, const std::vector<std::string>&,
                     const std::vector<std::string>&) { return text::Message{"user", content}; };
  media.encode = [&](const text::Conversation& conversation, infer::Request* request) {
    if (fails && conversation.messages.size() < 5) throw DataError("the file is gone");
    request->prompt = PlainEncoder().encode_prompt(conversation);
  };
  // Two turns and a message do not fit into 32: 12 k + 8, and 4 for the answer.
  ChatSession chat(model.fn(), 32, std::make_shared<ByteTokenizer>(),
                   std::make_shared<PlainEncoder>(), settings, media);
  for (const char* text : {"one", "two"}) chat.ask(text, ignore_text());
  fails = true;
  EXPECT_THROW(chat.ask("thr", ignore_text()), DataError);
  EXPECT_EQ(chat.num_turns(), 2u);
  EXPECT_EQ(chat.dropped_turns(), 0);
  fails = false;
  chat.ask("fou", ignore_text());
  EXPECT_EQ(model.prompts.back(), "u:two|a:ok2|u:fou|a:");
  EXPECT_EQ(chat.dropped_turns(), 1);
}

TEST(ChatSession, AMessageThatCannotFitIsAnErrorAndLosesNoHistory) {
  ChatSettings settings;
  settings.max_new_tokens = 4;
  EchoModel model;
  ChatSession chat = session_of(model, 30, settings);
  chat.ask("one", ignore_text());
  EXPECT_THROW(chat.ask(std::string(60, 'x'), ignore_text()), DataError);
  chat.ask("two", ignore_text());
  EXPECT_EQ(model.prompts.back(), "u:one|a:ok1|u:two|a:");
}

TEST(ChatSession, HistoryTurnsLimitsWhatIsRemembered) {
  ChatSettings settings;
  settings.max_history_turns = 1;
  EchoModel model;
  ChatSession chat = session_of(model, 0, settings);
  for (const char* text : {"one", "two", "thr"}) chat.ask(text, ignore_text());
  EXPECT_EQ(model.prompts.back(), "u:two|a:ok2|u:thr|a:");
}

std::string chat_with(EchoModel& model, const std::string& input,
                      ReplSettings settings = {false, false}) {
  ChatSession chat = session_of(model);
  std::istringstream in(input);
  std::ostringstream out;
  run_chat(chat, settings, in, out);
  return out.str();
}

TEST(ChatRepl, AnswersLinesAndForgetsOnClear) {
  EchoModel model;
  EXPECT_EQ(chat_with(model, "hi\n/clear\nyo\n/exit\nnever\n"),
            "ok1\n(conversation cleared)\nok2\n");
  EXPECT_THAT(model.prompts, ElementsAre("u:hi|a:", "u:yo|a:"));
}

TEST(ChatRepl, AnAnswerWithoutASecondTokenHasNoSpeed) {
  const auto said_of = [](int64_t new_tokens) {
    const AnswerFn answer = [&](const infer::Request&, const infer::OnToken&,
                                infer::GenerationStats* stats) {
      // The first token comes with the prompt: 2 more in 4 s are 0.5 tokens/s.
      *stats = {.prompt_tokens = 7, .new_tokens = new_tokens, .prefill_s = 1, .decode_s = 4};
      return infer::Answer{};
    };
    ChatSession chat(answer, 0, std::make_shared<ByteTokenizer>(), std::make_shared<PlainEncoder>(),
                     ChatSettings());
    std::istringstream in("hi\n");
    std::ostringstream out;
    testing::internal::CaptureStderr();
    run_chat(chat, {.show_prompt = false, .show_speed = true}, in, out);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said_of(1), "(1 token; prompt 7 tokens in 1.00 s)\n");
  EXPECT_EQ(said_of(0), "(0 tokens; prompt 7 tokens in 1.00 s)\n");
  EXPECT_EQ(said_of(3), "(3 tokens, 0.5 tokens/s; prompt 7 tokens in 1.00 s)\n");
}

TEST(ChatRepl, SystemSetsTheMessageAndStartsAnew) {
  EchoModel model;
  chat_with(model, "hi\n/system Be brief.\nyo\n");
  EXPECT_EQ(model.prompts.back(), "s:Be brief.|u:yo|a:");
}

TEST(ChatRepl, ReadsMessagesOfSeveralLines) {
  EchoModel model;
  chat_with(model, "\"\"\"first\nsecond\n\"\"\"\nmulti-line\na\nb\n#\nsingle-line\nc\n");
  EXPECT_EQ(model.prompts[0], "u:first\nsecond|a:");
  EXPECT_THAT(model.prompts[1], HasSubstr("u:a\nb|a:"));
  EXPECT_THAT(model.prompts[2], HasSubstr("u:c|a:"));
}

TEST(ChatRepl, KnowsTheWordsOfOtherSystemsAndRejectsUnknownCommands) {
  EchoModel model;
  EXPECT_THAT(chat_with(model, "/nonsense\nnew\n   \nquit\nhi\n"),
              HasSubstr("unknown command /nonsense"));
  EXPECT_TRUE(model.prompts.empty());
}

TEST(ChatRepl, AnInterruptStopsOneAnswerOnly) {
  EchoModel model;
  model.raise_interrupt_after = 1;
  const std::string out = chat_with(model, "hi\nyo\n");
  EXPECT_EQ(out, "ok [stopped]\nok [stopped]\n");
  EXPECT_EQ(pending_interrupt(), 0);
  EXPECT_THAT(model.prompts[1], HasSubstr("a:ok|u:yo"));  // what was said before the stop stays
}

/// Gives lines one by one, and Ctrl-C, typed as ^C: it ends a read, as at a terminal.
class Typed : public std::streambuf {
 public:
  explicit Typed(std::vector<std::string> lines) : lines_(std::move(lines)) {}

 private:
  int_type underflow() override {
    if (next_ == lines_.size()) return traits_type::eof();
    std::string& line = lines_[next_++];
    if (line == "^C") {
      ::raise(SIGINT);
      return traits_type::eof();
    }
    setg(line.data(), line.data(), line.data() + line.size());
    return traits_type::to_int_type(line.front());
  }

  std::vector<std::string> lines_;
  size_t next_ = 0;
};

/// What `model` is asked when `lines` are typed.
std::vector<std::string> asked_at_a_terminal(EchoModel& model, std::vector<std::string> lines) {
  ChatSession session = session_of(model, 60);
  Typed typed(std::move(lines));
  std::istream in(&typed);
  std::ostringstream out;
  run_chat(session, {.show_speed = false}, in, out);
  EXPECT_THAT(out.str(), HasSubstr("another Ctrl-C leaves"));
  clear_interrupt();
  return model.prompts;
}

TEST(ChatRepl, AnInterruptWhereNothingIsAnsweredDropsWhatIsTyped) {
  EchoModel one, other, last;
  EXPECT_EQ(asked_at_a_terminal(one, {"h", "^C", "yo\n", "^C", "/exit\n", "hi\n"}).size(), 1u);
  EXPECT_THAT(one.prompts.at(0), HasSubstr("u:yo"));
  asked_at_a_terminal(other, {"/multi\n", "a\n", "^C", "b\n", "#\n"});
  EXPECT_THAT(other.prompts, ElementsAre(AllOf(HasSubstr("u:b"), Not(HasSubstr("a\n")))));
  EXPECT_TRUE(asked_at_a_terminal(last, {"^C"}).empty());  // Ctrl-D after it ends the chat
}

TEST(ChatRepl, ASecondInterruptInARowEndsTheProgram) {
  EchoModel model;
  EXPECT_EXIT(asked_at_a_terminal(model, {"^C", "^C", "hi\n"}), ::testing::ExitedWithCode(130), "");
}

TEST(ChatRepl, SigtermEndsTheChat) {
  EchoModel model;
  model.raise_interrupt_after = 1;
  model.signal = SIGTERM;
  EXPECT_THROW(chat_with(model, "hi\nyo\n"), TerminatedError);
  EXPECT_EQ(model.prompts.size(), 1u);
  clear_interrupt();
}

std::string compare(EchoModel& one, EchoModel& other, const std::string& input, size_t columns,
                    int64_t second_window = 60) {
  ChatSession first = session_of(one, 60), second = session_of(other, second_window);
  std::istringstream in(input);
  std::ostringstream out;
  const int answers =
      run_chat({{"run/checkpoint-2", &first}, {"run/checkpoint-4", &second}},
               {.show_prompt = false, .show_speed = false, .columns = columns}, in, out);
  EXPECT_EQ(answers, static_cast<int>(one.prompts.size()));
  return out.str();
}

TEST(ChatRepl, TwoModelsAnswerEveryMessageEachInItsOwnConversation) {
  EchoModel one, other;
  other.prompts = {"said before"};
  EXPECT_EQ(compare(one, other, "hi\nyo\n/clear\nabc\n", 0),
            "── run/checkpoint-2 ──\nok1\n── run/checkpoint-4 ──\nok2\n"
            "── run/checkpoint-2 ──\nok2\n── run/checkpoint-4 ──\nok3\n"
            "(conversation cleared)\n"
            "── run/checkpoint-2 ──\nok3\n── run/checkpoint-4 ──\nok4\n");
  EXPECT_THAT(one.prompts, ElementsAre("u:hi|a:", "u:hi|a:ok1|u:yo|a:", "u:abc|a:"));
  EXPECT_THAT(other.prompts,
              ElementsAre("said before", "u:hi|a:", "u:hi|a:ok2|u:yo|a:", "u:abc|a:"));
}

TEST(ChatRepl, ATerminalShowsBothNextToEachOther) {
  EchoModel one, other;
  // (60 - 3) / 2 columns each.
  EXPECT_EQ(compare(one, other, "hi\n", 60),
            "run/checkpoint-2             │ run/checkpoint-4\n"
            "──────────────────────────── │ ────────────────────────────\n"
            "ok1                          │ ok1\n"
            "                             │\n");
  EchoModel narrow, screen;
  EXPECT_EQ(compare(narrow, screen, "hi\n", 40),
            "── run/checkpoint-2 ──\nok1\n── run/checkpoint-4 ──\nok1\n");
}

TEST(ChatRepl, WhereOneOfTwoCannotAnswerTheOtherDoes) {
  EchoModel one, other;
  // 40 letters: a window of 60 has room, one of 30 has not.
  EXPECT_EQ(compare(one, other, std::string(40, 'x') + "\n", 0, /*second_window=*/30),
            "── run/checkpoint-2 ──\nok1\n── run/checkpoint-4 ──\n");
  EXPECT_TRUE(other.prompts.empty());
}

TEST(SideBySide, LinesBreakBetweenWordsAndWideCharactersCountTwice) {
  EXPECT_EQ(side_by_side({{"a", "one two three\nx"}, {"b", "一二三四五六"}}, 21),
            "a         │ b\n"
            "───────── │ ─────────\n"
            "one two   │ 一二三四\n"
            "three     │ 五六\n"
            "x         │\n");
  EXPECT_EQ(side_by_side({{"a", "abcdefghijk"}, {"b", "\tq\x1b[2J"}}, 13),
            "a     │ b\n───── │ ─────\nabcde │     q\nfghij │ [2J\nk     │\n")
      << "words that are too long are cut, and nothing moves the cursor";
}

TEST(ChatRepl, AnErrorInOneMessageDoesNotEndTheChat) {
  EchoModel model;
  ChatSession chat = session_of(model, 30);
  std::istringstream in(std::string(60, 'x') + "\nhi\n");
  std::ostringstream out;
  EXPECT_EQ(run_chat(chat, {false, false}, in, out), 1);
  EXPECT_EQ(out.str(), "ok1\n");
}

/// Media as text: "[a.png]" in front of the message.
ChatMedia media_as_text() {
  ChatMedia media;
  media.message = [](const std::string& content, const std::vector<std::string>& images,
                     const std::vector<std::string>& videos) {
    std::string text;
    for (const std::string& name : images) {
      if (name == "missing") throw DataError("missing: no such file");
      text += "[" + name + "]";
    }
    for (const std::string& name : videos) text += "<" + name + ">";
    return text::Message{"user", text + content};
  };
  media.encode = [](const text::Conversation& conversation, infer::Request* request) {
    request->prompt = PlainEncoder().encode_prompt(conversation);
  };
  return media;
}

TEST(ChatRepl, PicturesBelongToTheNextMessageAndStayInTheHistory) {
  EchoModel model;
  ChatSession chat(model.fn(), 0, std::make_shared<ByteTokenizer>(),
                   std::make_shared<PlainEncoder>(), {}, media_as_text());
  std::istringstream in(
      "/image  'a.png' \n/video v.mp4\n/image missing\none\ntwo\n/image b.png\n/clear\nthree\n");
  std::ostringstream out;
  run_chat(chat, {.show_prompt = false, .show_speed = false}, in, out);
  EXPECT_THAT(
      model.prompts,
      ElementsAre("u:[a.png]<v.mp4>one|a:", "u:[a.png]<v.mp4>one|a:ok1|u:two|a:", "u:three|a:"));
  EXPECT_THAT(out.str(), HasSubstr("(a picture of the next message)\n(a video of the next"));
}

TEST(ChatRepl, ABrokenPictureIsRefusedWhenItIsNamedAndNeverSticks) {
  EchoModel model;
  ChatMedia media = media_as_text();
  media.encode = [](const text::Conversation& conversation, infer::Request* request) {
    request->prompt = PlainEncoder().encode_prompt(conversation);
    const std::string text = request->prompt.empty() ? "" : conversation.messages.back().content;
    if (text.find("[broken.png]") != text.npos) {
      infer::PromptPicture picture;
      picture.pixels = []() -> at::Tensor { throw DataError("broken.png: damaged"); };
      request->pictures = {picture};
    }
  };
  int answers = 0;
  const AnswerFn fails_first = [&](const infer::Request& request, const infer::OnToken& on_token,
                                   infer::GenerationStats* stats) {
    if (++answers == 1) throw DataError("clip.mp4: damaged behind its middle");
    return model.fn()(request, on_token, stats);
  };
  ChatSession chat(fails_first, 0, std::make_shared<ByteTokenizer>(),
                   std::make_shared<PlainEncoder>(), {}, std::move(media));
  std::istringstream in("/image broken.png\n/image\n/video\n/video clip.mp4\none\ntwo\n");
  std::ostringstream out;
  testing::internal::CaptureStderr();
  run_chat(chat, {.show_prompt = false, .show_speed = false}, in, out);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("broken.png: damaged\n"));
  EXPECT_THAT(said, HasSubstr("clip.mp4: damaged behind its middle"));
  EXPECT_EQ(out.str(),
            "which picture? /image PATH\nwhich video? /video PATH\n(a video of the next message)\n"
            "(the pictures and videos of this message are forgotten)\nok1\n");
  EXPECT_THAT(model.prompts, ElementsAre("u:two|a:"));
}

TEST(ChatSession, AModelOfTextRefusesPictures) {
  EchoModel model;
  ChatSession chat = session_of(model);
  EXPECT_THROW(chat.add_media(text::MediaKind::kImage, "a.png"), UsageError);
}

}  // namespace chat_test
}  // namespace danlu::serve
