// serve/chat_session.h: a conversation with a model: history, templates, streaming.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/answer_reader.h"
#include "infer/generate.h"
#include "text/conversation.h"

namespace danlu::serve {

struct ChatSettings {
  infer::SamplingParams sampling;
  int64_t max_new_tokens = 2048;
  int64_t max_history_turns = 0;  ///< 0: as many as fit the window
  std::string system;             ///< "": the template's default
  bool keeps_history = true;      ///< false: every message is asked alone
  api::AnswerReaderSettings reader = {};
  bool continues_text = false;  ///< answers go on with the text of their prompts
};

/// Everything an answer needs from the model, so that tests can talk to something smaller.
using AnswerFn = std::function<infer::Answer(const infer::Request&, const infer::OnToken&,
                                             infer::GenerationStats*)>;

/// What a model that sees pictures adds to a chat; without functions it reads text alone.
struct ChatMedia {
  /// A user's message with files: where `content` has <image> and <video>, else before it. The
  /// message holds what the files hold now. Errors: DataError if they cannot be read, or tags and
  /// files differ in number.
  std::function<text::Message(const std::string& content, const std::vector<std::string>& images,
                              const std::vector<std::string>& videos)>
      message = {};
  /// The prompt of a conversation, with its pictures. Errors: DataError of one that is broken.
  std::function<void(const text::Conversation&, infer::Request*)> encode = {};
  std::string why_none = {};  ///< where there are no functions: why the model reads no pictures
};

/// Keeps the messages of one conversation. Not thread-safe.
class ChatSession {
 public:
  /// max_positions: the model's window in tokens, 0 = unlimited.
  ChatSession(AnswerFn answer, int64_t max_positions,
              std::shared_ptr<const text::Tokenizer> tokenizer,
              std::shared_ptr<const text::ChatEncoder> encoder, ChatSettings settings,
              ChatMedia media = {});

  /// A picture or video of the next message. Errors: DataError if it cannot be used, UsageError if
  /// the model reads text alone; nothing is added.
  void add_media(text::MediaKind kind, const std::string& path);

  /// Answers `user`; `on_text` receives the answer piece by piece (whole characters) and returns
  /// false to stop it. What was answered so far enters the history, also when stopped. Oldest turns
  /// are dropped when the history does not fit; dropped_turns() counts them. Errors: DataError if
  /// the message alone does not fit (the history is then unchanged).
  std::string ask(const std::string& user, const std::function<bool(const std::string&)>& on_text);

  /// Takes what add_media added from the next message: where an answer failed, a file among them
  /// may be why. False: nothing was there.
  bool forget_media();

  void clear();
  void set_system(const std::string& system);
  const ChatSettings& settings() const { return settings_; }
  const infer::GenerationStats& last_stats() const { return stats_; }
  int64_t dropped_turns() const { return dropped_turns_; }
  size_t num_turns() const { return history_.size() / 2; }

 private:
  using Messages = std::vector<text::Message>;  ///< user, assistant, user, assistant, …
  text::Conversation conversation(const Messages& history, const text::Message& user) const;
  void encode(const text::Conversation& conversation, infer::Request* request) const;
  /// Gives the request its prompt.
  void fit_prompt(const text::Message& user, infer::Request* request);

  AnswerFn answer_;
  int64_t max_positions_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::ChatEncoder> encoder_;
  ChatSettings settings_;
  ChatMedia media_;
  std::vector<std::string> next_images_, next_videos_;  ///< of the next message
  Messages history_;
  infer::GenerationStats stats_;
  int64_t dropped_turns_ = 0;
  uint64_t num_answers_ = 0;
};

}  // namespace danlu::serve
