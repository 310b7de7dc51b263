#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode_version.h"

namespace danlu::text {

std::vector<std::pair<size_t, size_t>> apply_behavior(const std::vector<Stretch>& stretches,
                                                      SplitBehavior behavior) {
  std::vector<std::pair<size_t, size_t>> out;
  out.reserve(stretches.size());
  bool previous_match = false;
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Stretch& s : stretches) {
        if (!s.is_match) out.emplace_back(s.begin, s.end);
      }
      break;
    case SplitBehavior::kIsolated:
      for (const Stretch& s : stretches) out.emplace_back(s.begin, s.end);
      break;
    case SplitBehavior::kContiguous:
      for (size_t i = 0; i < stretches.size(); ++i) {
        const Stretch& s = stretches[i];
        if (i > 0 && s.is_match == previous_match) {
          out.back().second = s.end;
        } else {
          out.emplace_back(s.begin, s.end);
        }
        previous_match = s.is_match;
      }
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const Stretch& s : stretches) {
        if (s.is_match && !previous_match && !out.empty()) {
          out.back().second = s.end;
        } else {
          out.emplace_back(s.begin, s.end);
        }
        previous_match = s.is_match;
      }
      break;
    case SplitBehavior::kMergedWithNext:
      for (auto s = stretches.rbegin(); s != stretches.rend(); ++s) {
        if (s->is_match && !previous_match && !out.empty()) {
          out.back().first = s->begin;
        } else {
          out.emplace_back(s->begin, s->end);
        }
        previous_match = s->is_match;
      }
      std::reverse(out.begin(), out.end());
      break;
  }
  return out;
}

namespace {

void emit(std::string_view text, bool at_start, const std::vector<Stretch>& stretches,
          SplitBehavior behavior, PieceSink sink) {
  for (const auto& [begin, end] : apply_behavior(stretches, behavior)) {
    if (end > begin) sink(text.substr(begin, end - begin), at_start && begin == 0);
  }
}

/// Splits where a pattern matches; `find(text, on_match)` reports the matches.
template <typename Find>
class PatternSplit final : public PreTokenizer {
 public:
  PatternSplit(Find find, SplitBehavior behavior, bool invert)
      : find_(std::move(find)), behavior_(behavior), invert_(invert) {}

  void split(std::string_view text, bool at_start, PieceSink sink) const override {
    std::vector<Stretch> stretches;
    size_t covered = 0;
    find_(text, [&](size_t begin, size_t end) {
      if (begin > covered) stretches.push_back({covered, begin, invert_});
      stretches.push_back({begin, end, !invert_});
      covered = end;
    });
    if (covered < text.size()) stretches.push_back({covered, text.size(), invert_});
    emit(text, at_start, stretches, behavior_, sink);
  }

 private:
  Find find_;
  SplitBehavior behavior_;
  bool invert_;
};

template <typename Find>
std::unique_ptr<PreTokenizer> pattern_split(Find find, SplitBehavior behavior,
                                            bool invert = false) {
  return std::make_unique<PatternSplit<Find>>(std::move(find), behavior, invert);
}

/// Matches every single character for which `wanted(code_point)` holds.
template <typename Wanted>
auto each_char(Wanted wanted) {
  return [wanted](std::string_view text, auto&& on_match) {
    for (size_t i = 0; i < text.size();) {
      const CodePoint c = decode_utf8(text, i);
      if (wanted(c.value)) on_match(i, i + c.length);
      i += c.length;
    }
  };
}

auto each_text(std::string needle) {
  return [needle = std::move(needle)](std::string_view text, auto&& on_match) {
    if (needle.empty()) return;
    for (size_t at = text.find(needle); at != std::string_view::npos;
         at = text.find(needle, at + needle.size())) {
      on_match(at, at + needle.size());
    }
  };
}

auto each_regex_match(std::shared_ptr<const Regex> regex) {
  return [regex = std::move(regex)](std::string_view text, auto&& on_match) {
    regex->find_all(text, on_match);
  };
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}
bool is_punctuation(char32_t c) {
  return is_ascii_punctuation(c) || (char_class(c) & kPunctuation);
}
bool is_space(char32_t c) { return char_class(c) & kSpace; }

class ScannerPreTokenizer final : public PreTokenizer {
 public:
  explicit ScannerPreTokenizer(KnownPattern pattern) : pattern_(pattern) {}
  void split(std::string_view text, bool at_start, PieceSink sink) const override {
    Scanner(text).run(pattern_, [&](size_t begin, size_t end) {
      sink(text.substr(begin, end - begin), at_start && begin == 0);
    });
  }
  KnownPattern pattern() const override { return pattern_; }

