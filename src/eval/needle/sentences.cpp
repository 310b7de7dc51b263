#include "eval/needle/sentences.h"

#include "text/tokenizer/utf8.h"

namespace danlu::eval {
namespace {

bool is_one_of(char32_t c, std::u32string_view set) { return set.find(c) != set.npos; }

bool is_blank(char32_t c) { return is_one_of(c, U" \t\u00A0\u3000"); }
bool is_line_end(char32_t c) { return c == '\n' || c == '\r'; }

class SentenceWalk {
 public:
  explicit SentenceWalk(std::string_view text) : text_(text) {}

  /// The end of the sentence that begins at `begin`.
  size_t end_of(size_t begin, size_t most_characters) const {
    size_t last_blank = 0, characters = 0;
    for (size_t at = begin; at < text_.size();) {
      const auto [c, length] = text::decode_utf8(text_, at);
      if (is_line_end(c)) return behind_lines(at);
      if (is_one_of(c, U".!?。！？；")) {
        const size_t closed = behind_closers(at + length);
        const bool wide = is_one_of(c, U"。！？；");
        if (wide || closed == text_.size() || is_space(closed)) return behind_lines(closed);
      }
      if (is_blank(c) && at > begin) last_blank = at;
      if (++characters > most_characters) return last_blank ? last_blank : at;
      at += length;
    }
    return text_.size();
  }

 private:
  char32_t at(size_t place) const { return text::decode_utf8(text_, place).value; }
  bool is_space(size_t place) const { return is_blank(at(place)) || is_line_end(at(place)); }
  size_t behind_closers(size_t place) const {
    while (place < text_.size() && is_one_of(at(place), U".!?。！？\"')]”’」』）】》"))
      place += text::decode_utf8(text_, place).length;
    return place;
  }
  size_t behind_lines(size_t place) const {
    size_t end = place;
    while (place < text_.size() && is_space(place)) {
      const bool line = is_line_end(at(place));
      place += text::decode_utf8(text_, place).length;
      if (line) end = place;
    }
    return end;
  }

  std::string_view text_;
};

}  // namespace

std::vector<size_t> sentence_ends(std::string_view text, size_t most_characters) {
  const SentenceWalk walk(text);
  std::vector<size_t> ends;
  for (size_t at = 0; at < text.size(); at = ends.back())
    ends.push_back(walk.end_of(at, most_characters));
  return ends;
}

}  // namespace danlu::eval
