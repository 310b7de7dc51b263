#include "api/tool_calls.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <random>

#include "api/call_reader.h"
#include "api/qwen_coder_calls.h"
#include "base/error.h"
#include "base/json_text.h"

namespace danlu::api {
namespace {

using text::ToolFormat;

/// Qwen's and Hermes'.
class HermesReader final : public CallReader {
 public:
  using CallReader::CallReader;

 private:
  Match is_mark(std::string_view text) const override { return match_of(text, "<tool_call>"); }

  Step begin_calls(std::string_view) override {
    call_.emplace(
        JsonCall::Keys{}, [this](const std::string& name) { begin_call(name); },
        [this](std::string_view fragment) { add_arguments(fragment); });
    state_ = State::kBefore;
    return Step::kMore;
  }

  Step in_calls(char c) override {
    if (state_ == State::kBefore && is_json_space(c)) return Step::kMore;
    if (state_ != State::kBehind) {
      state_ = State::kCall;
      const Step step = call_->add(c);
      if (step != Step::kDone) return step;
      end_call();
      state_ = State::kBehind;
      closing_.clear();
      return Step::kMore;
    }
    if (closing_.find('<') == std::string::npos && is_json_space(c)) {
      closing_ += c;
      return Step::kMore;
    }
    const size_t tag = std::min(closing_.find('<'), closing_.size());
    switch (match_of(closing_.substr(tag) + c, "</tool_call>")) {
      case Match::kYes:
        return Step::kDone;
      case Match::kNo:
        return Step::kDoneBefore;
      case Match::kMayBe:
        break;
    }
    closing_ += c;
    return Step::kMore;
  }

  std::string not_mine() override {
    return state_ == State::kBehind ? std::exchange(closing_, {}) : "";
  }
  bool only_closes() const override { return state_ == State::kBehind; }

  enum class State { kBefore, kCall, kBehind };
  State state_ = State::kBefore;
  std::optional<JsonCall> call_;
  std::string closing_;
};

/// Llama's: an object anywhere in the answer. One that is no call is text to its end, whatever
/// objects it holds.
class LlamaReader final : public CallReader {
 public:
  using CallReader::CallReader;

 private:
  static constexpr std::string_view kPython = "<|python_tag|>";

  Match is_mark(std::string_view text) const override {
    if (text.starts_with(kPython)) {
      text.remove_prefix(kPython.size());
    } else if (text[0] == '<') {
      return match_of(text, kPython);
    } else if (is_after_call() && text[0] == ';') {
      text.remove_prefix(1);
    }
    const size_t object = std::min(text.find_first_not_of(" \n\t\r"), text.size());
    return match_of(text.substr(object), "{");
  }

  Step begin_calls(std::string_view) override {
    call_.emplace(
        JsonCall::Keys{.may_say_parameters = true, .needs_arguments = true, .is_strict = true},
        [this](const std::string& name) {
          begin_call(name);
          has_begun_ = true;
        },
        [this](std::string_view fragment) { add_arguments(fragment); });
    object_ = JsonScanner();
    has_begun_ = is_text_ = false;
    object_.add('{');
    return call_->add('{');
  }

  Step in_calls(char c) override {
    const Step of_object = object_.add(c);
    if (!is_text_) {
      const Step step = call_->add(c);
      if (step == Step::kDone) end_call();
      if (step != Step::kBad || has_begun_ || of_object != Step::kMore) return step;
      is_text_ = true;
    }
    if (of_object != Step::kBad) give_back();
    return of_object;
  }

  std::optional<JsonCall> call_;
  JsonScanner object_;
  bool has_begun_ = false, is_text_ = false;
};

/// Mistral's: a list, or of newer models the name and the object.
class MistralReader final : public CallReader {
 public:
  using CallReader::CallReader;

 private:
  static constexpr std::string_view kMark = "[TOOL_CALLS]", kArgs = "[ARGS]";

