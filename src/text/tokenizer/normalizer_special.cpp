// The two normalizers that are rule sets of their own: BERT's, and SentencePiece's compiled map.
#include <utf8proc.h>

#include <cstring>
#include <vector>

#include "text/tokenizer/char_class.h"
#include "text/tokenizer/double_array.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/unicode_version.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

bool is_cjk_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class BertNormalizer final : public Normalizer {
 public:
  BertNormalizer(bool clean, bool chinese, bool strip_accents, bool lowercase)
      : clean_(clean), chinese_(chinese), strip_accents_(strip_accents), lowercase_(lowercase) {}

  void rewrite(std::string& text, size_t) const override {
    if (clean_ || chinese_) {
      std::string out;
      out.reserve(text.size() * 2);
      for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_utf8(text, i);
        i += c.length;
        append_cleaned(c.value, out);
      }
      text = std::move(out);
    }
    if (strip_accents_) {
      apply_normalization_form(NormalizationForm::kNfd, text);
      std::string out;
      for (size_t i = 0; i < text.size();) {
        const CodePoint c = decode_utf8(text, i);
        if (category_as_of(c.value, kCategoriesUnicode) != UTF8PROC_CATEGORY_MN) {
          out.append(text, i, c.length);
        }
        i += c.length;
      }
      text = std::move(out);
    }
    if (lowercase_) apply_lowercase(text);
  }

 private:
  void append_cleaned(char32_t c, std::string& out) const {
    if (clean_) {
      const bool kept_control = c == '\t' || c == '\n' || c == '\r';
      const int category = category_as_of(c, kCategoriesUnicode);
      const bool other = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                         category == UTF8PROC_CATEGORY_CO;
      if (c == 0 || c == 0xFFFD || (other && !kept_control)) return;
      if (char_class(c) & kSpace) c = ' ';
    }
    if (chinese_ && is_cjk_ideograph(c)) {
      out += ' ';
      append_utf8(c, out);
      out += ' ';
    } else {
      append_utf8(c, out);
    }
  }

  bool clean_, chinese_, strip_accents_, lowercase_;
};

class PrecompiledNormalizer final : public Normalizer {
 public:
  explicit PrecompiledNormalizer(CharacterMap map) : map_(std::move(map)) {}

  void rewrite(std::string& text, size_t max_bytes) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = grapheme_end(text, begin);
      append_grapheme(std::string_view(text).substr(begin, end - begin), max_bytes, out);
      begin = end;
    }
    text = std::move(out);
  }

 private:
  static size_t grapheme_end(std::string_view text, size_t begin) {
    CodePoint left = decode_utf8(text, begin);
    size_t at = begin + left.length;
    utf8proc_int32_t state = 0;
    while (at < text.size()) {
      const CodePoint right = decode_utf8(text, at);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(left.value),
                                           static_cast<utf8proc_int32_t>(right.value), &state)) {
        break;
      }
      at += right.length;
      left = right;
    }
    return at;
  }

  // A whole grapheme is replaced by what its shortest matching prefix maps to: so HF does it.
  void append_grapheme(std::string_view grapheme, size_t max_bytes, std::string& out) const {
    if (out.size() > max_bytes) throw TooLong{};
    if (grapheme.size() < 6 && append_mapped(grapheme, out)) return;
    for (size_t i = 0; i < grapheme.size();) {
      if (out.size() > max_bytes) throw TooLong{};
      const size_t length = decode_utf8(grapheme, i).length;
      const std::string_view part = grapheme.substr(i, length);
      if (!append_mapped(part, out)) out += part;
      i += length;
    }
  }

  bool append_mapped(std::string_view chunk, std::string& out) const {
    int64_t at = -1;
    map_.trie.each_prefix(chunk.substr(0, chunk.find('\0')), [&](size_t, uint32_t value) {
      at = value;
      return false;
    });
    if (at < 0 || !map_.holds(static_cast<size_t>(at))) return false;
    out += map_.replacement(static_cast<size_t>(at));
    return true;
  }

  CharacterMap map_;
};

}  // namespace

std::unique_ptr<Normalizer> make_bert_normalizer(const Json& spec, const std::string& origin) {
  const bool lowercase = field_or(spec, "lowercase", true, origin);
  return std::make_unique<BertNormalizer>(field_or(spec, "clean_text", true, origin),
                                          field_or(spec, "handle_chinese_chars", true, origin),
                                          field_or(spec, "strip_accents", lowercase, origin),
                                          lowercase);
}

CharacterMap read_character_map(std::string_view charsmap, const std::string& origin) {
  if (charsmap.empty()) return {};
  uint32_t trie_bytes = 0;
  if (charsmap.size() >= 4) std::memcpy(&trie_bytes, charsmap.data(), 4);
  if (charsmap.size() < 4 || trie_bytes % 4 != 0 || trie_bytes > charsmap.size() - 4) {
    throw ModelError(
        tr("{}: the precompiled character map is damaged: it names a trie of "
           "{} bytes and has {}",
           origin, trie_bytes, charsmap.size()));
  }
  CharacterMap map{DoubleArray(charsmap.substr(4, trie_bytes)),
                   std::string(charsmap.substr(4 + trie_bytes))};
  if (!is_valid_utf8(map.replacements)) {
    throw ModelError(tr("{}: the precompiled character map is not UTF-8", origin));
  }
  return map;
}

std::unique_ptr<Normalizer> make_precompiled_normalizer(std::string charsmap,
                                                        const std::string& origin) {
  return std::make_unique<PrecompiledNormalizer>(read_character_map(charsmap, origin));
}

}  // namespace danlu::text
