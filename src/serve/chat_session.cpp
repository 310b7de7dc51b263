#include "serve/chat_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace danlu::serve {

ChatSession::ChatSession(AnswerFn answer, int64_t max_positions,
                         std::shared_ptr<const text::Tokenizer> tokenizer,
                         std::shared_ptr<const text::ChatEncoder> encoder, ChatSettings settings,
                         ChatMedia media)
    : answer_(std::move(answer)),
      max_positions_(max_positions),
      tokenizer_(std::move(tokenizer)),
      encoder_(std::move(encoder)),
      settings_(std::move(settings)),
      media_(std::move(media)) {}

void ChatSession::add_media(text::MediaKind kind, const std::string& path) {
  if (!media_.message) {
    throw UsageError(
        fmt::format("[chat] {}: {}", path,
                    media_.why_none.empty() ? tr("the model reads text alone") : media_.why_none),
        tr("pictures need a model such as Qwen2-VL, with preprocessor_config.json in "
           "its directory"));
  }
  const bool is_image = kind == text::MediaKind::kImage;
  text::Conversation alone;
  alone.messages.push_back(is_image ? media_.message("", {path}, {})
                                    : media_.message("", {}, {path}));
  infer::Request request;
  media_.encode(alone, &request);
  // Damage within pixels shows now, and not in an answer. A video takes too long for that.
  if (is_image) {
    for (const infer::PromptPicture& picture : request.pictures) picture.pixels();
  }
  (is_image ? next_images_ : next_videos_).push_back(path);
}

text::Conversation ChatSession::conversation(const Messages& history,
                                             const text::Message& user) const {
  text::Conversation result;
  if (!settings_.system.empty()) result.messages.push_back({"system", settings_.system});
  result.messages.insert(result.messages.end(), history.begin(), history.end());
  result.messages.push_back(user);
  return result;
}

void ChatSession::encode(const text::Conversation& conversation, infer::Request* request) const {
  if (media_.encode)
    media_.encode(conversation, request);
  else
    request->prompt = encoder_->encode_prompt(conversation);
}

void ChatSession::fit_prompt(const text::Message& user, infer::Request* request) {
  Messages kept = history_;
  auto drop_oldest = [&] { kept.erase(kept.begin(), kept.begin() + 2); };
  while (settings_.max_history_turns > 0 && std::ssize(kept) / 2 > settings_.max_history_turns)
    drop_oldest();
  // Leave room for an answer, but never more than half the window: long limits must not erase the
  // history.
  const int64_t room = std::min(settings_.max_new_tokens, max_positions_ / 2);
  for (;;) {
    encode(conversation(kept, user), request);
    const int64_t size = std::ssize(request->prompt);
    if (max_positions_ == 0 || size + room <= max_positions_ ||
        (kept.empty() && size < max_positions_))
      break;
    if (kept.empty()) {
      throw DataError(tr("[chat] this message has {} tokens, the model's window holds {}", size,
                         max_positions_),
                      tr("send a shorter message"));
    }
    drop_oldest();
  }
  dropped_turns_ += std::ssize(history_) / 2 - std::ssize(kept) / 2;
  history_ = std::move(kept);
}

std::string ChatSession::ask(const std::string& user,
                             const std::function<bool(const std::string&)>& on_text) {
  infer::Request request;
  const text::Message message = media_.message ? media_.message(user, next_images_, next_videos_)
                                               : text::Message{"user", user};
  fit_prompt(message, &request);
  request.sampling = settings_.sampling;
  request.max_new_tokens = settings_.max_new_tokens;
  request.stream = num_answers_++;
  request.num_tokens = static_cast<int64_t>(tokenizer_->size());
  api::AnswerReaderSettings reading = settings_.reader;
  if (settings_.continues_text) reading.before = api::text_before(request.prompt);
  api::AnswerReader reader(tokenizer_, std::move(reading));
  std::string answer;
  stats_ = {};
  answer_(
      request,
      [&](size_t, text::TokenId id) {
        const std::string piece = reader.push(id).content;
        answer += piece;
        return on_text(piece) && !reader.stopped_by();
      },
      &stats_);
  const std::string rest = reader.finish().content;
  if (!rest.empty()) {
    answer += rest;
    on_text(rest);
  }
  if (settings_.keeps_history) {
    history_.push_back(message);
    history_.push_back({"assistant", answer});
  }
  forget_media();
  return answer;
}

bool ChatSession::forget_media() {
  const bool had_any = !next_images_.empty() || !next_videos_.empty();
  next_images_.clear();
  next_videos_.clear();
  return had_any;
}

void ChatSession::clear() {
  history_.clear();
  forget_media();
  dropped_turns_ = 0;
}

void ChatSession::set_system(const std::string& system) {
  settings_.system = system;
  clear();
}

}  // namespace danlu::serve
