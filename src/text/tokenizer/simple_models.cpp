#include "text/tokenizer/simple_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "text/tokenizer/prefix_tree.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

std::vector<PrefixTree::Entry> entries_of(const Vocabulary& vocabulary) {
  std::vector<PrefixTree::Entry> entries;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!vocabulary.has(id) || vocabulary.token(id).empty()) continue;
    // Where two ids have one text, the lookup's answer counts.
    if (vocabulary.find(vocabulary.token(id)) == id) entries.emplace_back(vocabulary.token(id), id);
  }
  return entries;
}

class UnigramModel final : public Model {
 public:
  UnigramModel(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options)
      : scores_(std::move(scores)), options_(options), tree_(entries_of(vocabulary)) {
    vocabulary_ = std::move(vocabulary);
    double lowest = std::numeric_limits<double>::infinity();
    for (const double score : scores_) lowest = std::min(lowest, score);
    unk_score_ = lowest - 10.0;  // sentencepiece's penalty for an unknown character
    for (int b = 0; b < 256; ++b) byte_ids_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));
  }

  void encode_piece(std::string_view piece, Scratch& scratch) const override {
    if (piece.size() > PieceCache::kMaxLength) return encode_uncached(piece, scratch);
    const PieceCache::Key key = PieceCache::make_key(piece, piece.size());
    if (const PieceCache::Entry* entry = scratch.cache.find(key))
      return scratch.ids.append_cached(*entry);
    const size_t begin = scratch.ids.size();
    encode_uncached(piece, scratch);
    scratch.remember(key, begin);
  }

 private:
  void encode_uncached(std::string_view piece, Scratch& scratch) const {
    search(piece, scratch.double_lattice);
    std::string_view unknown;  // a run of unknown characters, which become one token
    const auto push_run = [&] {
      if (!unknown.empty()) push_unknown(unknown, scratch);
      unknown = {};
    };
    scratch.double_lattice.each_piece([&](size_t begin, size_t end, TokenId id) {
      if (id == options_.unk_id) {
        const size_t first = begin - unknown.size();
        unknown = piece.substr(first, end - first);
      } else {
        push_run();
        scratch.ids.push(id);
      }
    });
    push_run();
  }

  void search(std::string_view piece, Lattice<double>& lattice) const {
    lattice.reset(piece.size());
    for (size_t begin = 0; begin < piece.size();) {
      const double here = lattice.score(begin);
      const size_t char_length = decode_utf8(piece, begin).length;
      bool has_single = false;
      tree_.each_prefix(piece, begin, [&](size_t length, TokenId id) {
        lattice.offer(begin, length, scores_[id] + here, id);
        if (length == char_length) has_single = true;
      });
      if (!has_single) {
        if (!options_.unk_id) {
          throw ModelError(tr("the Unigram model has no unknown token for \"{}\"",
                              piece.substr(begin, char_length)));
        }
        lattice.offer(begin, char_length, unk_score_ + here, *options_.unk_id);
      }
      begin += char_length;
    }
  }

  void push_unknown(std::string_view text, Scratch& scratch) const {
    if (const TokenId id = vocabulary_.find(text); id >= 0) return scratch.ids.push(id);
    if (options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char b) {
          return byte_ids_[static_cast<unsigned char>(b)] >= 0;
        })) {
      for (const char b : text) scratch.ids.push(byte_ids_[static_cast<unsigned char>(b)]);
      return;
    }
    scratch.ids.push(*options_.unk_id);
  }

  std::vector<double> scores_;
  UnigramOptions options_;
  PrefixTree tree_;
  double unk_score_ = 0;
  std::array<TokenId, 256> byte_ids_{};
};

class WordPieceModel final : public Model {
 public:
  WordPieceModel(Vocabulary vocabulary, WordPieceOptions options, std::string origin)
      : options_(std::move(options)), origin_(std::move(origin)) {
    vocabulary_ = std::move(vocabulary);
    unk_id_ = vocabulary_.find(options_.unk_token);
  }

  void encode_piece(std::string_view piece, Scratch& scratch) const override {
    size_t chars = 0;
    for (size_t i = 0; i < piece.size(); i += decode_utf8(piece, i).length) ++chars;
    if (chars > options_.max_input_chars_per_word) return push_unknown(scratch);
    std::vector<TokenId> found;
    std::string candidate;
    for (size_t begin = 0; begin < piece.size();) {
      size_t end = piece.size();
      TokenId id = -1;
      while (end > begin) {
        candidate.assign(begin > 0 ? options_.continuing_subword_prefix : "");
        candidate.append(piece.substr(begin, end - begin));
        id = vocabulary_.find(candidate);
        if (id >= 0) break;
        end = previous_char(piece, end);
      }
      if (id < 0) return push_unknown(scratch);
      found.push_back(id);
      begin = end;
    }
    scratch.ids.append(found.data(), found.size());
  }

 private:
  void push_unknown(Scratch& scratch) const {
    if (unk_id_ < 0) {
      throw ModelError(
          tr("{}: the unknown token \"{}\" is not in the vocabulary", origin_, options_.unk_token));
    }
    scratch.ids.push(unk_id_);
  }
  WordPieceOptions options_;
  std::string origin_;
  TokenId unk_id_ = -1;
};

class WordLevelModel final : public Model {
 public:
  WordLevelModel(Vocabulary vocabulary, const std::string& unk_token) {
    vocabulary_ = std::move(vocabulary);
    unk_id_ = vocabulary_.find(unk_token);
  }
  void encode_piece(std::string_view piece, Scratch& scratch) const override {
    const TokenId id = vocabulary_.find(piece);
    if (id >= 0) {
      scratch.ids.push(id);
    } else if (unk_id_ >= 0) {
      scratch.ids.push(unk_id_);
    }
  }

 private:
  TokenId unk_id_ = -1;
};

}  // namespace

std::unique_ptr<Model> make_unigram_model(Vocabulary vocabulary, std::vector<double> scores,
                                          UnigramOptions options, const std::string& origin) {
  if (scores.size() != vocabulary.size()) {
    throw ModelError(tr("{}: a Unigram vocabulary of {} ids has {} scores", origin,
                        vocabulary.size(), scores.size()));
  }
  if (options.unk_id && !vocabulary.has(*options.unk_id)) {
    throw ModelError(tr("{}: \"unk_id\" {} is not in the vocabulary of {} tokens", origin,
                        *options.unk_id, vocabulary.size()));
  }
  return std::make_unique<UnigramModel>(std::move(vocabulary), std::move(scores), options);
}

std::unique_ptr<Model> make_wordpiece_model(Vocabulary vocabulary, WordPieceOptions options,
                                            const std::string& origin) {
  return std::make_unique<WordPieceModel>(std::move(vocabulary), std::move(options), origin);
}

std::unique_ptr<Model> make_wordlevel_model(Vocabulary vocabulary, const std::string& unk_token) {
  return std::make_unique<WordLevelModel>(std::move(vocabulary), unk_token);
}

}  // namespace danlu::text
