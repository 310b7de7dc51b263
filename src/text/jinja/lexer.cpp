#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include "text/jinja/python_text.h"

namespace danlu::text::jinja {

namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// \r\n and \r become \n; one newline at the very end is dropped in chat templates.
std::string normalize_newlines(std::string_view source, Dialect dialect) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (dialect == Dialect::kChat && !out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name, Dialect dialect)
      : source_(normalize_newlines(source, dialect)),
        name_(name),
        trims_(dialect == Dialect::kChat) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) lex_data();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, int line) const {
    throw TemplateError(fmt::format("{}:{}: {}", name_, line, translated_filled(what)));
  }
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  bool at(std::string_view text) const {
    return std::string_view(source_).substr(position_).starts_with(text);
  }
  char peek(size_t offset = 0) const {
    return position_ + offset < source_.size() ? source_[position_ + offset] : '\0';
  }
  void advance(size_t count) {
    for (; count > 0; --count) line_ += source_[position_++] == '\n';
  }
  void skip_space() {
    size_t next = position_;
    while (next < source_.size() && is_python_space(next_code_point(source_, next))) {
      advance(next - position_);
    }
  }

  /// Where the next {{, {% or {# is.
  size_t find_tag() const {
    for (size_t i = source_.find('{', position_); i != std::string::npos;
         i = source_.find('{', i + 1)) {
      if (i + 1 >= source_.size()) break;
      const char c = source_[i + 1];
      if (c == '{' || c == '%' || c == '#') return i;
    }
    return source_.size();
  }

  /// Text before a tag, cut as its sign and lstrip_blocks demand.
  std::string_view text_before_tag(size_t tag, char kind, char sign) const {
    const std::string_view text = std::string_view(source_).substr(position_, tag - position_);
    if (sign == '-') return strip(text, false, true);
    if (sign == '+' || kind == '{' || !trims_) return text;
    const size_t line_start = text.rfind('\n') + 1;  // npos + 1 == 0
    if ((line_start > 0 || line_starting_) && strip(text.substr(line_start)).empty())
      return text.substr(0, line_start);
    return text;
  }

  void emit_data(std::string_view text) {
    if (!text.empty()) add(TokenKind::kData, std::string(text));
  }

  void lex_data() {
    const size_t tag = find_tag();
    if (tag == source_.size()) {
      emit_data(std::string_view(source_).substr(position_));
      advance(tag - position_);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    emit_data(text_before_tag(tag, kind, has_sign ? sign : '\0'));
    advance(tag - position_);
    const int start_line = line_;
    advance(has_sign ? 3 : 2);
    if (kind == '#') {
      lex_comment(start_line);
    } else if (kind == '%' && lex_raw(start_line)) {
      return;
    } else {
      add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
      lex_tag(kind == '%' ? '%' : '}', start_line);
    }
  }

  /// After a closing tag: white space goes with '-', one newline after a block or comment.
  void close_tag(char sign, bool trims_newline) {
    const size_t before = position_;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trims_newline && trims_ && peek() == '\n') {
      advance(1);
    }
    line_starting_ = position_ > before && source_[position_ - 1] == '\n';
  }

  void lex_comment(int start_line) {
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) fail("the comment {# is never closed", start_line);
    const char sign = end > position_ ? source_[end - 1] : '\0';
    advance(end + 2 - position_);
    close_tag(sign, true);
  }

  /// Matches `raw %}` after "{%"; then everything up to endraw is text.
  bool lex_raw(int start_line) {
    size_t i = position_;
    const auto skip = [&] {
      while (i < source_.size() && is_python_space(static_cast<unsigned char>(source_[i]))) ++i;
    };
    skip();
    if (source_.compare(i, 3, "raw") != 0) return false;
    i += 3;
    skip();
    const bool strips = source_.compare(i, 3, "-%}") == 0;
    if (!strips && source_.compare(i, 2, "%}") != 0) return false;
    advance(i + (strips ? 3 : 2) - position_);
    if (strips) skip_space();
    line_starting_ = source_[position_ - 1] == '\n';
    for (size_t tag = source_.find("{%", position_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      i = tag + 2;
      const char sign =
          i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i++] : '\0';
      skip();
      if (source_.compare(i, 6, "endraw") != 0) continue;
      i += 6;
      skip();
      const char end_sign =
          i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i++] : '\0';
      if (source_.compare(i, 2, "%}") != 0) continue;
      emit_data(text_before_tag(tag, '%', sign));
      advance(i + 2 - position_);
      close_tag(end_sign, true);
      return true;
    }
    fail("{% raw %} has no {% endraw %}", start_line);
  }

  /// Tokens up to the end of the tag. Inside brackets the end marker is not looked for: {{ {'a':
  /// {}} }}.
  void lex_tag(char end, int start_line) {
    const std::string closing = {end, '}'};
    std::string brackets;
    while (true) {
      skip_space();
      if (position_ >= source_.size())
        fail(end == '%' ? "{% is never closed" : "{{ is never closed", start_line);
      if (brackets.empty()) {
        const char sign = peek();
        const bool has_sign = (sign == '-' || (sign == '+' && end == '%')) &&
                              std::string_view(source_).substr(position_ + 1).starts_with(closing);
        if (has_sign || at(closing)) {
          add(end == '%' ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
          advance(has_sign ? 3 : 2);
          close_tag(has_sign ? sign : '\0', end == '%');
          return;
        }
      }
      lex_token(brackets);
    }
  }

  void lex_token(std::string& brackets) {
    const char c = peek();
    if (c == '\'' || c == '"') {
      lex_string(c);
    } else if (is_ascii_digit(c)) {
      lex_number();
    } else if (starts_name(c)) {
      size_t length = 1;
      while (starts_name(peek(length)) || is_ascii_digit(peek(length))) ++length;
      add(TokenKind::kName, source_.substr(position_, length));
      advance(length);
    } else {
      lex_operator(brackets);
    }
  }

  void lex_operator(std::string& brackets) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  ".",  ",",  ":",  "|",  "(", ")", "[", "]", "{", "}", ";"};
    for (const std::string_view op : kOperators) {
      if (!at(op)) continue;
      if (op == "(" || op == "[" || op == "{") brackets += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (brackets.empty() || brackets.back() != op[0])
          fail(fmt::format("unexpected '{}'", op), line_);
        brackets.pop_back();
      }
      add(TokenKind::kOperator, std::string(op));
      advance(op.size());
      return;
    }
    fail(fmt::format("unexpected character '{}'", peek()), line_);
  }

  /// 1, 1_000, 0x1f, 0o17, 0b11, 1.5, 1e3, 1.5e-3; a dot needs a digit after it, so 1.x stays an
  /// access.
  void lex_number() {
    size_t length = 0;
    const auto digits = [&](auto&& accepts) {
      while (accepts(peek(length)) || (peek(length) == '_' && accepts(peek(length + 1)))) ++length;
    };
    const auto is_hex = [](char c) {
      return is_ascii_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    };
    const char base = static_cast<char>(peek(1) | 0x20);
    bool is_float = false;
    if (peek() == '0' && (base == 'x' || base == 'o' || base == 'b') && is_hex(peek(2))) {
      length = 2;
      digits(is_hex);
    } else {
      digits(is_ascii_digit);
      if (peek(length) == '.' && is_ascii_digit(peek(length + 1))) {
        is_float = true;
        ++length;
        digits(is_ascii_digit);
      }
      const size_t sign = peek(length + 1) == '+' || peek(length + 1) == '-';
      if ((peek(length) | 0x20) == 'e' && is_ascii_digit(peek(length + 1 + sign))) {
        is_float = true;
        length += 1 + sign;
        digits(is_ascii_digit);
      }
    }
    std::string text;
    for (const char c : std::string_view(source_).substr(position_, length)) {
      if (c != '_') text += c;
    }
    add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    advance(length);
  }

  void lex_string(char quote) {
    const int start_line = line_;
    std::string value;
    advance(1);
    while (peek() != quote || position_ >= source_.size()) {
      if (position_ >= source_.size()) fail("a string is never closed", start_line);
      if (peek() == '\\' && position_ + 1 < source_.size()) {
        lex_escape(value);
      } else {
        value += peek();
        advance(1);
      }
    }
    advance(1);
    tokens_.push_back({TokenKind::kString, start_line, std::move(value)});
  }

  /// Python's string escapes; unknown ones stay as they are.
  void lex_escape(std::string& value) {
    static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
    const char c = peek(1);
    advance(2);
    if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
      value += kTo[simple];
    } else if (c == '\n') {
      return;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_hex_escape(c == 'x' ? 2 : c == 'u' ? 4 : 8, value);
    } else if (c >= '0' && c <= '7') {
      char32_t code = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && peek() >= '0' && peek() <= '7'; ++i, advance(1)) {
        code = code * 8 + static_cast<char32_t>(peek() - '0');
      }
      append_utf8(code, value);
    } else if (c == 'N') {
      fail("\\N{name} escapes are not supported; write the character", line_);
    } else {
      value += '\\';
      value += c;
    }
  }

  void append_hex_escape(int digits, std::string& value) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i, advance(1)) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (!is_ascii_digit(c) && !(lower >= 'a' && lower <= 'f')) {
        fail(fmt::format("an escape needs {} hexadecimal digits", digits), line_);
      }
      code = code * 16 + static_cast<char32_t>(is_ascii_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail("an escape names no character", line_);
    append_utf8(code, value);
  }

  std::string source_;
  const std::string& name_;
  const bool trims_;  ///< white space around blocks
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  ///< the text at position_ begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source, const std::string& name, Dialect dialect) {
  return Lexer(source, name, dialect).run();
}

}  // namespace danlu::text::jinja
