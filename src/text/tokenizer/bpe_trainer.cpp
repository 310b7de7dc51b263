#include "text/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/char_class.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

using TokenPair = uint64_t;
TokenPair make_pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
int32_t left_of(TokenPair pair) { return static_cast<int32_t>(pair >> 32); }
int32_t right_of(TokenPair pair) { return static_cast<int32_t>(pair); }

struct Word {
  std::vector<int32_t> symbols;
  uint64_t count;
};

struct PairInfo {
  int64_t count = 0;
  std::vector<uint32_t> words;  ///< where it was seen; may name a word twice or in vain
};

/// Most frequent first, then the smaller pair.
struct Candidate {
  int64_t count;
  TokenPair pair;
  bool operator<(const Candidate& o) const {
    return count != o.count ? count < o.count : pair > o.pair;
  }
};

/// Bytes in the order of the characters that stand for them.
std::vector<int> bytes_by_char() {
  std::vector<int> bytes(256);
  for (int b = 0; b < 256; ++b) bytes[b] = b;
  std::sort(bytes.begin(), bytes.end(),
            [](int a, int b) { return byte_to_char()[a] < byte_to_char()[b]; });
  return bytes;
}

class Trainer {
 public:
  Trainer(const PieceCounts& counts, TrainedBpe& result) : result_(result) {
    int32_t id_of_byte[256];
    for (const int byte : bytes_by_char()) {
      id_of_byte[byte] = static_cast<int32_t>(result.tokens.size());
      result.tokens.push_back(byte_to_utf8()[byte]);
    }
    std::vector<const PieceCounts::value_type*> sorted;
    for (const auto& item : counts) sorted.push_back(&item);
    std::sort(sorted.begin(), sorted.end(),
              [](const auto* a, const auto* b) { return a->first < b->first; });
    for (const auto* item : sorted) {
      if (item->first.size() < 2) continue;
      Word word{{}, item->second};
      for (const char c : item->first) {
        word.symbols.push_back(id_of_byte[static_cast<unsigned char>(c)]);
      }
      words_.push_back(std::move(word));
    }
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
        change(make_pair_key(word.symbols[i], word.symbols[i + 1]),
               static_cast<int64_t>(word.count), w);
      }
    }
    for (const auto& [pair, info] : pairs_) queue_.push({info.count, pair});
    changed_.clear();
  }

  /// Merges the best pair; false if none is frequent enough.
  bool step(uint64_t min_frequency) {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto it = pairs_.find(top.pair);
      if (it == pairs_.end() || it->second.count != top.count) continue;  // counted anew since
      if (top.count < static_cast<int64_t>(std::max<uint64_t>(min_frequency, 1))) return false;
      merge(top.pair);
      return true;
    }
    return false;
  }

 private:
  void change(TokenPair pair, int64_t by, uint32_t word) {
    PairInfo& info = pairs_[pair];
    info.count += by;
    if (by > 0 && (info.words.empty() || info.words.back() != word)) info.words.push_back(word);
    changed_.push_back(pair);
  }

  void merge(TokenPair pair) {
    const auto fresh = static_cast<int32_t>(result_.tokens.size());
    result_.merges.emplace_back(left_of(pair), right_of(pair));
    result_.tokens.push_back(result_.tokens[left_of(pair)] + result_.tokens[right_of(pair)]);
    std::vector<uint32_t> where = std::move(pairs_[pair].words);
    pairs_.erase(pair);
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    for (const uint32_t w : where) merge_in(w, pair, fresh);
    pairs_.erase(pair);
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const TokenPair touched : changed_) {
      const auto it = pairs_.find(touched);
      if (it == pairs_.end()) continue;
      if (it->second.count > 0) {
        queue_.push({it->second.count, touched});
      } else {
        pairs_.erase(it);
      }
    }
    changed_.clear();
  }

  void merge_in(uint32_t w, TokenPair pair, int32_t fresh) {
    auto& symbols = words_[w].symbols;
    const auto count = static_cast<int64_t>(words_[w].count);
    size_t kept = 0;
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool here =
          i + 1 < symbols.size() && symbols[i] == left_of(pair) && symbols[i + 1] == right_of(pair);
      if (!here) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept > 0) {
        change(make_pair_key(symbols[kept - 1], left_of(pair)), -count, w);
        change(make_pair_key(symbols[kept - 1], fresh), count, w);
      }
      if (i + 2 < symbols.size()) {
        change(make_pair_key(right_of(pair), symbols[i + 2]), -count, w);
        change(make_pair_key(fresh, symbols[i + 2]), count, w);
      }
      symbols[kept++] = fresh;
      ++i;
    }
    symbols.resize(kept);
  }

  TrainedBpe& result_;
  std::vector<Word> words_;
  std::unordered_map<TokenPair, PairInfo> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<TokenPair> changed_;
};