  Match is_mark(std::string_view text) const override { return match_of(text, kMark); }

  Step begin_calls(std::string_view) override {
    state_ = State::kBefore;
    name_.clear();
    return Step::kMore;
  }

  Step in_calls(char c) override {
    switch (state_) {
      case State::kBefore:
        if (is_json_space(c)) return Step::kMore;
        if (c == '[') {
          state_ = State::kBeforeCall;
          return Step::kMore;
        }
        state_ = State::kName;
        [[fallthrough]];
      case State::kName:
        return name(c);
      case State::kArguments:
        return arguments(c);
      case State::kBeforeCall:
        if (is_json_space(c)) return Step::kMore;
        call_.emplace(
            JsonCall::Keys{}, [this](const std::string& name) { begin_call(name); },
            [this](std::string_view fragment) { add_arguments(fragment); });
        state_ = State::kCall;
        [[fallthrough]];
      case State::kCall: {
        const Step step = call_->add(c);
        if (step != Step::kDone) return step;
        end_call();
        state_ = State::kBehind;
        return Step::kMore;
      }
      case State::kBehind:
        break;
    }
    if (c == ',') state_ = State::kBeforeCall;
    if (c == ']') return Step::kDone;
    return c == ',' || is_json_space(c) ? Step::kMore : Step::kDoneBefore;
  }

  Step name(char c) {
    if (c == '{') {
      if (name_.ends_with(kArgs)) name_.resize(name_.size() - kArgs.size());
      name_.resize(std::min(name_.find("[CALL_ID]"), name_.size()));
      if (name_.empty() || name_.find('[') != std::string::npos) return Step::kBad;
      begin_call(name_);
      scanner_ = JsonScanner();
      state_ = State::kArguments;
      return arguments(c);
    }
    const bool may_be = std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_-.:/[]", c);
    name_ += c;
    return may_be && c && name_.size() < 512 ? Step::kMore : Step::kBad;
  }

  Step arguments(char c) {
    const Step step = scanner_.add(c);
    if (step == Step::kBad) return step;
    add_arguments({&c, 1});
    if (step == Step::kDone) end_call();
    return step;
  }

  bool only_closes() const override { return state_ == State::kBehind; }

  enum class State { kBefore, kName, kArguments, kBeforeCall, kCall, kBehind };
  State state_ = State::kBefore;
  std::string name_;
  std::optional<JsonCall> call_;
  JsonScanner scanner_;
};

/// DeepSeek's: V3 and R1 say "function", the name and a fence of JSON, V3.1 the name and the
/// object.
class DeepSeekReader final : public CallReader {
 public:
  using CallReader::CallReader;

 private:
  static constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>", kEnd = "<｜tool▁call▁end｜>",
                                    kAllBegin = "<｜tool▁calls▁begin｜>",
                                    kAllEnd = "<｜tool▁calls▁end｜>", kSep = "<｜tool▁sep｜>";

  Match is_mark(std::string_view text) const override {
    const Match all = match_of(text, kAllBegin);
    return all == Match::kNo ? match_of(text, kBegin) : all;
  }

  Step begin_calls(std::string_view mark) override {
    text_.clear();
    state_ = mark == kAllBegin ? State::kBetween : State::kKind;
    return Step::kMore;
  }

  Step in_calls(char c) override {
    switch (state_) {
      case State::kBetween:
        return between(c);
      case State::kKind:
        text_ += c;
        if (text_.ends_with(kSep)) {
          kind_ = text_.substr(0, text_.size() - kSep.size());
          text_.clear();
          state_ = State::kName;
          return Step::kMore;
        }
        return c == '\n' || text_.size() > 512 ? Step::kBad : Step::kMore;
      case State::kName:
        return name(c);
      case State::kFence:
      case State::kFenceEnd:
      case State::kCallEnd:
        return fixed_text(c);
      case State::kArguments:
        break;
    }
    if (!has_begun_) {
      if (is_json_space(c)) return Step::kMore;
      if (c != '{') return Step::kBad;
      has_begun_ = true;
      begin_call(kind_);
    }
    const Step step = scanner_.add(c);
    if (step == Step::kBad) return step;
    add_arguments({&c, 1});
    if (step != Step::kDone) return step;
    end_call();
    expect(has_fence_ ? State::kFenceEnd : State::kCallEnd, has_fence_ ? "```" : kEnd);
    return Step::kMore;
  }