 private:
  KnownPattern pattern_;
};

/// Puts a space before every piece that has none.
class PrefixSpace final : public PreTokenizer {
 public:
  void split(std::string_view text, bool at_start, PieceSink sink) const override {
    if (text.starts_with(' ')) return sink(text, at_start);
    sink(" " + std::string(text), at_start);
  }
};

class ByteLevelMapping final : public PreTokenizer {
 public:
  void split(std::string_view text, bool at_start, PieceSink sink) const override {
    std::string mapped;
    append_byte_level(text, mapped);
    sink(mapped, at_start);
  }
};

class WhitespaceWords final : public PreTokenizer {
 public:
  void split(std::string_view text, bool at_start, PieceSink sink) const override {
    // \w+|[^\w\s]+, what lies between is dropped.
    for (size_t i = 0; i < text.size();) {
      const CodePoint c = decode_utf8(text, i);
      const auto kind = [](char32_t value) {
        const uint16_t bits = char_class(value);
        return bits & kWord ? 2 : bits & kSpace ? 0 : 1;
      };
      const int wanted = kind(c.value);
      const size_t begin = i;
      i += c.length;
      if (wanted == 0) continue;
      while (i < text.size()) {
        const CodePoint next = decode_utf8(text, i);
        if (kind(next.value) != wanted) break;
        i += next.length;
      }
      sink(text.substr(begin, i - begin), at_start && begin == 0);
    }
  }
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  void split(std::string_view text, bool at_start, PieceSink sink) const override {
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      for (size_t k = 0; k < length_ && i < text.size(); ++k) i += decode_utf8(text, i).length;
      sink(text.substr(begin, i - begin), at_start && begin == 0);
    }
  }

 private:
  size_t length_;
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void split(std::string_view text, bool at_start, PieceSink sink) const override {
    std::string mapped;
    mapped.reserve(text.size() + text.size() / 2 + 4);
    for (const char c : text) {
      if (c == ' ') {
        mapped += replacement_;
      } else {
        mapped += c;
      }
    }
    const bool wanted = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && at_start);
    if (wanted && !mapped.starts_with(replacement_)) mapped.insert(0, replacement_);
    if (!split_) return sink(mapped, at_start);
    std::vector<Stretch> stretches;
    size_t covered = 0;
    each_text(replacement_)(mapped, [&](size_t begin, size_t end) {
      if (begin > covered) stretches.push_back({covered, begin, false});
      stretches.push_back({begin, end, true});
      covered = end;
    });
    if (covered < mapped.size()) stretches.push_back({covered, mapped.size(), false});
    emit(mapped, at_start, stretches, SplitBehavior::kMergedWithNext, sink);
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  void split(std::string_view text, bool at_start, PieceSink sink) const override {
    run(0, text, at_start, sink);
  }

