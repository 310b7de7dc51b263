#include "text/tokenizer/regex.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <mutex>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/char_class.h"
#include "text/tokenizer/unicode_version.h"
#include "text/tokenizer/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace danlu::text {

namespace {

// Oniguruma's \w in Unicode: Alphabetic, marks, decimal numbers, connector punctuation. Outside of
// a class it also takes Latin-1's superscripts and fractions.
constexpr std::string_view kWordItems = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWordAlone =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

/// Rewrites an Oniguruma pattern so that PCRE2 (UTF, UCP, MULTILINE) matches the same text.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& origin)
      : pattern_(pattern), origin_(origin) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        bracket();
      } else if (c == '(' && pattern_.substr(at_, 2) == "(?") {
        group();
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw ModelError(
        tr("{}: the regular expression \"{}\" uses {} at position {}, which is "
           "not supported",
           origin_, pattern_, what, at_));
  }

  void escape(bool in_class) {
    if (at_ + 1 >= pattern_.size()) fail("a lone backslash");
    const char c = pattern_[at_ + 1];
    at_ += 2;
    switch (c) {
      // PCRE2 counts U+180E as space even with UCP; White_Space is what Oniguruma means.
      case 's':
        out_ += R"(\p{White_Space})";
        return;
      case 'S':
        out_ += R"(\P{White_Space})";
        return;
      case 'd':
        out_ += R"(\p{Nd})";
        return;
      case 'D':
        out_ += R"(\P{Nd})";
        return;
      case 'h':
        out_ += in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
        return;
      case 'H':
        if (in_class) fail("\\H inside a class");
        out_ += "[^0-9a-fA-F]";
        return;
      case 'w':
        out_ += in_class ? std::string(kWordItems) : fmt::format("[{}]", kWordAlone);
        return;
      case 'W':
        if (in_class) fail("\\W inside a class");
        out_ += fmt::format("[^{}]", kWordAlone);
        return;
      case 'b':
        if (in_class) {
          out_ += "\\x08";
        } else {
          out_ += fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWordAlone);
        }
        return;
      case 'B':
        out_ += fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWordAlone);
        return;
      default:
        out_ += '\\';
        out_ += c;
    }
  }

  void bracket() {
    out_ += '[';
    ++at_;
    if (at_ < pattern_.size() && pattern_[at_] == '^') {
      out_ += '^';
      ++at_;
    }
    if (at_ < pattern_.size() && pattern_[at_] == ']') {
      out_ += "\\]";
      ++at_;
    }
    class_items(0);
    out_ += ']';
  }

  /// Up to the class's end, which is passed. A class inside is a union with it.
  void class_items(int depth) {
    constexpr int kDeepest = 16;
    if (depth > kDeepest) fail("classes inside classes");
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        escape(true);
      } else if (pattern_.substr(at_, 2) == "[:") {
        const size_t end = pattern_.find(":]", at_);
        if (end == std::string_view::npos) fail("an open POSIX bracket");
        out_ += pattern_.substr(at_, end + 2 - at_);
        at_ = end + 2;
      } else if (pattern_.substr(at_, 2) == "[^") {
        fail("a negated class inside a class");
      } else if (pattern_[at_] == '[') {
        ++at_;
        class_items(depth + 1);
      } else if (pattern_.substr(at_, 2) == "&&") {
        fail("a class intersection");
      } else {
        out_ += pattern_[at_++];
      }
    }
    if (at_ >= pattern_.size()) fail("an open class");
    ++at_;
  }

  /// Inline options: Oniguruma's (?m) is "dot matches newline", which PCRE2 calls (?s).
  void group() {
    out_ += "(?";
    at_ += 2;
    size_t end = at_;
    while (end < pattern_.size() &&
           std::string_view("imx-").find(pattern_[end]) != std::string_view::npos)
      ++end;
    if (end == at_ || end >= pattern_.size() || (pattern_[end] != ':' && pattern_[end] != ')'))
      return;
    for (; at_ < end; ++at_) out_ += pattern_[at_] == 'm' ? 's' : pattern_[at_];
  }

  std::string_view pattern_;
  const std::string& origin_;
  std::string out_;
  size_t at_ = 0;
};