  /// Between calls: another one, or the end of all.
  Step between(char c) {
    if (text_.empty() && is_json_space(c)) return Step::kMore;
    text_ += c;
    if (text_ == kAllEnd) return Step::kDone;
    const Match begin = match_of(text_, kBegin);
    if (begin == Match::kYes) {
      text_.clear();
      state_ = State::kKind;
    } else if (begin == Match::kNo && !kAllEnd.starts_with(text_)) {
      return Step::kBad;
    }
    return Step::kMore;
  }

  /// What follows the separator tells the two forms apart.
  Step name(char c) {
    if (text_.empty() && c == '{') {
      has_fence_ = false;
      begin_arguments();
      return in_calls(c);
    }
    if (c == '\n') {
      if (text_.empty()) return Step::kBad;
      kind_ = std::exchange(text_, {});
      has_fence_ = true;
      expect(State::kFence, "```json");
      return Step::kMore;
    }
    text_ += c;
    return text_.size() > 512 ? Step::kBad : Step::kMore;
  }

  Step fixed_text(char c) {
    const Step step = expected_.add(c);
    if (step != Step::kDone) return step;
    if (state_ == State::kFence) {
      begin_arguments();
    } else if (state_ == State::kFenceEnd) {
      expect(State::kCallEnd, kEnd);
    } else {
      text_.clear();
      state_ = State::kBetween;
    }
    return Step::kMore;
  }

  void begin_arguments() {
    state_ = State::kArguments;
    scanner_ = JsonScanner();
    has_begun_ = false;
  }

  enum class State { kBetween, kKind, kName, kFence, kArguments, kFenceEnd, kCallEnd };
  void expect(State state, std::string_view literal) {
    state_ = state;
    expected_ = Expected(literal);
  }
  bool only_closes() const override {
    return is_after_call() &&
           (state_ == State::kBetween || state_ == State::kFenceEnd || state_ == State::kCallEnd);
  }

  State state_ = State::kBetween;
  Expected expected_{""};
  JsonScanner scanner_;
  std::string text_, kind_;
  bool has_fence_ = false, has_begun_ = false;
};

/// GLM-4.5's: each argument between tags, strings as they are.
class GlmReader final : public CallReader {
 public:
  using CallReader::CallReader;

 private:
  static constexpr std::string_view kKey = "<arg_key>", kKeyEnd = "</arg_key>",
                                    kValue = "<arg_value>", kValueEnd = "</arg_value>",
                                    kEnd = "</tool_call>";

  Match is_mark(std::string_view text) const override { return match_of(text, "<tool_call>"); }

  Step begin_calls(std::string_view) override {
    text_.clear();
    tag_.clear();
    num_arguments_ = 0;
    state_ = State::kName;
    return Step::kMore;
  }

  Step in_calls(char c) override {
    switch (state_) {
      case State::kName:
        if (c == '<') {
          if (trimmed(text_).empty()) return Step::kBad;
          name_ = trimmed(text_);
          state_ = State::kBetween;
          tag_.clear();
          return between(c);
        }
        text_ += c;
        return text_.size() > 512 ? Step::kBad : Step::kMore;
      case State::kBetween:
        return between(c);
      case State::kKey:
        text_ += c;
        if (!text_.ends_with(kKeyEnd)) return Step::kMore;
        text_.resize(text_.size() - kKeyEnd.size());
        key_ = trimmed(text_);
        expected_ = Expected(kValue);
        state_ = State::kBeforeValue;
        return Step::kMore;
      case State::kBeforeValue: {
        const Step step = expected_.add(c);
        if (step == Step::kDone) begin_value();
        return step == Step::kDone ? Step::kMore : step;
      }
      case State::kValue:
        break;
    }
    value(c);
    return Step::kMore;
  }