 private:
  void run(size_t step, std::string_view text, bool at_start, PieceSink sink) const {
    if (step == steps_.size()) return sink(text, at_start);
    steps_[step]->split(text, at_start, [&](std::string_view piece, bool start) {
      run(step + 1, piece, start, sink);
    });
  }
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

SplitBehavior behavior_of(const Json& spec, const char* fallback, const std::string& origin) {
  const auto name = field_or<std::string>(spec, "behavior", fallback, origin);
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw ModelError(
      tr("{}: \"behavior\" must be Removed, Isolated, MergedWithPrevious, "
         "MergedWithNext or Contiguous, got \"{}\"",
         origin, name));
}

void add_split(const Json& spec, Steps& steps, const std::string& origin) {
  const Json& pattern = member(spec, "pattern", origin);
  const SplitBehavior behavior = behavior_of(spec, "Removed", origin);
  const bool invert = field_or(spec, "invert", false, origin);
  if (pattern.is_string() || (pattern.is_object() && pattern.contains("String"))) {
    auto needle = pattern.is_string() ? pattern.get<std::string>()
                                      : field<std::string>(pattern, "String", origin);
    steps.push_back(pattern_split(each_text(std::move(needle)), behavior, invert));
    return;
  }
  const auto regex = field<std::string>(pattern, "Regex", origin);
  const KnownPattern known = known_pattern(regex);
  // A known pattern leaves no gaps, so that isolating its matches is all there is to do; removing
  // what lies between its matches (Removed, inverted) comes to the same.
  if (known != KnownPattern::kNone &&
      ((behavior == SplitBehavior::kIsolated) || (behavior == SplitBehavior::kRemoved && invert))) {
    steps.push_back(std::make_unique<ScannerPreTokenizer>(known));
    return;
  }
  steps.push_back(pattern_split(each_regex_match(std::make_shared<const Regex>(regex, origin)),
                                behavior, invert));
}

void add_metaspace(const Json& spec, Steps& steps, const std::string& origin) {
  auto replacement = field_or<std::string>(spec, "replacement", "\xE2\x96\x81", origin);
  if (replacement.empty()) throw ModelError(tr("{}: Metaspace's \"replacement\" is empty", origin));
  auto scheme = field_or<std::string>(spec, "prepend_scheme", "always", origin);
  // Files older than prepend_scheme say add_prefix_space.
  if (!spec.contains("prepend_scheme") && !field_or(spec, "add_prefix_space", true, origin)) {
    scheme = "never";
  }
  Metaspace::Prepend prepend;
  if (scheme == "always")
    prepend = Metaspace::Prepend::kAlways;
  else if (scheme == "first")
    prepend = Metaspace::Prepend::kFirst;
  else if (scheme == "never")
    prepend = Metaspace::Prepend::kNever;
  else {
    throw ModelError(
        tr("{}: \"prepend_scheme\" must be always, first or never, got "
           "\"{}\"",
           origin, scheme));
  }
  steps.push_back(std::make_unique<Metaspace>(std::move(replacement), prepend,
                                              field_or(spec, "split", true, origin)));
}

void add_byte_level(const Json& spec, Steps& steps, const std::string& origin) {
  if (field_or(spec, "add_prefix_space", true, origin)) {
    steps.push_back(std::make_unique<PrefixSpace>());
  }
  if (field_or(spec, "use_regex", true, origin)) {
    steps.push_back(std::make_unique<ScannerPreTokenizer>(KnownPattern::kGpt2));
  }
  steps.push_back(std::make_unique<ByteLevelMapping>());
}

void add_steps(const Json& spec, Steps& steps, const std::string& origin) {
  const std::string type = component_type(spec, "the pre-tokenizer", origin);
  if (type == "Sequence") {
    for (const Json& step : member(spec, "pretokenizers", origin)) add_steps(step, steps, origin);
  } else if (type == "ByteLevel") {
    add_byte_level(spec, steps, origin);
  } else if (type == "Split") {
    add_split(spec, steps, origin);
  } else if (type == "Metaspace") {
    add_metaspace(spec, steps, origin);
  } else if (type == "Whitespace") {
    steps.push_back(std::make_unique<WhitespaceWords>());
  } else if (type == "WhitespaceSplit") {
    steps.push_back(pattern_split(each_char(is_space), SplitBehavior::kRemoved));
  } else if (type == "Punctuation") {
    steps.push_back(
        pattern_split(each_char(is_punctuation), behavior_of(spec, "Isolated", origin)));
  } else if (type == "Digits") {
    steps.push_back(
        pattern_split(each_char(is_numeric), field_or(spec, "individual_digits", false, origin)
                                                 ? SplitBehavior::kIsolated
                                                 : SplitBehavior::kContiguous));
  } else if (type == "BertPreTokenizer") {
    steps.push_back(pattern_split(each_char(is_space), SplitBehavior::kRemoved));
    steps.push_back(pattern_split(each_char(is_punctuation), SplitBehavior::kIsolated));
  } else if (type == "CharDelimiterSplit") {
    steps.push_back(pattern_split(each_text(field<std::string>(spec, "delimiter", origin)),
                                  SplitBehavior::kRemoved));
  } else if (type == "UnicodeScripts") {
    steps.push_back(make_unicode_scripts_pre_tokenizer());
  } else if (type == "FixedLength") {
    const auto length = field_or<int64_t>(spec, "length", 5, origin);
    if (length < 1) throw ModelError(tr("{}: FixedLength's \"length\" must be at least 1", origin));
    steps.push_back(std::make_unique<FixedLength>(static_cast<size_t>(length)));
  } else {
    fail_unknown_type("a pre-tokenizer", type, origin);
  }
}

}  // namespace

PreTokenizerBuild make_pre_tokenizer(const Json& spec, bool allow_raw_bytes,
                                     const std::string& origin) {
  PreTokenizerBuild build;
  if (spec.is_null()) return build;
  Steps steps;
  add_steps(spec, steps, origin);
  if (allow_raw_bytes && !steps.empty() && dynamic_cast<ByteLevelMapping*>(steps.back().get())) {
    steps.pop_back();
    build.raw_bytes = true;
  }
  if (steps.size() == 1) {
    build.pre_tokenizer = std::move(steps.front());
  } else if (!steps.empty()) {
    build.pre_tokenizer = std::make_unique<SequencePreTokenizer>(std::move(steps));
  }
  return build;
}

}  // namespace danlu::text
