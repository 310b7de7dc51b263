// The UnicodeScripts pre-tokenizer. Scripts are asked from PCRE2, which carries the Unicode tables.
#include <algorithm>
#include <string>
#include <vector>

#include "text/tokenizer/char_class.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

// clang-format off: a list of names reads better in paragraphs
constexpr const char* kScripts[] = {
    "Adlam", "Ahom", "Anatolian_Hieroglyphs", "Arabic", "Armenian", "Avestan", "Balinese", "Bamum",
    "Bassa_Vah", "Batak", "Bengali", "Bhaiksuki", "Bopomofo", "Brahmi", "Braille", "Buginese",
    "Buhid", "Canadian_Aboriginal", "Carian", "Caucasian_Albanian", "Chakma", "Cham", "Cherokee",
    "Chorasmian", "Common", "Coptic", "Cuneiform", "Cypriot", "Cypro_Minoan", "Cyrillic", "Deseret",
    "Devanagari", "Dives_Akuru", "Dogra", "Duployan", "Egyptian_Hieroglyphs", "Elbasan", "Elymaic",
    "Ethiopic", "Georgian", "Glagolitic", "Gothic", "Grantha", "Greek", "Gujarati", "Gunjala_Gondi",
    "Gurmukhi", "Han", "Hangul", "Hanifi_Rohingya", "Hanunoo", "Hatran", "Hebrew", "Hiragana",
    "Imperial_Aramaic", "Inherited", "Inscriptional_Pahlavi", "Inscriptional_Parthian", "Javanese",
    "Kaithi", "Kannada", "Katakana", "Kayah_Li", "Kharoshthi", "Khitan_Small_Script", "Khmer",
    "Khojki", "Khudawadi", "Lao", "Latin", "Lepcha", "Limbu", "Linear_A", "Linear_B", "Lisu",
    "Lycian", "Lydian", "Mahajani", "Makasar", "Malayalam", "Mandaic", "Manichaean", "Marchen",
    "Masaram_Gondi", "Medefaidrin", "Meetei_Mayek", "Mende_Kikakui", "Meroitic_Cursive",
    "Meroitic_Hieroglyphs", "Miao", "Modi", "Mongolian", "Mro", "Multani", "Myanmar", "Nabataean",
    "Nandinagari", "New_Tai_Lue", "Newa", "Nko", "Nushu", "Nyiakeng_Puachue_Hmong", "Ogham",
    "Ol_Chiki", "Old_Hungarian", "Old_Italic", "Old_North_Arabian", "Old_Permic", "Old_Persian",
    "Old_Sogdian", "Old_South_Arabian", "Old_Turkic", "Old_Uyghur", "Oriya", "Osage", "Osmanya",
    "Pahawh_Hmong", "Palmyrene", "Pau_Cin_Hau", "Phags_Pa", "Phoenician", "Psalter_Pahlavi",
    "Rejang", "Runic", "Samaritan", "Saurashtra", "Sharada", "Shavian", "Siddham", "SignWriting",
    "Sinhala", "Sogdian", "Sora_Sompeng", "Soyombo", "Sundanese", "Syloti_Nagri", "Syriac",
    "Tagalog", "Tagbanwa", "Tai_Le", "Tai_Tham", "Tai_Viet", "Takri", "Tamil", "Tangsa", "Tangut",
    "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Toto", "Ugaritic", "Vai",
    "Vithkuqi", "Wancho", "Warang_Citi", "Yezidi", "Yi", "Zanabazar_Square",
};
// clang-format on

constexpr char32_t kTableSize = 0x32000;

/// Index into kScripts + 1 of every code point; 0: unassigned.
const std::vector<uint8_t>& script_table() {
  static const std::vector<uint8_t> kTable = [] {
    static_assert(std::size(kScripts) < 255);
    std::vector<uint8_t> table(kTableSize, 0);
    std::string all;
    for (char32_t c = 0; c < kTableSize; ++c) {
      if (c < 0xD800 || c > 0xDFFF) append_utf8(c, all);
    }
    for (size_t s = 0; s < std::size(kScripts); ++s) {
      const Regex regex(std::string("\\p{sc:") + kScripts[s] + "}+", "UnicodeScripts");
      regex.find_all(all, [&](size_t begin, size_t end) {
        while (begin < end) {
          const CodePoint c = decode_utf8(all, begin);
          table[c.value] = static_cast<uint8_t>(s + 1);
          begin += c.length;
        }
      });
    }
    return table;
  }();
  return kTable;
}

class UnicodeScripts final : public PreTokenizer {
 public:
  UnicodeScripts() : table_(script_table()) {
    const auto index = [](std::string_view name) {
      const auto* at = std::find(std::begin(kScripts), std::end(kScripts), name);
      return static_cast<int>(at - kScripts) + 1;
    };
    common_ = index("Common");
    inherited_ = index("Inherited");
    han_ = index("Han");
    hiragana_ = index("Hiragana");
    katakana_ = index("Katakana");
  }

  void split(std::string_view text, bool at_start, PieceSink sink) const override {
    // As HF does it, what stands before the first character that is no space is dropped.
    size_t begin = std::string_view::npos;
    int last = -1;
    for (size_t i = 0; i < text.size();) {
      const CodePoint c = decode_utf8(text, i);
      const int script = script_of(c.value);
      if (script != kAny && script != last) {
        if (begin != std::string_view::npos) {
          sink(text.substr(begin, i - begin), at_start && begin == 0);
        }
        begin = i;
        last = script;
      }
      i += c.length;
    }
    if (begin != std::string_view::npos) sink(text.substr(begin), at_start && begin == 0);
  }

 private:
  static constexpr int kAny = -2;
  int script_of(char32_t c) const {
    if (c == ' ') return kAny;
    if (c == 0x30FC) return han_;
    // Common before later versions gave them to Armenian and Arabic.
    if (c == 0x589 || c == 0x61C) return common_;
    if (c >= 0xE0100 && c <= 0xE01EF) return inherited_;
    if (c == 0xE0001 || (c >= 0xE0020 && c <= 0xE007F)) return common_;
    // To HF's table a character without a script, or newer than Unicode 9, goes with any.
    const int script = c < kTableSize && !(char_class(c) & kPostNine) ? table_[c] : 0;
    if (script == 0) return kAny;
    return script == hiragana_ || script == katakana_ ? han_ : script;
  }
  const std::vector<uint8_t>& table_;
  int common_, inherited_, han_, hiragana_, katakana_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_unicode_scripts_pre_tokenizer() {
  return std::make_unique<UnicodeScripts>();
}

}  // namespace danlu::text
