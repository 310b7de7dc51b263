#include "text/sentencepiece/rules.h"

#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {
constexpr std::string_view kRewrittenSpace = "\xE2\x96\x81";  // ▁
}

SentencePieceRewriter::SentencePieceRewriter(const SentencePieceRules& rules,
                                             bool whitespace_as_suffix, const TokenMatcher& kept,
                                             const std::string& origin)
    : rules_(rules),
      whitespace_as_suffix_(whitespace_as_suffix),
      kept_(kept),
      map_(read_character_map(rules.character_map, origin)),
      space_(rules.escape_whitespaces ? kRewrittenSpace : " ") {
  rules_.character_map.clear();
  for (int first = 0; first < 128; ++first) {
    bool in_keys = false;
    for (int second = 0; second < 128 && !in_keys; ++second) {
      const char pair[] = {static_cast<char>(first), static_cast<char>(second)};
      in_keys |= map_.trie.each_prefix({pair, 2}, [&](size_t, uint32_t) { return in_keys = true; });
    }
    plain_[first] = !in_keys;
  }
}

/// True if the character at `at` stays as it is, whatever follows.
bool SentencePieceRewriter::is_plain(std::string_view text, size_t at) const {
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte < 0x80 && plain_[byte] &&
         (at + 1 == text.size() || static_cast<unsigned char>(text[at + 1]) < 0x80);
}

/// The longest of the map's keys that begins here, a kept piece, or one character.
/// next_kept: where the next kept piece begins.
SentencePieceRewriter::Unit SentencePieceRewriter::unit_at(std::string_view text, size_t at,
                                                           size_t next_kept) const {
  if (at == next_kept) {
    const size_t length = kept_.find(text, at).end - at;
    return {text.substr(at, length), length};
  }
  if (!map_.trie.empty() && !is_plain(text, at)) {
    size_t length = 0, value = 0;
    map_.trie.each_prefix(text.substr(at), [&](size_t key_length, uint32_t key_value) {
      length = key_length;
      value = key_value;
      return true;
    });
    if (length > 0 && map_.holds(value)) return {map_.replacement(value), length};
  }
  const size_t length = decode_utf8(text, at).length;
  return {text.substr(at, length), length};
}

void SentencePieceRewriter::append_escaped(std::string_view text, std::string& out) const {
  if (!rules_.escape_whitespaces) {
    out += text;
    return;
  }
  while (!text.empty()) {
    const size_t space = text.find(' ');
    out += text.substr(0, space);
    if (space == std::string_view::npos) return;
    out += kRewrittenSpace;
    text.remove_prefix(space + 1);
  }
}

void SentencePieceRewriter::rewrite_units(std::string_view text, std::string& out) const {
  const bool removes = rules_.remove_extra_whitespaces;
  const auto kept_from = [&](size_t at) {
    const TokenMatcher::Match match = kept_.empty() ? TokenMatcher::Match{} : kept_.find(text, at);
    return match.token ? match.begin : std::string_view::npos;
  };
  size_t next_kept = kept_from(0), at = 0;
  const auto next_unit = [&] {
    if (next_kept < at) next_kept = kept_from(at);
    const Unit unit = unit_at(text, at, next_kept);
    at += unit.length;
    return unit.text;
  };
  std::string_view unit;
  if (removes) {
    do unit = next_unit();
    while (unit == " " && at < text.size());
    if (unit == " ") return;  // nothing but spaces
  } else {
    unit = next_unit();
  }
  if (rules_.add_dummy_prefix && !whitespace_as_suffix_) out += space_;
  for (bool after_space = removes;; unit = next_unit()) {
    while (after_space && unit.starts_with(' ')) unit.remove_prefix(1);
    if (!unit.empty()) {
      append_escaped(unit, out);
      after_space = removes && unit.ends_with(' ');
    }
    if (at == text.size()) break;
  }
  while (removes && out.ends_with(space_)) out.resize(out.size() - space_.size());
  if (rules_.add_dummy_prefix && whitespace_as_suffix_) out += space_;
}

void SentencePieceRewriter::rewrite(std::string_view text, std::string& out) const {
  out.clear();
  if (text.empty()) return;
  out.reserve(text.size() + text.size() / 2 + space_.size());
  if (!map_.trie.empty() || !kept_.empty() || rules_.remove_extra_whitespaces)
    return rewrite_units(text, out);
  if (rules_.add_dummy_prefix && !whitespace_as_suffix_) out += space_;
  append_escaped(text, out);
  if (rules_.add_dummy_prefix && whitespace_as_suffix_) out += space_;
}

std::string SentencePieceRewriter::map_characters(std::string_view text) const {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Unit unit = unit_at(text, at, std::string_view::npos);
    out += unit.text;
    at += unit.length;
  }
  return out;
}

}  // namespace danlu::text
