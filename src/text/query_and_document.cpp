#include "text/query_and_document.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/error.h"

namespace danlu::text {
namespace {

constexpr const char* kNoPair = "no query with one document";

}  // namespace

Conversation conversation_of(const QueryAndDocument& pair) {
  Conversation conversation;
  if (!pair.instruction.empty()) conversation.messages.push_back({"system", pair.instruction});
  conversation.messages.push_back({"user", pair.query});
  conversation.messages.push_back({"assistant", pair.document});
  return conversation;
}

QueryAndDocument query_and_document(const Conversation& pair) {
  QueryAndDocument parts;
  const auto& messages = pair.messages;
  const bool has_system = !messages.empty() && messages.front().role == "system";
  const size_t first = has_system ? 1 : 0;
  const bool is_pair = messages.size() == first + 2 && messages[first].role == "user" &&
                       messages[first + 1].role == "assistant";
  if (!is_pair) {
    throw UnrankablePair(
        kNoPair, tr("a pair that is ranked is a message of the user, the query, and one of the "
                    "assistant, the document"));
  }
  for (const Message& message : messages) {
    if (!message.media.empty())
      throw UnrankablePair(kNoPair, tr("pairs that are ranked have no pictures"));
  }
  if (has_system) parts.instruction = messages.front().content;
  parts.query = messages[first].content;
  parts.document = messages[first + 1].content;
  return parts;
}

std::vector<TokenId> ChatEncoder::encode_pair(const Conversation& pair) const {
  return encode_ids(pair);
}

namespace {

std::vector<TokenId> whole_pair_ids(const Conversation& pair, const Tokenizer& tokenizer,
                                    const ChatEncoder* encoder) {
  if (encoder) return encoder->encode_pair(pair);
  const QueryAndDocument parts = query_and_document(pair);
  if (auto ids = tokenizer.encode_two(parts.query, parts.document)) return *std::move(ids);
  return tokenizer.encode(parts.query + parts.document, /*add_special=*/true);
}

/// A cut amid the tokens of one character is decoded as a replacement for it.
std::string without_broken_end(std::string text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  while (text.ends_with(kReplacement)) text.resize(text.size() - kReplacement.size());
  return text;
}

}  // namespace

std::vector<TokenId> pair_ids(const Conversation& pair, const Tokenizer& tokenizer,
                              const ChatEncoder* encoder, int64_t most) {
  std::vector<TokenId> ids = whole_pair_ids(pair, tokenizer, encoder);
  if (most <= 0 || std::ssize(ids) <= most) return ids;
  Conversation shorter = pair;
  std::string& document = shorter.messages.back().content;
  // A text that is cut may have other tokens at its end, more of them than were kept.
  int64_t most_kept = std::numeric_limits<int64_t>::max();
  while (std::ssize(ids) > most) {
    std::vector<TokenId> kept = tokenizer.encode(document, /*add_special=*/false);
    if (kept.empty() || most_kept == 0) {
      throw UnrankablePair(
          "the query alone is too long",
          tr("{} tokens have no room for the query alone, which makes {}", most, ids.size()));
    }
    const auto excess = std::ssize(ids) - most;
    most_kept = std::clamp<int64_t>(std::ssize(kept) - excess, 0, most_kept - 1);
    kept.resize(static_cast<size_t>(most_kept));
    document = kept.empty() ? "" : without_broken_end(tokenizer.decode(kept));
    ids = whole_pair_ids(shorter, tokenizer, encoder);
  }
  return ids;
}

}  // namespace danlu::text