Json split_by(std::string_view regex) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", std::string(regex)}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

}  // namespace

void count_pieces(std::string_view text, KnownPattern pattern, PieceCounts& counts) {
  std::string storage;
  std::string normalized(sanitize_utf8(text, storage));
  apply_normalization_form(NormalizationForm::kNfc, normalized);
  const std::string_view view = normalized;
  std::string piece;
  Scanner(view).run(pattern, [&](size_t begin, size_t end) {
    piece.assign(view.substr(begin, end - begin));
    ++counts[piece];
  });
}

namespace {

/// True if the last character is white space. What is ill-formed becomes U+FFFD, which is none.
bool ends_in_space(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80)
    --at;
  size_t bad_length = 0;
  bool truncated = false;
  if (utf8_char_length(text, at, bad_length, truncated) != text.size() - at) return false;
  return char_class(decode_utf8(text, at).value) & kSpace;
}

/// True if pieces are the same where `text` ends before the byte `next`.
bool may_cut(std::string_view text, unsigned char next, KnownPattern pattern) {
  // An ASCII character keeps NFC from joining across.
  if (next >= 0x7F) return false;
  const bool is_space = char_class(next) & kSpace;
  // GPT-2's `\s+(?!\S)` sees what follows a run of spaces, so the run stays with it; no piece goes
  // on from another character to a space.
  if (pattern == KnownPattern::kGpt2) return is_space && !ends_in_space(text);
  // The others take a newline after a symbol into its piece, but all end after the last newline of
  // a run of spaces.
  return text.back() == '\n' && next > ' ';
}

}  // namespace

size_t safe_cut(std::string_view text, KnownPattern pattern) {
  for (size_t at = text.size(); at-- > 1;) {
    if (may_cut(text.substr(0, at), static_cast<unsigned char>(text[at]), pattern)) return at;
  }
  return 0;
}

TrainedBpe train_bpe(const PieceCounts& counts, const BpeTrainerOptions& options) {
  if (options.num_tokens < 256) {
    throw UsageError(
        tr("a byte-level vocabulary needs at least 256 tokens besides the special ones"));
  }
  TrainedBpe result;
  Trainer trainer(counts, result);
  while (result.tokens.size() < options.num_tokens && trainer.step(options.min_frequency)) {
    if (options.on_progress && result.tokens.size() % 256 == 0) {
      options.on_progress(result.tokens.size());
    }
  }
  return result;
}

Json tokenizer_json_of(const TrainedBpe& trained, KnownPattern pattern,
                       const std::vector<std::string>& special_tokens) {
  Json added = Json::array();
  int64_t next = static_cast<int64_t>(trained.tokens.size());
  for (const std::string& token : special_tokens) {
    added.push_back({{"id", next++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const auto byte_level = [](bool use_regex) -> Json {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", false},
            {"use_regex", use_regex}};
  };
  Json pre_tokenizer = byte_level(true);
  if (pattern != KnownPattern::kGpt2) {
    const std::string_view regex = pattern == KnownPattern::kLlama3 ? kLlama3Regex : kQwen2Regex;
    pre_tokenizer = {{"type", "Sequence"},
                     {"pretokenizers", Json::array({split_by(regex), byte_level(false)})}};
  }
  Json vocab = Json::object();
  for (size_t id = 0; id < trained.tokens.size(); ++id) vocab[trained.tokens[id]] = id;
  Json merges = Json::array();
  for (const auto& [left, right] : trained.merges) {
    merges.push_back(trained.tokens[left] + " " + trained.tokens[right]);
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", pre_tokenizer},
          {"post_processor", byte_level(false)},
          {"decoder", byte_level(false)},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", ""},
            {"end_of_word_suffix", ""},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", merges}}}};
}

}  // namespace danlu::text
