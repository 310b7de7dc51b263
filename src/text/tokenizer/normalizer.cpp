#include "text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <array>
#include <vector>

#include "base/progress.h"
#include "text/base64.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/char_class.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode_version.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

utf8proc_option_t options_of(NormalizationForm form) {
  int options = UTF8PROC_STABLE;
  if (form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc) {
    options |= UTF8PROC_COMPOSE;
  } else {
    options |= UTF8PROC_DECOMPOSE;
  }
  if (form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd) {
    options |= UTF8PROC_COMPAT;
  }
  return static_cast<utf8proc_option_t>(options);
}

void append_utf8proc(NormalizationForm form, std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> buffer(text.size() + 8);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto options = options_of(form);
  auto count = utf8proc_decompose(bytes, static_cast<utf8proc_ssize_t>(text.size()), buffer.data(),
                                  static_cast<utf8proc_ssize_t>(buffer.size()), options);
  if (count > static_cast<utf8proc_ssize_t>(buffer.size())) {
    buffer.resize(static_cast<size_t>(count));
    count = utf8proc_decompose(bytes, static_cast<utf8proc_ssize_t>(text.size()), buffer.data(),
                               count, options);
  }
  if (count < 0) throw InternalError(fmt::format("utf8proc: {}", utf8proc_errmsg(count)));
  count = utf8proc_normalize_utf32(buffer.data(), count, options);
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(static_cast<char32_t>(buffer[i]), out);
}

/// Characters newer than the normalizer's Unicode stay as they are and keep others apart.
void append_normalized(NormalizationForm form, std::string_view text, std::string& out) {
  const uint16_t* table = char_class_table();
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    const size_t next = i + c.length;
    if (char_class(table, c.value) & kPostNine) {
      append_utf8proc(form, text.substr(begin, i - begin), out);
      out.append(text, i, c.length);
      begin = next;
    }
    i = next;
  }
  append_utf8proc(form, text.substr(begin), out);
}

/// First byte at or after `at` whose character NFC may change or join to what stands before it.
size_t find_nfc_unsafe(std::string_view text, size_t at) {
  const uint16_t* table = char_class_table();
  while ((at = ascii_end(text, at)) < text.size()) {
    do {
      const CodePoint c = decode_utf8(text, at);
      if (char_class(table, c.value) & kNfcUnsafe) return at;
      at += c.length;
    } while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80);
  }
  return text.size();
}

/// NFC touches only the stretches around unsafe characters: from the safe one before to the next.
void nfc_in_place(std::string& text) {
  size_t unsafe = find_nfc_unsafe(text, 0);
  if (unsafe == text.size()) return;
  const uint16_t* table = char_class_table();
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;
  while (unsafe < text.size()) {
    const size_t begin = unsafe > copied ? previous_char(text, unsafe) : unsafe;
    size_t end = unsafe;
    while (end < text.size()) {
      const CodePoint c = decode_utf8(text, end);
      if (!(char_class(table, c.value) & kNfcUnsafe)) break;
      end += c.length;
    }
    out.append(text, copied, begin - copied);
    append_normalized(NormalizationForm::kNfc, std::string_view(text).substr(begin, end - begin),
                      out);
    copied = end;
    unsafe = find_nfc_unsafe(text, end);
  }
  out.append(text, copied, std::string::npos);
  text = std::move(out);
}

bool is_ascii(std::string_view text) { return ascii_end(text, 0) == text.size(); }

/// `text` with matches, given from left to right, replaced.
class Rewriting {
 public:
  Rewriting(const std::string& text, const std::string& replacement, size_t max_bytes)
      : text_(text), replacement_(replacement), max_bytes_(max_bytes) {
    out_.reserve(text.size() + text.size() / 4);
  }
  void match(size_t begin, size_t end) {
    if (out_.size() + replacement_.size() > max_bytes_) throw Normalizer::TooLong{};
    out_.append(text_, copied_, begin - copied_);
    out_ += replacement_;
    copied_ = end;
  }
  std::string finish() {
    out_.append(text_, copied_, std::string::npos);
    return std::move(out_);
  }

