#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "text/tokenizer/char_class.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

size_t space_before(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t previous = previous_char(text, at);
    if (!(char_class(decode_utf8(text, previous).value) & kSpace)) break;
    at = previous;
  }
  return at;
}

size_t space_after(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = decode_utf8(text, at);
    if (!(char_class(c.value) & kSpace)) break;
    at += c.length;
  }
  return at;
}

namespace {

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && (char_class(decode_utf8(text, previous_char(text, begin)).value) & kWord)) {
    return false;
  }
  return end == text.size() || !(char_class(decode_utf8(text, end).value) & kWord);
}

}  // namespace

uint32_t TokenMatcher::child(uint32_t node, unsigned char byte) const {
  if (node == 0) return roots_[byte];
  uint32_t at = nodes_[node].first_child;
  while (at && nodes_[at].byte != byte) at = nodes_[at].next_sibling;
  return at;
}

void TokenMatcher::add(std::string_view content, const AddedToken* token) {
  if (content.empty()) return;
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t next = child(node, byte);
    if (!next) {
      next = static_cast<uint32_t>(nodes_.size());
      Node fresh;
      fresh.byte = byte;
      if (node == 0) {
        roots_[byte] = next;
        ++num_first_bytes_;
        only_first_byte_ = c;
      } else {
        fresh.next_sibling = nodes_[node].first_child;
        nodes_[node].first_child = next;
      }
      nodes_.push_back(fresh);
    }
    node = next;
  }
  nodes_[node].token = token;
}

TokenMatcher::Match TokenMatcher::find(std::string_view text, size_t from) const {
  if (empty()) return {};
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (num_first_bytes_ == 1) {
      const void* found = std::memchr(text.data() + begin, only_first_byte_, text.size() - begin);
      if (!found) return {};
      begin = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    }
    Match best;
    uint32_t node = roots_[static_cast<unsigned char>(text[begin])];
    for (size_t at = begin + 1; node; ++at) {
      if (nodes_[node].token) best = {begin, at, nodes_[node].token};
      if (at == text.size()) break;
      node = child(node, static_cast<unsigned char>(text[at]));
    }
    if (best.token) return best;
  }
  return {};
}

Json json_of(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

void AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return;
  const auto [it, fresh] = index_of_content_.try_emplace(token.content, tokens_.size());
  const size_t index = it->second;
  if (fresh) {
    tokens_.push_back(std::move(token));
  } else {
    tokens_[index] = std::move(token);
  }
  index_of_id_[tokens_[index].id] = index;
}

void AddedTokens::build(const Normalizer* normalizer) {
  raw_matcher_ = {};
  normalized_matcher_ = {};
  for (const AddedToken& token : tokens_) {
    if (!token.normalized) {
      raw_matcher_.add(token.content, &token);
      continue;
    }
    std::string content = token.content;
    if (normalizer) normalizer->normalize(content);
    normalized_matcher_.add(content, &token);
  }
}

const AddedToken* AddedTokens::by_content(std::string_view content) const {
  const auto it = index_of_content_.find(std::string(content));
  return it == index_of_content_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::by_id(TokenId id) const {
  const auto it = index_of_id_.find(id);
  return it == index_of_id_.end() ? nullptr : &tokens_[it->second];
}

bool AddedTokens::is_special(TokenId id) const {
  const AddedToken* token = by_id(id);
  return token && token->special;
}

Tokenizer::BlanksTaken AddedTokens::blanks_taken_by(TokenId id) const {
  const AddedToken* token = by_id(id);
  // In normalized text a blank may be another character: nothing is promised there.
  if (!token || token->normalized) return {};
  return {token->lstrip, token->rstrip};
}

void AddedTokens::split(std::string_view text, bool raw,
                        FunctionRef<void(std::string_view, size_t)> on_text,
                        FunctionRef<void(TokenId)> on_token) const {
  const TokenMatcher& matcher = raw ? raw_matcher_ : normalized_matcher_;
  size_t done = 0;
  for (TokenMatcher::Match match = matcher.find(text, 0); match.token;
       match = matcher.find(text, match.end)) {
    const AddedToken& token = *match.token;
    if (token.single_word && !stands_alone(text, match.begin, match.end)) continue;
    size_t begin = match.begin, end = match.end;
    if (token.lstrip) begin = std::max(space_before(text, begin), done);
    if (token.rstrip) end = space_after(text, end);
    if (done < begin) on_text(text.substr(done, begin - done), done);
    on_token(token.id);
    done = end;
  }
  if (done < text.size()) on_text(text.substr(done), done);
}

}  // namespace danlu::text
