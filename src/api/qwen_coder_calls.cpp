#include "api/qwen_coder_calls.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "api/call_reader.h"
#include "base/json_text.h"

namespace danlu::api {
namespace {

constexpr size_t kLongestName = 512;
constexpr std::string_view kCall = "<tool_call>", kCallEnd = "</tool_call>",
                           kFunction = "<function=", kFunctionEnd = "</function>",
                           kParameter = "<parameter=", kParameterEnd = "</parameter>",
                           kLastOfValue = "\n</parameter>";

/// A value as JSON, of an argument that the schema gives the type `type`.
std::string value_json(const std::string& written, const Json& type) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kPython{
      {{"True", "true"}, {"False", "false"}, {"None", "null"}}};
  const std::string text = trimmed(written);
  const bool may_be_text =
      type.is_array() && std::find(type.begin(), type.end(), "string") != type.end();
  if (may_be_text) return text == "null" || text == "None" ? "null" : dump_text(written);
  for (const auto& [python, json] : kPython)
    if (text == python) return std::string(json);
  return is_json(text) ? text : dump_text(written);
}

class QwenCoderReader final : public CallReader {
 public:
  using CallReader::CallReader;

 private:
  Match is_mark(std::string_view text) const override {
    const Match call = match_of(text, kCall);
    return call == Match::kNo ? match_of(text, kFunction) : call;
  }

  Step begin_calls(std::string_view mark) override {
    expected_ = Expected(kFunction);
    text_.clear();
    has_arguments_ = false;
    state_ = mark == kCall ? State::kBefore : State::kName;
    return Step::kMore;
  }

  Step in_calls(char c) override {
    switch (state_) {
      case State::kBefore: {
        const Step step = expected_.add(c);
        if (step == Step::kDone) state_ = State::kName;
        return step == Step::kDone ? Step::kMore : step;
      }
      case State::kName:
      case State::kKey:
        return name(c);
      case State::kBetween:
        return between(c);
      case State::kValue:
        value(c);
        return Step::kMore;
      case State::kBehind:
        break;
    }
    return behind(c);
  }

  /// A name of the function or of an argument, up to '>'.
  Step name(char c) {
    if (c != '>') {
      text_ += c;
      return c == '\n' || c == '<' || text_.size() > kLongestName ? Step::kBad : Step::kMore;
    }
    const std::string named = trimmed(std::exchange(text_, {}));
    if (named.empty()) return Step::kBad;
    if (state_ == State::kName) {
      begin_call(name_ = named);
      state_ = State::kBetween;
      return Step::kMore;
    }
    add_arguments(std::exchange(has_arguments_, true) ? ", " : "{");
    add_arguments(dump_text(named) + ": ");
    type_ = type_of(name_, named);
    is_string_ = type_ == "string";
    if (is_string_) add_arguments("\"");
    is_first_ = true;
    state_ = State::kValue;
    return Step::kMore;
  }

  Step between(char c) {
    if (text_.empty() && is_json_space(c)) return Step::kMore;
    text_ += c;
    if (text_ == kFunctionEnd) {
      add_arguments(has_arguments_ ? "}" : "{}");
      end_call();
      text_.clear();
      state_ = State::kBehind;
      return Step::kMore;
    }
    if (text_ == kParameter) {
      text_.clear();
      state_ = State::kKey;
      return Step::kMore;
    }
    const bool may_be = kFunctionEnd.starts_with(text_) || kParameter.starts_with(text_);
    return may_be ? Step::kMore : Step::kBad;
  }

  void value(char c) {
    if (std::exchange(is_first_, false) && c == '\n') return;
    text_ += c;
    if (!text_.ends_with(kParameterEnd)) {
      if (is_string_) give_string(text_.size() - held_back());
      return;
    }
    text_.resize(text_.size() - kParameterEnd.size());
    if (text_.ends_with('\n')) text_.pop_back();
    if (is_string_) {
      give_string(text_.size());
      add_arguments("\"");
    } else {
      add_arguments(value_json(text_, type_));
    }
    text_.clear();
    state_ = State::kBetween;
  }

  /// How many last bytes may begin the end of the value.
  size_t held_back() const {
    const std::string_view text = text_;
    for (size_t size = std::min(text.size(), kLastOfValue.size()); size > 0; --size) {
      const std::string_view last = text.substr(text.size() - size);
      if (kLastOfValue.starts_with(last) || kParameterEnd.starts_with(last)) return size;
    }
    return 0;
  }

  void give_string(size_t ready) {
    add_string_part(std::string_view(text_).substr(0, ready));
    text_.erase(0, ready);
  }

  /// The outer tag's end, which may be missing.
  Step behind(char c) {
    if (text_.find('<') == std::string::npos && is_json_space(c)) {
      text_ += c;
      return Step::kMore;
    }
    const size_t tag = std::min(text_.find('<'), text_.size());
    const Match match = match_of(text_.substr(tag) + c, kCallEnd);
    if (match == Match::kYes) return Step::kDone;
    if (match == Match::kNo) return Step::kDoneBefore;
    text_ += c;
    return Step::kMore;
  }

  std::string not_mine() override {
    return state_ == State::kBehind ? std::exchange(text_, {}) : "";
  }
  bool only_closes() const override { return state_ == State::kBehind; }

  enum class State { kBefore, kName, kBetween, kKey, kValue, kBehind };
  State state_ = State::kBefore;
  Expected expected_{kFunction};
  std::string text_, name_;
  Json type_;  ///< of the argument that is read
  bool has_arguments_ = false, is_string_ = false, is_first_ = false;
};

}  // namespace

std::unique_ptr<ToolCallParser> make_qwen_coder_reader(ToolCallOptions options) {
  return std::make_unique<QwenCoderReader>(std::move(options));
}

}  // namespace danlu::api
