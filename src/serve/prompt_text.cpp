#include "serve/prompt_text.h"

#include <algorithm>
#include <string_view>

#include "api/refusal.h"
#include "api/responses.h"

namespace danlu::serve {
namespace {

std::string trimmed_end(const std::string& text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  return end == text.npos ? "" : text.substr(0, end + 1);
}

/// A prompt that ends inside the last message. A word that no text has stands behind it while it is
/// rendered: the message itself may also be a part of the marks that the template sets behind it.
std::string rendered_into_last(const text::ChatEncoder& encoder, text::Conversation conversation) {
  std::string& content = conversation.messages.back().content;
  const bool has_text = !trimmed_end(content).empty();
  const std::string mark = api::new_id("end") + " ";
  content += mark;
  const std::string rendered = encoder.render(conversation, /*add_generation_prompt=*/false);
  const size_t at = rendered.rfind(std::string_view(mark).substr(0, mark.size() - 1));
  if (!has_text || at == rendered.npos) {
    throw api::Refusal("'continue_final_message': the template does not show the last message",
                       "continue_final_message");
  }
  // White space at the end is the message's, unless the template trims messages: then the mark's
  // blank is gone, too.
  const bool trims = rendered.compare(at, mark.size(), mark) != 0;
  return trims ? trimmed_end(rendered.substr(0, at)) : rendered.substr(0, at);
}

}  // namespace

std::vector<text::TokenId> prompt_ids(const text::Tokenizer& tokenizer,
                                      const text::ChatEncoder& encoder,
                                      const text::Conversation& conversation) {
  if (conversation.messages.back().role != "assistant") return encoder.encode_prompt(conversation);
  return tokenizer.encode(encoder.render(conversation, /*add_generation_prompt=*/true),
                          /*add_special=*/false);
}

std::string rendered(const text::ChatEncoder& encoder, const text::Conversation& conversation,
                     api::PromptEnd end) {
  if (end == api::PromptEnd::kLastMessage) return rendered_into_last(encoder, conversation);
  return encoder.render(conversation, end == api::PromptEnd::kNewAnswer);
}

std::vector<text::TokenId> beginning_of(const text::Tokenizer& tokenizer, const std::string& text,
                                        int64_t most) {
  std::vector<text::TokenId> ids = tokenizer.encode(text, /*add_special=*/true);
  const std::vector<text::TokenId> plain = tokenizer.encode(text, /*add_special=*/false);
  const auto found = std::search(ids.begin(), ids.end(), plain.begin(), plain.end());
  const int64_t excess = std::ssize(ids) - most;
  if (excess <= 0 || found == ids.end() || excess > std::ssize(plain)) return ids;
  const auto end = found + std::ssize(plain);
  ids.erase(end - excess, end);
  return ids;
}

std::string without_last_tokens(const text::Tokenizer& tokenizer, const std::string& text,
                                int64_t count) {
  constexpr std::string_view kHalfCharacter = "\xEF\xBF\xBD";
  std::vector<text::TokenId> ids = tokenizer.encode(text, /*add_special=*/false);
  if (std::ssize(ids) <= count) return "";
  ids.resize(ids.size() - static_cast<size_t>(count));
  std::string kept = tokenizer.decode(ids);
  while (kept.ends_with(kHalfCharacter)) kept.resize(kept.size() - kHalfCharacter.size());
  return kept;
}

}  // namespace danlu::serve
