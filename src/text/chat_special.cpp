#include "text/chat_special.h"

#include <algorithm>

namespace danlu::text {

SpecialIndex::SpecialIndex(const Tokenizer& tokenizer) : texts_(tokenizer.size()) {
  for (TokenId id = 0; id < static_cast<TokenId>(texts_.size()); ++id) {
    if (!tokenizer.is_special(id) || id == tokenizer.unk_id()) continue;
    const auto text = tokenizer.id_to_token(id);
    if (!text || text->empty()) continue;
    texts_[static_cast<size_t>(id)] = *text;
    set_.insert(*text);
    auto& lengths = lengths_by_first_byte_[static_cast<unsigned char>(text->front())];
    if (std::find(lengths.begin(), lengths.end(), text->size()) == lengths.end())
      lengths.push_back(text->size());
  }
  for (auto& lengths : lengths_by_first_byte_) std::sort(lengths.rbegin(), lengths.rend());
}

size_t SpecialIndex::length_at(std::string_view text, size_t position) const {
  if (position >= text.size()) return 0;
  for (const size_t length : lengths_by_first_byte_[static_cast<unsigned char>(text[position])]) {
    if (position + length <= text.size() && set_.contains(text.substr(position, length)))
      return length;
  }
  return 0;
}

size_t SpecialIndex::find(std::string_view text, size_t position) const {
  for (; position < text.size(); ++position) {
    if (length_at(text, position) > 0) return position;
  }
  return std::string_view::npos;
}

std::string_view SpecialIndex::text_of(TokenId id) const {
  const size_t i = static_cast<size_t>(id);
  return i < texts_.size() ? std::string_view(texts_[i]) : std::string_view();
}

}  // namespace danlu::text
