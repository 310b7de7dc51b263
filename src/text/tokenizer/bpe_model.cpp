#include "text/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

// Up to this many symbols a word is merged at a time.
constexpr size_t kFewSymbols = 64;

std::vector<MergeTable::Merge> resolve_merges(const Vocabulary& vocabulary,
                                              const std::vector<BpeModel::Pair>& pairs,
                                              size_t prefix_length, const std::string& origin) {
  constexpr size_t kAtOnce = 16;
  std::vector<MergeTable::Merge> merges;
  merges.reserve(pairs.size());
  std::string joined[kAtOnce];
  for (size_t begin = 0; begin < pairs.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, pairs.size() - begin);
    std::string_view tokens[3 * kAtOnce];
    TokenId ids[3 * kAtOnce];
    for (size_t i = 0; i < count; ++i) {
      const auto& [left, right] = pairs[begin + i];
      joined[i].assign(left).append(right.substr(std::min(prefix_length, right.size())));
      tokens[3 * i] = left;
      tokens[3 * i + 1] = right;
      tokens[3 * i + 2] = joined[i];
    }
    vocabulary.find_all(std::span(tokens).first(3 * count), ids);
    for (size_t i = 0; i < count; ++i) {
      const TokenId* const id = ids + 3 * i;
      if (const auto* missing = std::find_if(id, id + 3, [](TokenId one) { return one < 0; });
          missing != id + 3) {
        throw ModelError(
            tr("{}: merge {} (\"{}\" \"{}\") needs the token \"{}\", which the "
               "vocabulary lacks",
               origin, merges.size(), tokens[3 * i], tokens[3 * i + 1],
               tokens[3 * i + static_cast<size_t>(missing - id)]));
      }
      merges.push_back({id[0], id[1], id[2], static_cast<uint32_t>(merges.size())});
    }
  }
  return merges;
}

}  // namespace

void MergeTable::build(const std::vector<Merge>& merges) {
  slots_.assign(std::bit_ceil(merges.size() + merges.size() / 2 + 16), Slot());
  const size_t mask = slots_.size() - 1;
  for (const Merge& merge : merges) {
    size_t at = hash(merge.left, merge.right) & mask;
    while (slots_[at].rank != kNone &&
           (slots_[at].left != merge.left || slots_[at].right != merge.right)) {
      at = (at + 1) & mask;
    }
    slots_[at] = {merge.left, merge.right, merge.rank, merge.result};
  }
}

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<Pair>& pairs, BpeOptions options,
                   const std::string& origin)
    : options_(std::move(options)) {
  vocabulary_ = std::move(vocabulary);
  prepare(resolve_merges(vocabulary_, pairs, options_.continuing_subword_prefix.size(), origin));
}

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<MergeTable::Merge>& merges,
                   BpeOptions options)
    : options_(std::move(options)) {
  vocabulary_ = std::move(vocabulary);
  prepare(merges);
}

void BpeModel::prepare(const std::vector<MergeTable::Merge>& merges) {
  byte_ids_.resize(256);
  fallback_ids_.resize(256);
  for (int b = 0; b < 256; ++b) {
    byte_ids_[b] = vocabulary_.find(byte_to_utf8()[b]);
    fallback_ids_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
  }
  char_ids_.assign(kCharIds, -1);
  for (size_t id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.has(static_cast<TokenId>(id))) continue;
    const std::string_view token = vocabulary_.token(static_cast<TokenId>(id));
    if (token.empty() || token.size() > 4) continue;
    const CodePoint c = decode_utf8(token, 0);
    if (c.length == token.size() && c.value < kCharIds) {
      char_ids_[c.value] = vocabulary_.find(token);
    }
  }
  if (options_.unk_token) unk_id_ = vocabulary_.find(*options_.unk_token);
  merges_.build(merges);
  find_joins_of_chars();
  byte_pair_rank_.resize(size_t{256} * 256);
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      byte_pair_rank_[a << 8 | b] = byte_ids_[a] < 0 || byte_ids_[b] < 0
                                        ? MergeTable::kNone
                                        : merges_.rank(byte_ids_[a], byte_ids_[b]);
    }
  }
}

bool BpeModel::can_use_raw_bytes() const {
  return options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty() &&
         std::none_of(byte_ids_.begin(), byte_ids_.end(), [](TokenId id) { return id < 0; });
}

