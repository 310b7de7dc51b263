#include "text/tokenizer/decoder.h"

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

using Tokens = std::vector<std::string>;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

class ByteLevelDecoder final : public Decoder {
 public:
  void decode(Tokens& tokens) const override {
    std::string bytes, text;
    for (const std::string& token : tokens) {
      if (!append_bytes_of_token(token, bytes)) bytes += token;
    }
    append_lossy(bytes, text);
    tokens = {text};
  }
  bool is_byte_level() const override { return true; }
};

/// The byte of "<0xHH>", or -1.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    int digit;
    if (c >= '0' && c <= '9')
      digit = c - '0';
    else if (c >= 'A' && c <= 'F')
      digit = c - 'A' + 10;
    else if (c >= 'a' && c <= 'f')
      digit = c - 'a' + 10;
    else
      return -1;
    value = value * 16 + digit;
  }
  return value;
}

class ByteFallbackDecoder final : public Decoder {
 public:
  void decode(Tokens& tokens) const override {
    Tokens out;
    out.reserve(tokens.size());
    std::string run;
    // A run that is not UTF-8 as a whole gives one U+FFFD for each of its bytes.
    const auto end_run = [&] {
      if (run.empty()) return;
      if (is_valid_utf8(run)) {
        out.push_back(run);
      } else {
        for (size_t i = 0; i < run.size(); ++i) out.emplace_back(kReplacementUtf8);
      }
      run.clear();
    };
    for (std::string& token : tokens) {
      if (const int byte = byte_of(token); byte >= 0) {
        run += static_cast<char>(byte);
      } else {
        end_run();
        out.push_back(std::move(token));
      }
    }
    end_run();
    tokens = std::move(out);
  }
  bool joins_byte_tokens() const override { return true; }
};

class FuseDecoder final : public Decoder {
 public:
  void decode(Tokens& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens = {all};
  }
};

class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void decode(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      size_t begin = 0, end = token.size();
      for (size_t i = 0; i < start_ && token.compare(begin, content_.size(), content_) == 0; ++i) {
        begin += content_.size();
        if (begin >= token.size()) break;
      }
      for (size_t i = 0; i < stop_ && end >= begin + content_.size() &&
                         token.compare(end - content_.size(), content_.size(), content_) == 0;
           ++i) {
        end -= content_.size();
      }
      token = token.substr(begin, end - begin);
    }
  }
  bool depends_on_end() const override { return stop_ > 0; }

 private:
  std::string content_;
  size_t start_, stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void decode(Tokens& tokens) const override {
    for (std::string& token : tokens) replace_all(token, from_, to_);
  }

 private:
  std::string from_, to_;
};

class ReplaceRegexDecoder final : public Decoder {
 public:
  ReplaceRegexDecoder(const std::string& pattern, std::string to, const std::string& origin)
      : regex_(pattern, origin), to_(std::move(to)) {}
  void decode(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      std::string out;
      size_t copied = 0;
      regex_.find_all(token, [&](size_t begin, size_t end) {
        out.append(token, copied, begin - copied);
        out += to_;
        copied = end;
      });
      out.append(token, copied, std::string::npos);
      token = std::move(out);
    }
  }

 private:
  Regex regex_;
  std::string to_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(std::string replacement, bool prepends)
      : replacement_(std::move(replacement)), prepends_(prepends) {}
  void decode(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string out;
      const std::string& token = tokens[i];
      // In the first token every replacement stands for the prefix and vanishes: so HF does it.
      const std::string_view space = i == 0 && prepends_ ? "" : " ";
      size_t copied = 0;
      for (size_t at = token.find(replacement_); at != std::string::npos;
           at = token.find(replacement_, copied)) {
        out.append(token, copied, at - copied);
        out += space;
        copied = at + replacement_.size();
      }
      out.append(token, copied, std::string::npos);
      tokens[i] = std::move(out);
    }
  }

 private:
  std::string replacement_;
  bool prepends_;
};

/// English spacing undone: " ." to "." and the like.
void clean_up(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void decode(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) {
        if (token.starts_with(prefix_)) {
          token.erase(0, prefix_.size());
        } else {
          token.insert(0, " ");
        }
      }
      if (cleanup_) clean_up(token);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void decode(Tokens& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }
  bool depends_on_end() const override { return true; }

 private:
  std::string suffix_;
};