/// Characters that every PCRE2 knows: of three bytes in UTF-8, and of four where the category has
/// such.
struct StandIn {
  int category;
  char32_t three_bytes, four_bytes;
};
constexpr StandIn kStandIns[] = {
    {UTF8PROC_CATEGORY_LU, 0x1E00, 0x10400}, {UTF8PROC_CATEGORY_LL, 0x1E01, 0x10428},
    {UTF8PROC_CATEGORY_LT, 0x1F88, 0x1F88},  {UTF8PROC_CATEGORY_LM, 0x1D2C, 0x16B40},
    {UTF8PROC_CATEGORY_LO, 0xA000, 0x10280}, {UTF8PROC_CATEGORY_MN, 0x1AB0, 0x101FD},
    {UTF8PROC_CATEGORY_MC, 0x1B04, 0x11000}, {UTF8PROC_CATEGORY_ND, 0x1B50, 0x104A0},
    {UTF8PROC_CATEGORY_NL, 0x2160, 0x10140}, {UTF8PROC_CATEGORY_NO, 0x2070, 0x10107},
    {UTF8PROC_CATEGORY_PD, 0x2010, 0x10EAD}, {UTF8PROC_CATEGORY_PO, 0x2020, 0x10100},
    {UTF8PROC_CATEGORY_SM, 0x2200, 0x1D6C1}, {UTF8PROC_CATEGORY_SC, 0x20A0, 0x20A0},
    {UTF8PROC_CATEGORY_SO, 0x2100, 0x1D100}, {UTF8PROC_CATEGORY_CF, 0x2060, 0x1D173},
    {UTF8PROC_CATEGORY_CN, 0x2FE0, 0xEFFFD},
};

/// An old character of the same category, as Oniguruma (Unicode 16) knows it, and the same length.
char32_t stand_in(char32_t c) {
  const int category = category_as_of(c, kRegexUnicode);
  // Ideographs beyond the basic plane are a script of their own to patterns.
  if (category == UTF8PROC_CATEGORY_LO && c >= 0x20000) return 0x20000;
  for (const StandIn& known : kStandIns) {
    if (known.category == category) return c >= 0x10000 ? known.four_bytes : known.three_bytes;
  }
  return c;
}

struct MatchBuffers {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
};

}  // namespace

struct Regex::State {
  std::string pattern;
  pcre2_code* code = nullptr;
  bool jit = false;
  std::mutex mutex;
  std::vector<MatchBuffers> idle;

  MatchBuffers take() {
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        const MatchBuffers buffers = idle.back();
        idle.pop_back();
        return buffers;
      }
    }
    MatchBuffers buffers;
    buffers.data = pcre2_match_data_create(1, nullptr);
    buffers.context = pcre2_match_context_create(nullptr);
    // Long runs under a backtracking pattern need more than the 32 kB PCRE2 takes from the stack.
    buffers.stack = pcre2_jit_stack_create(64 << 10, 64 << 20, nullptr);
    pcre2_jit_stack_assign(buffers.context, nullptr, buffers.stack);
    return buffers;
  }
  void give(const MatchBuffers& buffers) {
    const std::lock_guard lock(mutex);
    idle.push_back(buffers);
  }
  ~State() {
    for (const MatchBuffers& buffers : idle) {
      pcre2_match_data_free(buffers.data);
      pcre2_match_context_free(buffers.context);
      pcre2_jit_stack_free(buffers.stack);
    }
    if (code) pcre2_code_free(code);
  }
};

Regex::Regex(std::string_view pattern, const std::string& origin)
    : state_(std::make_unique<State>()) {
  state_->pattern = pattern;
  const std::string translated = Translator(pattern, origin).run();
  int error = 0;
  PCRE2_SIZE where = 0;
  state_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &where, nullptr);
  if (!state_->code) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    throw ModelError(tr("{}: cannot read the regular expression \"{}\": {} at position {}", origin,
                        pattern, reinterpret_cast<const char*>(message), where));
  }
  state_->jit = pcre2_jit_compile(state_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;

std::string_view Regex::with_stand_ins(std::string_view text, std::string& storage) {
  const uint16_t* table = char_class_table();
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const CodePoint c = decode_utf8(text, i);
    if (char_class(table, c.value) & kRecent) {
      if (storage.empty()) storage.assign(text);
      std::string other;
      append_utf8(stand_in(c.value), other);
      if (other.size() == c.length) storage.replace(i, c.length, other);
    }
    i += c.length;
  }
  return storage.empty() ? text : std::string_view(storage);
}

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  const MatchBuffers buffers = state_->take();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data() ? text.data() : "");
  const int rc = state_->jit ? pcre2_jit_match(state_->code, subject, text.size(), from,
                                               PCRE2_NO_UTF_CHECK, buffers.data, buffers.context)
                             : pcre2_match(state_->code, subject, text.size(), from,
                                           PCRE2_NO_UTF_CHECK, buffers.data, buffers.context);
  if (rc >= 0) {
    const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(buffers.data);
    begin = ovector[0];
    end = ovector[1];
  }
  state_->give(buffers);
  if (rc >= 0 && begin > end) end = begin;  // \K inside a look-ahead
  if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(rc, message, sizeof message);
    throw ModelError(
        tr("matching \"{}\" failed: {}", state_->pattern, reinterpret_cast<const char*>(message)));
  }
  return rc >= 0;
}

}  // namespace danlu::text
