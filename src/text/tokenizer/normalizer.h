// text/tokenizer/normalizer.h: what is done to text before it is split (tokenizer.json
// "normalizer").
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/tokenizer/double_array.h"

namespace danlu::text {

/// Rewrites text. Immutable and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// REQUIRES: text is valid UTF-8; so is the result.
  /// Errors: ModelError if the rules of the file blow the text up, step by step or at once. What
  /// real ones do (forms, byte level, a prefix) stays far below the limit: 32 times and 1 MiB.
  void normalize(std::string& text) const;
  /// The same for a part of a sequence, with the limit of the whole. Throws TooLong, perhaps only
  /// when the result is some times longer.
  struct TooLong {};
  virtual void rewrite(std::string& text, size_t max_bytes) const = 0;
  /// True if normalize would surely leave `text` as it is: saves the copy. May say false
  /// needlessly.
  virtual bool leaves_unchanged(std::string_view text) const { return text.empty(); }
};

/// Builds from the JSON value; null gives nullptr.
/// Types: NFC NFD NFKC NFKD Lowercase Strip StripAccents Replace Prepend BertNormalizer Nmt
/// Precompiled ByteLevel Sequence.
/// Errors: ModelError naming `origin` and the type or key.
std::unique_ptr<Normalizer> make_normalizer(const Json& spec, const std::string& origin);

/// SentencePiece's compiled rules: what each key becomes is a text in `replacements`, each of which
/// ends with a NUL.
struct CharacterMap {
  DoubleArray trie;
  std::string replacements;
  /// A damaged map could point outside, or into the middle of a character.
  bool holds(size_t at) const {
    return at < replacements.size() &&
           (static_cast<unsigned char>(replacements[at]) & 0xC0) != 0x80;
  }
  std::string_view replacement(size_t at) const { return replacements.c_str() + at; }
};
/// charsmap: the decoded bytes; empty gives an empty map. Errors: ModelError naming `origin`.
CharacterMap read_character_map(std::string_view charsmap, const std::string& origin);

/// SentencePiece's precompiled character map, as HF applies it (by grapheme, shortest match).
/// charsmap: the decoded bytes. Errors: ModelError naming `origin`.
std::unique_ptr<Normalizer> make_precompiled_normalizer(std::string charsmap,
                                                        const std::string& origin);
/// BertNormalizer. strip_accents follows lowercase when the file says null.
std::unique_ptr<Normalizer> make_bert_normalizer(const Json& spec, const std::string& origin);

/// Text put into a Unicode normalization form in place.
enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };
void apply_normalization_form(NormalizationForm form, std::string& text);
void apply_lowercase(std::string& text);

}  // namespace danlu::text