class CtcDecoder final : public Decoder {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  void decode(Tokens& tokens) const override {
    Tokens out;
    const std::string* previous = nullptr;
    for (const std::string& token : tokens) {
      const bool repeated = previous && *previous == token;
      previous = &token;
      if (repeated) continue;
      std::string text = token;
      replace_all(text, pad_, "");
      if (cleanup_) {
        clean_up(text);
        replace_all(text, delimiter_, " ");
      }
      if (!text.empty()) out.push_back(std::move(text));
    }
    tokens = std::move(out);
  }
  bool depends_on_end() const override { return true; }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

class SequenceDecoder final : public Decoder {
 public:
  explicit SequenceDecoder(std::vector<std::unique_ptr<Decoder>> steps)
      : steps_(std::move(steps)) {}
  void decode(Tokens& tokens) const override {
    for (const auto& step : steps_) step->decode(tokens);
  }
  bool joins_byte_tokens() const override {
    for (const auto& step : steps_) {
      if (step->joins_byte_tokens()) return true;
    }
    return false;
  }
  bool depends_on_end() const override {
    for (const auto& step : steps_) {
      // Byte-level decoding in a chain joins all tokens, so that nothing is final by itself.
      if (step->depends_on_end() || step->is_byte_level()) return true;
    }
    return false;
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

std::unique_ptr<Decoder> make_replace_decoder(const Json& spec, const std::string& origin) {
  const Json& pattern = member(spec, "pattern", origin);
  auto content = field<std::string>(spec, "content", origin);
  if (pattern.is_object() && pattern.contains("Regex")) {
    return std::make_unique<ReplaceRegexDecoder>(field<std::string>(pattern, "Regex", origin),
                                                 std::move(content), origin);
  }
  auto from = pattern.is_string() ? pattern.get<std::string>()
                                  : field<std::string>(pattern, "String", origin);
  return std::make_unique<ReplaceDecoder>(std::move(from), std::move(content));
}

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Json& spec, const std::string& origin) {
  if (spec.is_null()) return nullptr;
  const std::string type = component_type(spec, "the decoder", origin);
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Replace") return make_replace_decoder(spec, origin);
  if (type == "Strip") {
    auto content = field<std::string>(spec, "content", origin);
    const auto start = field_or<int64_t>(spec, "start", 0, origin);
    const auto stop = field_or<int64_t>(spec, "stop", 0, origin);
    if (content.empty() || start < 0 || stop < 0) {
      throw ModelError(tr("{}: the Strip decoder needs content, start >= 0 and stop >= 0", origin));
    }
    return std::make_unique<StripDecoder>(std::move(content), static_cast<size_t>(start),
                                          static_cast<size_t>(stop));
  }
  if (type == "Metaspace") {
    const auto scheme = field_or<std::string>(
        spec, "prepend_scheme",
        field_or(spec, "add_prefix_space", true, origin) ? "always" : "never", origin);
    return std::make_unique<MetaspaceDecoder>(
        field_or<std::string>(spec, "replacement", "\xE2\x96\x81", origin), scheme != "never");
  }
  if (type == "WordPiece") {
    return std::make_unique<WordPieceDecoder>(field_or<std::string>(spec, "prefix", "##", origin),
                                              field_or(spec, "cleanup", true, origin));
  }
  if (type == "BPEDecoder") {
    return std::make_unique<BpeDecoder>(field_or<std::string>(spec, "suffix", "</w>", origin));
  }
  if (type == "CTC") {
    return std::make_unique<CtcDecoder>(
        field_or<std::string>(spec, "pad_token", "<pad>", origin),
        field_or<std::string>(spec, "word_delimiter_token", "|", origin),
        field_or(spec, "cleanup", true, origin));
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Decoder>> steps;
    for (const Json& step : member(spec, "decoders", origin)) {
      steps.push_back(make_decoder(step, origin));
      if (!steps.back()) throw ModelError(tr("{}: a decoder of a Sequence is null", origin));
    }
    if (steps.size() == 1) return std::move(steps.front());
    return std::make_unique<SequenceDecoder>(std::move(steps));
  }
  fail_unknown_type("a decoder", type, origin);
}

}  // namespace danlu::text
