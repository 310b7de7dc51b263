// data/readers/json_walk.h: JSON text checked and taken apart in one pass.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

namespace danlu::data {

/// How a walk over a value ended.
enum class JsonWalk {
  kWhole,   ///< it is well formed
  kCut,     ///< the text ends inside it, or where it may go on
  kFaulty,  ///< it is malformed, or an event was refused
};

/// Goes to the end of a string whose opening quote stands before `*at`, and past its closing quote.
/// Control characters must be escaped, surrogates come in pairs, and bytes are UTF-8.
JsonWalk skip_json_string(std::string_view text, size_t* at, bool* has_escapes);

/// What the string between these quotes says. REQUIRES: skip_json_string took it.
std::string unescaped_json(std::string_view raw);

/// The events of a walk, for who needs few of them. An event that says false ends the walk.
struct JsonEvents {
  /// raw: between the quotes.
  bool string(std::string_view, bool /*has_escapes*/) { return true; }
  bool key(std::string_view, bool /*has_escapes*/) { return true; }
  bool number(std::string_view) { return true; }
  /// 't', 'f' or 'n'.
  bool literal(char) { return true; }
  /// '{' or '['.
  bool open(char) { return true; }
  bool close(char) { return true; }
};

/// Walks over one value as RFC 8259 has it, however deep it nests; how large a number is, and
/// whether a key comes twice, is not looked at.
template <typename Events>
class JsonWalker {
 public:
  /// The value begins at `at`. is_all: nothing follows `text`.
  JsonWalker(std::string_view text, size_t at, bool is_all, Events& events)
      : text_(text), at_(at), is_all_(is_all), events_(events) {}

  JsonWalk walk() {
    JsonWalk step = value();
    while (step == JsonWalk::kWhole && !open_.empty()) step = next_member();
    return step;
  }
  /// The place after the value. REQUIRES: the walk gave kWhole.
  size_t at() const { return at_; }

 private:
  static JsonWalk taken(bool is_taken) { return is_taken ? JsonWalk::kWhole : JsonWalk::kFaulty; }
  bool is_end() const { return at_ == text_.size(); }
  bool is_digit(size_t at) const {
    return at < text_.size() && text_[at] >= '0' && text_[at] <= '9';
  }

  void skip_space() {
    while (!is_end()) {
      const char c = text_[at_];
      if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
      ++at_;
    }
  }

  /// A whole scalar, or the bracket that opens a container.
  JsonWalk value() {
    if (is_end()) return JsonWalk::kCut;
    const char c = text_[at_];
    switch (c) {
      case '{':
      case '[':
        ++at_;
        open_.push_back(c);
        is_empty_ = true;
        return taken(events_.open(c));
      case '"': {
        std::string_view raw;
        bool has_escapes = false;
        const JsonWalk step = quoted(&raw, &has_escapes);
        return step == JsonWalk::kWhole ? taken(events_.string(raw, has_escapes)) : step;
      }
      case 't':
        return literal("true");
      case 'f':
        return literal("false");
      case 'n':
        return literal("null");
      default:
        return number();
    }
  }

  /// The next member of the innermost container, or its end.
  JsonWalk next_member() {
    skip_space();
    if (is_end()) return JsonWalk::kCut;
    const bool in_object = open_.back() == '{';
    if (text_[at_] == (in_object ? '}' : ']')) {
      const char closed = text_[at_++];
      open_.pop_back();
      is_empty_ = false;
      return taken(events_.close(closed));
    }
    if (!is_empty_) {
      if (text_[at_] != ',') return JsonWalk::kFaulty;
      ++at_;
      skip_space();
    }
    is_empty_ = false;
    if (in_object) {
      if (const JsonWalk step = key(); step != JsonWalk::kWhole) return step;
    }
    return value();
  }

  JsonWalk key() {
    if (is_end()) return JsonWalk::kCut;
    if (text_[at_] != '"') return JsonWalk::kFaulty;
    std::string_view raw;
    bool has_escapes = false;
    if (const JsonWalk step = quoted(&raw, &has_escapes); step != JsonWalk::kWhole) return step;
    if (!events_.key(raw, has_escapes)) return JsonWalk::kFaulty;
    skip_space();
    if (is_end()) return JsonWalk::kCut;
    if (text_[at_++] != ':') return JsonWalk::kFaulty;
    skip_space();
    return JsonWalk::kWhole;
  }

  JsonWalk quoted(std::string_view* raw, bool* has_escapes) {
    const size_t begin = ++at_;
    const JsonWalk step = skip_json_string(text_, &at_, has_escapes);
    if (step == JsonWalk::kWhole) *raw = text_.substr(begin, at_ - 1 - begin);
    return step;
  }

  JsonWalk literal(std::string_view word) {
    const std::string_view there = text_.substr(at_, word.size());
    if (!word.starts_with(there)) return JsonWalk::kFaulty;
    if (there != word) return JsonWalk::kCut;
    at_ += word.size();
    return end_of_scalar(events_.literal(word[0]));
  }

  JsonWalk number() {
    const size_t begin = at_;
    if (text_[at_] == '-') ++at_;
    const bool is_zero = !is_end() && text_[at_] == '0';
    if (!skip_digits()) return no_digit();
    if (is_zero && at_ - begin > (text_[begin] == '-' ? 2u : 1u)) return JsonWalk::kFaulty;
    if (!is_end() && text_[at_] == '.') {
      ++at_;
      if (!skip_digits()) return no_digit();
    }
    if (!is_end() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (!is_end() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (!skip_digits()) return no_digit();
    }
    return end_of_scalar(events_.number(text_.substr(begin, at_ - begin)));
  }

  /// False if there is none.
  bool skip_digits() {
    const size_t begin = at_;
    while (is_digit(at_)) ++at_;
    return at_ > begin;
  }
  JsonWalk no_digit() const { return is_end() ? JsonWalk::kCut : JsonWalk::kFaulty; }
  /// A number may go on after the end of the text.
  JsonWalk end_of_scalar(bool is_taken) const {
    if (is_taken && is_end() && !is_all_) return JsonWalk::kCut;
    return taken(is_taken);
  }

  std::string_view text_;
  size_t at_;
  bool is_all_;
  Events& events_;
  std::string open_;       ///< brackets
  bool is_empty_ = false;  ///< nothing stands after the innermost one yet
};

}  // namespace danlu::data