 private:
  const std::string& text_;
  const std::string& replacement_;
  const size_t max_bytes_;
  std::string out_;
  size_t copied_ = 0;
};

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalizationForm form) : form_(form) {}
  void rewrite(std::string& text, size_t) const override { apply_normalization_form(form_, text); }
  bool leaves_unchanged(std::string_view text) const override {
    if (form_ == NormalizationForm::kNfc) return find_nfc_unsafe(text, 0) == text.size();
    return is_ascii(text);
  }

 private:
  NormalizationForm form_;
};

class LowercaseNormalizer final : public Normalizer {
 public:
  void rewrite(std::string& text, size_t) const override { apply_lowercase(text); }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void rewrite(std::string& text, size_t) const override {
    size_t begin = 0, end = text.size();
    while (left_ && begin < end) {
      const CodePoint c = decode_utf8(text, begin);
      if (!(char_class(c.value) & kSpace)) break;
      begin += c.length;
    }
    while (right_ && end > begin) {
      const size_t at = previous_char(text, end);
      if (!(char_class(decode_utf8(text, at).value) & kSpace)) break;
      end = at;
    }
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

/// Keeps or maps single characters.
template <typename F>
void map_chars(std::string& text, F&& map) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    i += c.length;
    const int32_t mapped = map(c.value);
    if (mapped >= 0) append_utf8(static_cast<char32_t>(mapped), out);
  }
  text = std::move(out);
}

class StripAccentsNormalizer final : public Normalizer {
 public:
  void rewrite(std::string& text, size_t) const override {
    map_chars(text, [](char32_t c) {
      return char_class(c) & kMark ? int32_t{-1} : static_cast<int32_t>(c);
    });
  }
  bool leaves_unchanged(std::string_view text) const override { return is_ascii(text); }
};

/// sentencepiece's nmt rules: some controls vanish, odd spaces become spaces.
class NmtNormalizer final : public Normalizer {
 public:
  void rewrite(std::string& text, size_t) const override {
    map_chars(text, [](char32_t c) -> int32_t {
      if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
          c == 0x8F || c == 0x9F) {
        return -1;
      }
      if (c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
          (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
          c == 0xFEFF || c == 0xFFFD) {
        return ' ';
      }
      return static_cast<int32_t>(c);
    });
  }
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void rewrite(std::string& text, size_t) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ReplaceStringNormalizer final : public Normalizer {
 public:
  ReplaceStringNormalizer(std::string from, std::string to)
      : from_(std::move(from)), to_(std::move(to)) {}
  void rewrite(std::string& text, size_t max_bytes) const override {
    if (from_.empty()) return;
    size_t found = text.find(from_);
    if (found == std::string::npos) return;
    Rewriting rewriting(text, to_, max_bytes);
    for (; found != std::string::npos; found = text.find(from_, found + from_.size())) {
      rewriting.match(found, found + from_.size());
    }
    text = rewriting.finish();
  }
  bool leaves_unchanged(std::string_view text) const override {
    return from_.empty() || text.find(from_) == std::string_view::npos;
  }

 private:
  std::string from_, to_;
};

class ReplaceRegexNormalizer final : public Normalizer {
 public:
  ReplaceRegexNormalizer(const std::string& pattern, std::string to, const std::string& origin)
      : regex_(pattern, origin), to_(std::move(to)) {}
  void rewrite(std::string& text, size_t max_bytes) const override {
    Rewriting rewriting(text, to_, max_bytes);
    regex_.find_all(text, [&](size_t begin, size_t end) { rewriting.match(begin, end); });
    text = rewriting.finish();
  }

