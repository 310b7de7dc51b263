// text/tokenizer/bpe_trainer.h: makes a byte-level BPE vocabulary from text.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/scanners.h"

namespace danlu::text {

/// Pieces of text (raw bytes) with how often they were seen.
using PieceCounts = std::unordered_map<std::string, uint64_t>;

/// Counts the pieces of NFC-normalized `text`. Ill-formed UTF-8 is replaced first.
void count_pieces(std::string_view text, KnownPattern pattern, PieceCounts& counts);

/// The last place inside `text` where it may be cut without changing any piece that count_pieces
/// finds, whatever follows `text`; 0 if there is none.
size_t safe_cut(std::string_view text, KnownPattern pattern);

/// Merges of a vocabulary whose first 256 tokens are the byte alphabet in code point order.
struct TrainedBpe {
  std::vector<std::string> tokens;                  ///< by id, in the byte-level alphabet
  std::vector<std::pair<int32_t, int32_t>> merges;  ///< ids joined; the result is token 256 + index
};

struct BpeTrainerOptions {
  size_t num_tokens = 0;       ///< base vocabulary wanted, at least 256
  uint64_t min_frequency = 2;  ///< pairs seen less often are not merged
  /// Called now and then with the number of tokens so far; may be empty.
  std::function<void(size_t)> on_progress;
};

/// Greedy BPE: always the most frequent pair, the smaller (left, right) ids first on ties. The
/// result depends on `counts` alone. Fewer tokens than wanted if no pair is frequent enough.
TrainedBpe train_bpe(const PieceCounts& counts, const BpeTrainerOptions& options);

/// tokenizer.json in the shape of Qwen2's (pattern kQwen2), or GPT-2's or Llama 3's pre-tokenizer.
/// special_tokens get the ids after the base vocabulary.
Json tokenizer_json_of(const TrainedBpe& trained, KnownPattern pattern,
                       const std::vector<std::string>& special_tokens);

}  // namespace danlu::text