void BpeModel::find_joins_of_chars() {
  if (options_.ignore_merges || !options_.continuing_subword_prefix.empty() ||
      !options_.end_of_word_suffix.empty()) {
    return;
  }
  const auto is_fallback = [&](std::string_view token, TokenId id) {
    return token.size() == 6 && token[0] == '<' &&
           std::find(fallback_ids_.begin(), fallback_ids_.end(), id) != fallback_ids_.end();
  };
  // Unknown characters that are fused or dropped, or byte tokens that take part in merges, reach
  // over cuts.
  const bool all_known =
      options_.byte_fallback &&
      std::none_of(fallback_ids_.begin(), fallback_ids_.end(), [](TokenId id) { return id < 0; });
  if (!all_known && (options_.fuse_unk || unk_id_ < 0)) return;
  joins_.assign((size_t{1} << kJoinBits) / 64, 0);
  bool sound = true;
  merges_.each([&](TokenId left_id, TokenId right_id) {
    const std::string_view left = vocabulary_.token(left_id), right = vocabulary_.token(right_id);
    if (left.empty() || right.empty() || left_id == unk_id_ || right_id == unk_id_ ||
        is_fallback(left, left_id) || is_fallback(right, right_id)) {
      sound = false;
      return;
    }
    const size_t bit = join_bit(decode_utf8(left, previous_char(left, left.size())).value,
                                decode_utf8(right, 0).value);
    joins_[bit / 64] |= uint64_t{1} << (bit % 64);
  });
  if (!sound) joins_.clear();
  ids_tell_symbols_ = sound;
}

namespace {

/// The last character of `bytes` if it is whole and takes three bytes or more; what its last bytes
/// are otherwise.
enum class Edge { kWide, kPart, kOther };

Edge last_char(std::string_view bytes, CodePoint& c) {
  size_t at = bytes.size();
  while (at > 0 && bytes.size() - at < 4) {
    const auto byte = static_cast<unsigned char>(bytes[--at]);
    if ((byte & 0xC0) == 0x80) continue;
    if (byte < 0xE0) return Edge::kOther;
    const size_t length = byte < 0xF0 ? 3 : 4;
    if (bytes.size() - at != length) return Edge::kOther;  // no character ends here
    c = decode_utf8(bytes, at);
    return Edge::kWide;
  }
  return Edge::kPart;
}

Edge first_char(std::string_view bytes, CodePoint& c) {
  const auto byte = static_cast<unsigned char>(bytes[0]);
  if (byte < 0xE0) return Edge::kOther;
  const size_t length = byte < 0xF0 ? 3 : 4;
  if (bytes.size() < length) return Edge::kPart;
  c = decode_utf8(bytes, 0);
  return Edge::kWide;
}

}  // namespace

// Only cuts between two characters of three bytes or more are made in raw bytes: for these a merge
// over the cut ends in a continuation byte and goes on with such a character's first byte.
void BpeModel::find_joins_of_bytes() {
  joins_.assign((size_t{1} << kJoinBits) / 64, 0);
  byte_joins_.assign(size_t{256} * 256, false);
  std::string left, right;
  merges_.each([&](TokenId left_id, TokenId right_id) {
    const std::string_view head = vocabulary_.token(right_id);
    // Bytes from 0xE0 on are written as U+00E0 and so on.
    if (head.size() < 2 || head[0] != '\xC3' || static_cast<unsigned char>(head[1]) < 0xA0) return;
    left.clear();
    right.clear();
    if (!append_bytes_of_token(vocabulary_.token(left_id), left) ||
        !append_bytes_of_token(head, right)) {
      return;  // never made from bytes
    }
    CodePoint before{}, after{};
    const Edge left_edge = last_char(left, before), right_edge = first_char(right, after);
    if (left_edge == Edge::kOther || right_edge == Edge::kOther) return;
    if (left_edge == Edge::kPart || right_edge == Edge::kPart) {
      byte_joins_[static_cast<unsigned char>(left.back()) << 8 |
                  static_cast<unsigned char>(right[0])] = true;
      return;
    }
    const size_t bit = join_bit(before.value, after.value);
    joins_[bit / 64] |= uint64_t{1} << (bit % 64);
  });
  if (options_.ignore_merges) find_shortcuts();
}

/// ignore_merges takes a piece that is a token as it stands. Where the merges lead there as well, a
/// piece may be cut without asking; the others have to be looked up first.
void BpeModel::find_shortcuts() {
  Scratch scratch;
  std::string bytes;
  for (size_t i = 0; i < vocabulary_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!vocabulary_.has(id)) continue;
    const std::string_view token = vocabulary_.token(id);
    bytes.clear();
    if (!append_bytes_of_token(token, bytes) || bytes.size() < 2) continue;
    if (!begins_wide(bytes) || !is_valid_utf8(bytes)) continue;
    scratch.ids.clear();
    encode_uncached(bytes, scratch, /*part=*/true);
    if (scratch.ids.size() != 1) shortcuts_.add(bytes, vocabulary_.find(token));
  }
}

void BpeModel::use_raw_bytes() {
  raw_bytes_ = true;
  ids_tell_symbols_ = true;
  find_joins_of_bytes();
}

bool BpeModel::may_join(std::string_view piece, size_t at, CodePoint left, CodePoint right) const {
  const size_t bit = join_bit(left.value, right.value);
  if (joins_[bit / 64] >> (bit % 64) & 1) return true;
  if (!raw_bytes_) return false;
  return left.length < 3 || right.length < 3 ||
         byte_joins_[static_cast<unsigned char>(piece[at - 1]) << 8 |
                     static_cast<unsigned char>(piece[at])];
}

