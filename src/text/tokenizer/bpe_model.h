// text/tokenizer/bpe_model.h: byte-pair encoding.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/model.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

/// The merges by the pair they join.
class MergeTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Merge {
    TokenId left, right, result;
    uint32_t rank;  ///< the lowest goes first; of equal ones the leftmost
  };
  /// Where merges are of the same pair, the last one counts.
  void build(const std::vector<Merge>& merges);
  /// Rank of the merge of two tokens, or kNone.
  uint32_t rank(TokenId left, TokenId right) const { return slot_of(left, right).rank; }
  /// What the two become. REQUIRES: rank(left, right) != kNone.
  TokenId result(TokenId left, TokenId right) const { return slot_of(left, right).result; }
  /// Calls on_merge(left, right) for every pair.
  template <typename F>
  void each(F&& on_merge) const {
    for (const Slot& slot : slots_) {
      if (slot.rank != kNone) on_merge(slot.left, slot.right);
    }
  }

 private:
  struct alignas(16) Slot {
    TokenId left = -1, right = -1;
    uint32_t rank = kNone;
    TokenId result = -1;
  };
  const Slot& slot_of(TokenId left, TokenId right) const {
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash(left, right) & mask;; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if ((slot.left == left && slot.right == right) || slot.rank == kNone) return slot;
    }
  }
  static size_t hash(TokenId left, TokenId right) {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    return (key * 0x9E3779B97F4A7C15ull) >> 24;
  }
  std::vector<Slot> slots_;
};

/// What a BPE "model" of tokenizer.json says. Dropout is for training and is not kept.
struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix, end_of_word_suffix;
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
};

class BpeModel final : public Model {
 public:
  using Pair = std::pair<std::string_view, std::string_view>;
  /// merges: token texts, most important first. origin: for errors.
  /// Errors: ModelError if a merge names a token that the vocabulary lacks.
  BpeModel(Vocabulary vocabulary, const std::vector<Pair>& merges, BpeOptions options,
           const std::string& origin);
  /// The same of merges whose tokens and ranks are known. REQUIRES: their tokens are of the
  /// vocabulary.
  BpeModel(Vocabulary vocabulary, const std::vector<MergeTable::Merge>& merges, BpeOptions options);

  /// True if all 256 characters of the byte-level alphabet are tokens and words carry no affixes:
  /// then pieces may be given as raw bytes after use_raw_bytes.
  bool can_use_raw_bytes() const;
  /// From now on encode_piece takes raw bytes where the vocabulary means the byte-level alphabet.
  void use_raw_bytes();

  void encode_piece(std::string_view piece, Scratch& scratch) const override {
    encode_piece(piece, piece.size(), scratch);
  }
  /// `readable`: bytes that may be read from piece.data() (more makes the cache cheaper).
  void encode_piece(std::string_view piece, size_t readable, Scratch& scratch) const {
    if (joins_.empty() || (raw_bytes_ && !begins_wide(piece))) {
      encode_word(piece, readable, scratch);
    } else {
      encode_by_boundaries(piece, readable, scratch);
    }
  }

 private:
  /// True if the first or second character takes three bytes or more: only such text is worth
  /// cutting.
  static bool begins_wide(std::string_view piece) {
    return static_cast<unsigned char>(piece[0]) >= 0xE0 ||
           (piece.size() > 1 && static_cast<unsigned char>(piece[1]) >= 0xE0);
  }
  /// part: the word is a part of a piece, to which ignore_merges does not apply.
  void encode_word(std::string_view word, size_t readable, Scratch& scratch,
                   bool part = false) const {
    if (word.size() > PieceCache::kMaxLength) return encode_uncached(word, scratch, part);
    PieceCache::Key key = PieceCache::make_key(word, readable);
    if (part && options_.ignore_merges) key.words[3] |= PieceCache::kOtherKind;
    if (const PieceCache::Entry* entry = scratch.cache.find(key))
      return scratch.ids.append_cached(*entry);
    encode_and_remember(word, key, scratch, part);
  }
  void encode_and_remember(std::string_view word, const PieceCache::Key& key, Scratch& scratch,
                           bool part) const;
  void encode_uncached(std::string_view word, Scratch& scratch, bool part) const;
  void encode_by_boundaries(std::string_view piece, size_t readable, Scratch& scratch) const;
  void prepare(const std::vector<MergeTable::Merge>& merges);
  void find_joins_of_chars();
  void find_joins_of_bytes();
  void find_shortcuts();
  bool may_join(std::string_view piece, size_t at, CodePoint left, CodePoint right) const;

  void symbols_of_bytes(std::string_view word, Scratch& scratch) const;
  void symbols_of_chars(std::string_view word, Scratch& scratch) const;
  TokenId id_of_char(std::string_view c, char32_t value, bool first, bool last,
                     std::string& storage) const;
  bool push_byte_tokens(std::string_view c, std::vector<TokenId>& symbols) const;
  void merge_few(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  void merge_range(uint32_t first, uint32_t last, MergeScratch& merge,
                   std::vector<BpeToken>& out) const;
  void merge_range_by_scan(uint32_t first, uint32_t last, MergeScratch& merge,
                           std::vector<BpeToken>& out) const;
  void merge_range_by_queue(uint32_t first, uint32_t last, MergeScratch& merge,
                            std::vector<BpeToken>& out) const;
  bool stay_apart(BpeToken left, BpeToken right, uint32_t end, MergeScratch& merge) const;
  uint32_t merge_stretch(uint32_t begin, MergeScratch& merge) const;
  bool mend_joint(size_t joint, uint32_t end, MergeScratch& merge, size_t& merged) const;

  static size_t join_bit(char32_t left, char32_t right) {
    return ((left * 0x9E3779B1u) ^ (right * 0x85EBCA77u)) >> (32 - kJoinBits);
  }
  static constexpr int kJoinBits = 20;

  BpeOptions options_;
  MergeTable merges_;
  bool raw_bytes_ = false;
  bool ids_tell_symbols_ = false;  // a token is always made of the same symbols
  TokenId unk_id_ = -1;
  std::vector<TokenId> byte_ids_;      // [256] characters of the byte-level alphabet; -1: no token
  std::vector<TokenId> fallback_ids_;  // [256] "<0x00>" …; -1: no token
  std::vector<TokenId> char_ids_;      // tokens of one character below kCharIds; -1: no token
  std::vector<uint32_t> byte_pair_rank_;  // [256*256] merges of two bytes, raw bytes only
  // Bit set of (hashed) character pairs over which some merge joins. Between two characters not in
  // it no merge can ever happen, so that a text may be cut there. Empty: cutting is not sound.
  std::vector<uint64_t> joins_;
  // Raw bytes: merges of parts of characters, by the bytes on both sides of the cut.
  std::vector<bool> byte_joins_;
  // Raw bytes, ignore_merges: the tokens that their own merges do not lead to, by their bytes.
  Vocabulary shortcuts_;
  static constexpr char32_t kCharIds = 0x20000;
};

}  // namespace danlu::text