 private:
  Regex regex_;
  std::string to_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void rewrite(std::string& text, size_t) const override {
    std::string out;
    append_byte_level(text, out);
    text = std::move(out);
  }
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  void rewrite(std::string& text, size_t max_bytes) const override {
    for (const auto& step : steps_) {
      step->rewrite(text, max_bytes);
      if (text.size() > max_bytes) throw Normalizer::TooLong{};
    }
  }
  bool leaves_unchanged(std::string_view text) const override {
    for (const auto& step : steps_) {
      if (!step->leaves_unchanged(text)) return false;
    }
    return true;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

std::unique_ptr<Normalizer> make_replace(const Json& spec, const std::string& origin) {
  const Json& pattern = member(spec, "pattern", origin);
  auto content = field<std::string>(spec, "content", origin);
  if (pattern.is_string()) {
    return std::make_unique<ReplaceStringNormalizer>(pattern.get<std::string>(), content);
  }
  if (pattern.is_object() && pattern.contains("String")) {
    return std::make_unique<ReplaceStringNormalizer>(field<std::string>(pattern, "String", origin),
                                                     content);
  }
  return std::make_unique<ReplaceRegexNormalizer>(field<std::string>(pattern, "Regex", origin),
                                                  content, origin);
}

}  // namespace

void Normalizer::normalize(std::string& text) const {
  constexpr size_t kMaxGrowth = 32, kMaxMore = 1 << 20;
  const size_t before = text.size(), max_bytes = before * kMaxGrowth + kMaxMore;
  try {
    rewrite(text, max_bytes);
  } catch (const Normalizer::TooLong&) {
    throw ModelError(tr("[tokenizer.json] the normalizer makes more than {} of a text of {}",
                        format_bytes(max_bytes), format_bytes(before)),
                     tr("its rules (\"normalizer\") are broken or hostile; take the tokenizer from "
                        "its source again"));
  }
}

void apply_normalization_form(NormalizationForm form, std::string& text) {
  if (form == NormalizationForm::kNfc) {
    nfc_in_place(text);
  } else if (!is_ascii(text)) {
    std::string out;
    append_normalized(form, text, out);
    text = std::move(out);
  }
}

void apply_lowercase(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    i += c.length;
    if (c.value == 0x130) {  // the only lower-case mapping of one character to two
      out += "i\xCC\x87";
    } else {
      append_utf8(to_lower(c.value), out);
    }
  }
  text = std::move(out);
}

std::unique_ptr<Normalizer> make_normalizer(const Json& spec, const std::string& origin) {
  if (spec.is_null()) return nullptr;
  const std::string type = component_type(spec, "the normalizer", origin);
  const auto form = [](NormalizationForm f) { return std::make_unique<FormNormalizer>(f); };
  if (type == "NFC") return form(NormalizationForm::kNfc);
  if (type == "NFD") return form(NormalizationForm::kNfd);
  if (type == "NFKC") return form(NormalizationForm::kNfkc);
  if (type == "NFKD") return form(NormalizationForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "Nmt") return std::make_unique<NmtNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "BertNormalizer") return make_bert_normalizer(spec, origin);
  if (type == "Replace") return make_replace(spec, origin);
  if (type == "Strip") {
    return std::make_unique<StripNormalizer>(field_or(spec, "strip_left", true, origin),
                                             field_or(spec, "strip_right", true, origin));
  }
  if (type == "Prepend") {
    return std::make_unique<PrependNormalizer>(field<std::string>(spec, "prepend", origin));
  }
  if (type == "Precompiled") {
    auto charsmap = field_or<std::string>(spec, "precompiled_charsmap", "", origin);
    std::string bytes;
    if (!charsmap.empty() && !decode_base64(charsmap, &bytes))
      throw ModelError(tr("{}: \"precompiled_charsmap\" is not base64", origin));
    return make_precompiled_normalizer(bytes, origin);
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> steps;
    for (const Json& step : member(spec, "normalizers", origin)) {
      steps.push_back(make_normalizer(step, origin));
      if (!steps.back()) throw ModelError(tr("{}: a normalizer of a Sequence is null", origin));
    }
    if (steps.size() == 1) return std::move(steps.front());
    return std::make_unique<SequenceNormalizer>(std::move(steps));
  }
  fail_unknown_type("a normalizer", type, origin);
}

}  // namespace danlu::text