void BpeModel::encode_by_boundaries(std::string_view piece, size_t readable,
                                    Scratch& scratch) const {
  if (shortcuts_.count() > 0) {
    if (const TokenId id = shortcuts_.find(piece); id >= 0) return scratch.ids.push(id);
  }
  size_t begin = 0;
  CodePoint left = decode_utf8(piece, 0);
  for (size_t at = left.length; at < piece.size();) {
    const CodePoint right = decode_utf8(piece, at);
    if (!may_join(piece, at, left, right)) {
      encode_word(piece.substr(begin, at - begin), readable - begin, scratch, /*part=*/true);
      begin = at;
    }
    at += right.length;
    left = right;
  }
  encode_word(piece.substr(begin), readable - begin, scratch, /*part=*/true);
}

void BpeModel::encode_and_remember(std::string_view word, const PieceCache::Key& key,
                                   Scratch& scratch, bool part) const {
  const size_t begin = scratch.ids.size();
  encode_uncached(word, scratch, part);
  scratch.remember(key, begin);
}

void BpeModel::encode_uncached(std::string_view word, Scratch& scratch, bool part) const {
  if (options_.ignore_merges && !part) {
    std::string_view token = word;
    if (raw_bytes_) {
      scratch.piece.clear();
      append_byte_level(word, scratch.piece);
      token = scratch.piece;
    }
    if (const TokenId id = vocabulary_.find(token); id >= 0) return scratch.ids.push(id);
  }
  std::vector<TokenId>& symbols = scratch.merge.symbols;
  symbols.clear();
  if (raw_bytes_) {
    symbols_of_bytes(word, scratch);
  } else {
    symbols_of_chars(word, scratch);
  }
  if (symbols.empty()) return;
  if (symbols.size() <= kFewSymbols) {
    merge_few(scratch);
  } else {
    merge_long(scratch);
  }
}

void BpeModel::symbols_of_bytes(std::string_view word, Scratch& scratch) const {
  const size_t count = word.size();
  std::vector<TokenId>& symbols = scratch.merge.symbols;
  std::vector<uint32_t>& ranks = scratch.merge.ranks;
  symbols.resize(count);
  ranks.resize(count);
  const auto* bytes = reinterpret_cast<const unsigned char*>(word.data());
  for (size_t i = 0; i + 1 < count; ++i) {
    symbols[i] = byte_ids_[bytes[i]];
    ranks[i] = byte_pair_rank_[bytes[i] << 8 | bytes[i + 1]];
  }
  symbols[count - 1] = byte_ids_[bytes[count - 1]];
  ranks[count - 1] = MergeTable::kNone;
}

TokenId BpeModel::id_of_char(std::string_view c, char32_t value, bool first, bool last,
                             std::string& storage) const {
  const bool prefixed = !first && !options_.continuing_subword_prefix.empty();
  const bool suffixed = last && !options_.end_of_word_suffix.empty();
  if (!prefixed && !suffixed) {
    return value < kCharIds ? char_ids_[value] : vocabulary_.find(c);
  }
  storage.clear();
  if (prefixed) storage += options_.continuing_subword_prefix;
  storage += c;
  if (suffixed) storage += options_.end_of_word_suffix;
  return vocabulary_.find(storage);
}

bool BpeModel::push_byte_tokens(std::string_view c, std::vector<TokenId>& symbols) const {
  for (const char b : c) {
    if (fallback_ids_[static_cast<unsigned char>(b)] < 0) return false;
  }
  for (const char b : c) symbols.push_back(fallback_ids_[static_cast<unsigned char>(b)]);
  return true;
}

void BpeModel::symbols_of_chars(std::string_view word, Scratch& scratch) const {
  std::vector<TokenId>& symbols = scratch.merge.symbols;
  std::vector<uint32_t>& ranks = scratch.merge.ranks;
  bool pending_unk = false;
  std::string affixed;
  for (size_t i = 0; i < word.size();) {
    const CodePoint c = decode_utf8(word, i);
    const std::string_view text = word.substr(i, c.length);
    const bool last = i + c.length == word.size();
    const TokenId id = id_of_char(text, c.value, i == 0, last, affixed);
    const bool has_affix = !affixed.empty();
    i += c.length;
    if (id >= 0) {
      if (pending_unk) symbols.push_back(unk_id_);
      pending_unk = false;
      symbols.push_back(id);
    } else if (options_.byte_fallback &&
               push_byte_tokens(has_affix ? std::string_view(affixed) : text, symbols)) {
      // An unknown character waiting to be fused stays after these bytes: HF orders them so.
    } else if (unk_id_ >= 0) {
      if (pending_unk && !options_.fuse_unk) symbols.push_back(unk_id_);
      pending_unk = true;
    }
    affixed.clear();
  }
  if (pending_unk) symbols.push_back(unk_id_);
  const size_t count = symbols.size();
  ranks.assign(count, MergeTable::kNone);
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = merges_.rank(symbols[i], symbols[i + 1]);
}

}  // namespace danlu::text
