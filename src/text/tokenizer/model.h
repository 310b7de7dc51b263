// text/tokenizer/model.h: from one piece of text to token ids ("model" of tokenizer.json).
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer/lattice.h"
#include "text/tokenizer/piece_cache.h"
#include "text/tokenizer/vocabulary.h"

namespace danlu::text {

/// Ids being collected. Grows without clearing what it grows into.
class IdBuffer {
 public:
  void clear() { size_ = 0; }
  void push(TokenId id) {
    ensure(1);
    data_[size_++] = id;
  }
  void append(const TokenId* ids, size_t count) {
    if (count == 0) return;
    ensure(count);
    std::memcpy(data_.get() + size_, ids, count * sizeof(TokenId));
    size_ += count;
  }
  /// Copies kMaxCachedIds ids whatever `count` is: a fixed copy costs less than a counted one.
  void append_cached(const PieceCache::Entry& entry) {
    ensure(PieceCache::kMaxIds);
    std::memcpy(data_.get() + size_, entry.ids, sizeof entry.ids);
    size_ += static_cast<size_t>(entry.count);
  }
  /// Leaves one of every run of `id`.
  void join_runs(TokenId id) {
    TokenId* end = std::unique(data_.get(), data_.get() + size_,
                               [id](TokenId a, TokenId b) { return a == id && b == id; });
    size_ = static_cast<size_t>(end - data_.get());
  }
  const TokenId* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  void ensure(size_t extra) {
    if (size_ + extra > capacity_) grow(extra);
  }
  void grow(size_t extra) {
    const size_t capacity = std::max(capacity_ * 2, size_ + extra + 1024);
    std::unique_ptr<TokenId[]> data(new TokenId[capacity]);
    if (size_) std::memcpy(data.get(), data_.get(), size_ * sizeof(TokenId));
    data_ = std::move(data);
    capacity_ = capacity;
  }
  std::unique_ptr<TokenId[]> data_;
  size_t size_ = 0, capacity_ = 0;
};

/// A token of a word, and its first symbol.
struct BpeToken {
  TokenId id;
  uint32_t begin;
};

/// Working memory of BPE merging (bpe_merge.cpp).
struct MergeScratch {
  std::vector<TokenId> symbols;
  std::vector<uint32_t> ranks;  ///< of the pair that each symbol begins
  // Symbols and ranks of the stretch at hand, its neighbours, and the queue of candidate merges.
  std::vector<TokenId> part_symbols;
  std::vector<uint32_t> part_ranks, next, previous;
  std::vector<uint64_t> queue;
  std::vector<BpeToken> tokens, window;
  std::vector<uint64_t> joints;  ///< remembered answers of stay_apart, direct-mapped
};

/// Working memory of one encode call, reused by later ones.
struct Scratch {
  PieceCache cache;
  IdBuffer ids;
  std::string normalized, repaired, piece;
  MergeScratch merge;
  Lattice<float> float_lattice;    ///< SentencePiece's sums
  Lattice<double> double_lattice;  ///< HF's

  /// Caches the ids from ids.data()[begin] on, unless they are too many.
  void remember(const PieceCache::Key& key, size_t begin) {
    const size_t count = ids.size() - begin;
    if (count > PieceCache::kMaxIds) return;
    PieceCache::Entry& entry = cache.add(key);
    entry.count = static_cast<int32_t>(count);
    std::copy_n(ids.data() + begin, count, entry.ids);
  }
};

/// Immutable and thread-safe.
class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of one non-empty piece to scratch.ids.
  virtual void encode_piece(std::string_view piece, Scratch& scratch) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

}  // namespace danlu::text