  Step between(char c) {
    if (tag_.empty() && is_json_space(c)) return Step::kMore;
    tag_ += c;
    if (tag_ == kEnd) {
      if (num_arguments_ == 0) begin_call(name_);
      add_arguments(num_arguments_ == 0 ? "{}" : "}");
      end_call();
      return Step::kDone;
    }
    if (tag_ == kKey) {
      text_.clear();
      state_ = State::kKey;
      return Step::kMore;
    }
    return kEnd.starts_with(tag_) || kKey.starts_with(tag_) ? Step::kMore : Step::kBad;
  }

  void begin_value() {
    if (num_arguments_ == 0) begin_call(name_);
    add_arguments(num_arguments_++ == 0 ? "{" : ", ");
    add_arguments(dump_text(key_) + ": ");
    is_string_ = type_of(name_, key_) == "string";
    if (is_string_) add_arguments("\"");
    text_.clear();
    state_ = State::kValue;
  }

  void value(char c) {
    text_ += c;
    if (!text_.ends_with(kValueEnd)) {
      if (is_string_) give_string(held_back());
      return;
    }
    text_.resize(text_.size() - kValueEnd.size());
    if (is_string_) {
      give_string(0);
      add_arguments("\"");
    } else {
      const std::string text = trimmed(text_);
      add_arguments(is_json(text) ? text : dump_text(text_));
    }
    tag_.clear();
    state_ = State::kBetween;
  }

  /// How many last bytes may begin the closing tag.
  size_t held_back() const {
    const size_t tag = text_.rfind('<');
    return tag != std::string::npos && kValueEnd.starts_with(std::string_view(text_).substr(tag))
               ? text_.size() - tag
               : 0;
  }

  /// As JSON, all but the last bytes. Those are kept.
  void give_string(size_t kept) {
    const size_t ready = text_.size() - kept;
    add_string_part(std::string_view(text_).substr(0, ready));
    text_.erase(0, ready);
  }

  enum class State { kName, kBetween, kKey, kBeforeValue, kValue };
  State state_ = State::kName;
  std::string text_, tag_, name_, key_;
  Expected expected_{""};
  size_t num_arguments_ = 0;
  bool is_string_ = false;
};

}  // namespace

std::string new_call_id(ToolFormat format) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  const bool is_mistral = format == ToolFormat::kMistral;
  const std::string_view letters =
      is_mistral ? "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                 : "0123456789abcdef";
  std::string id = is_mistral ? "" : "chatcmpl-tool-";
  std::uniform_int_distribution<size_t> place(0, letters.size() - 1);
  for (int i = 0; i < (is_mistral ? 9 : 32); ++i) id += letters[place(random)];
  return id;
}

std::unique_ptr<ToolCallParser> make_tool_call_parser(ToolFormat format, ToolCallOptions options) {
  if (!options.make_id) options.make_id = [format] { return new_call_id(format); };
  switch (format) {
    case ToolFormat::kHermes:
      return std::make_unique<HermesReader>(std::move(options));
    case ToolFormat::kLlama3:
      return std::make_unique<LlamaReader>(std::move(options));
    case ToolFormat::kMistral:
      return std::make_unique<MistralReader>(std::move(options));
    case ToolFormat::kDeepSeekV3:
      return std::make_unique<DeepSeekReader>(std::move(options));
    case ToolFormat::kGlm45:
      return std::make_unique<GlmReader>(std::move(options));
    case ToolFormat::kQwenCoder:
      return make_qwen_coder_reader(std::move(options));
  }
  throw InternalError("a form of tool calls without a reader");
}

}  // namespace danlu::api
