#include "api/json_scanner.h"

#include <cstring>

#include "base/json_text.h"

namespace danlu::api {
namespace {

bool is_json_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) {
  return is_json_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

Step JsonScanner::add(char c) {
  switch (state_) {
    case State::kValue:
      return is_json_space(c) && !open_.empty() ? Step::kMore : value(c);
    case State::kFirstElement:
      if (is_json_space(c)) return Step::kMore;
      return c == ']' ? after_value(c) : value(c);
    case State::kFirstKey:
      if (c == '}') return after_value(c);
      [[fallthrough]];
    case State::kKey:
      if (is_json_space(c)) return Step::kMore;
      if (c != '"') return Step::kBad;
      in_key_ = true;
      state_ = State::kString;
      return Step::kMore;
    case State::kColon:
      if (c == ':') state_ = State::kValue;
      return c == ':' || is_json_space(c) ? Step::kMore : Step::kBad;
    case State::kAfterValue:
      return is_json_space(c) ? Step::kMore : after_value(c);
    case State::kString:
    case State::kEscape:
    case State::kHex:
      return string(c);
    case State::kWord:
      if (c != *word_) return Step::kBad;
      return *++word_ ? Step::kMore : end_of_value();
    default:
      return number(c);
  }
}

bool JsonScanner::may_end() const {
  return open_.empty() && (state_ == State::kZero || state_ == State::kInteger ||
                           state_ == State::kFraction || state_ == State::kExponent);
}

Step JsonScanner::value(char c) {
  switch (c) {
    case '{':
    case '[':
      if (open_.size() == kMaxJsonDepth) return Step::kBad;
      open_ += c;
      state_ = c == '{' ? State::kFirstKey : State::kFirstElement;
      return Step::kMore;
    case '"':
      in_key_ = false;
      state_ = State::kString;
      return Step::kMore;
    case '-':
      state_ = State::kMinus;
      return Step::kMore;
    case '0':
      state_ = State::kZero;
      return Step::kMore;
    case 't':
    case 'f':
    case 'n':
      word_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
      state_ = State::kWord;
      return Step::kMore;
    default:
      if (!is_json_digit(c)) return Step::kBad;
      state_ = State::kInteger;
      return Step::kMore;
  }
}

/// REQUIRES: a bracket is open.
Step JsonScanner::after_value(char c) {
  const bool in_object = open_.back() == '{';
  if (c == ',') {
    state_ = in_object ? State::kKey : State::kValue;
    return Step::kMore;
  }
  if (c != (in_object ? '}' : ']')) return Step::kBad;
  open_.pop_back();
  return end_of_value();
}

Step JsonScanner::string(char c) {
  if (static_cast<unsigned char>(c) < 0x20) return Step::kBad;
  if (state_ == State::kHex) {
    if (!is_hex_digit(c)) return Step::kBad;
    if (--hex_left_ == 0) state_ = State::kString;
  } else if (state_ == State::kEscape) {
    if (!std::strchr("\"\\/bfnrtu", c)) return Step::kBad;
    hex_left_ = 4;
    state_ = c == 'u' ? State::kHex : State::kString;
  } else if (c == '\\') {
    state_ = State::kEscape;
  } else if (c == '"') {
    if (!in_key_) return end_of_value();
    state_ = State::kColon;
  }
  return Step::kMore;
}

Step JsonScanner::number(char c) {
  switch (state_) {
    case State::kMinus:
      if (!is_json_digit(c)) return Step::kBad;
      state_ = c == '0' ? State::kZero : State::kInteger;
      return Step::kMore;
    case State::kInteger:
      if (is_json_digit(c)) return Step::kMore;
      [[fallthrough]];
    case State::kZero:
      if (c == '.') state_ = State::kPoint;
      if (c == 'e' || c == 'E') state_ = State::kExponentSign;
      return c == '.' || c == 'e' || c == 'E' ? Step::kMore : end_of_number(c);
    case State::kFraction:
      if (c == 'e' || c == 'E') {
        state_ = State::kExponentSign;
        return Step::kMore;
      }
      return is_json_digit(c) ? Step::kMore : end_of_number(c);
    case State::kPoint:
      state_ = State::kFraction;
      return is_json_digit(c) ? Step::kMore : Step::kBad;
    case State::kExponentSign:
      state_ = is_json_digit(c) ? State::kExponent : State::kExponentDigits;
      return is_json_digit(c) || c == '+' || c == '-' ? Step::kMore : Step::kBad;
    case State::kExponentDigits:
      state_ = State::kExponent;
      return is_json_digit(c) ? Step::kMore : Step::kBad;
    default:  // kExponent
      return is_json_digit(c) ? Step::kMore : end_of_number(c);
  }
}

Step JsonScanner::end_of_value() {
  state_ = State::kAfterValue;
  return open_.empty() ? Step::kDone : Step::kMore;
}

Step JsonScanner::end_of_number(char c) {
  if (open_.empty()) return Step::kDoneBefore;
  state_ = State::kAfterValue;
  return is_json_space(c) ? Step::kMore : after_value(c);
}

Step JsonCall::add(char c) {
  switch (state_) {
    case State::kOpen:
      state_ = State::kFirstKey;
      return c == '{' ? Step::kMore : Step::kBad;
    case State::kFirstKey:
      if (c == '}') return end();
      [[fallthrough]];
    case State::kKey:
      if (is_json_space(c)) return Step::kMore;
      if (c != '"') return Step::kBad;
      state_ = State::kInKey;
      scanner_ = JsonScanner();
      text_.clear();
      [[fallthrough]];
    case State::kInKey: {
      text_ += c;
      const Step step = scanner_.add(c);
      if (step == Step::kDone) {
        state_ = State::kColon;
        return end_of_key() ? Step::kMore : Step::kBad;
      }
      return step;
    }
    case State::kColon:
      if (c == ':') state_ = State::kBeforeValue;
      return c == ':' || is_json_space(c) ? Step::kMore : Step::kBad;
    case State::kBeforeValue:
      return is_json_space(c) ? Step::kMore : begin_value(c);
    case State::kValue:
      return in_value(c);
    case State::kAfter:
      break;
  }
  if (c == ',') state_ = State::kKey;
  if (c == '}') return end();
  return c == ',' || is_json_space(c) ? Step::kMore : Step::kBad;
}

bool JsonCall::end_of_key() {
  const auto key = try_parse_json(text_);
  if (!key) return false;
  if (*key == "name") {
    member_ = Member::kName;
    return !std::exchange(has_name_, true);
  }
  if (*key == "arguments" || (keys_.may_say_parameters && *key == "parameters")) {
    member_ = Member::kArguments;
    return !std::exchange(has_arguments_, true);
  }
  member_ = Member::kOther;
  return !keys_.is_strict || *key == "type" || *key == "id";
}

Step JsonCall::begin_value(char c) {
  state_ = State::kValue;
  scanner_ = JsonScanner();
  text_.clear();
  streams_ = member_ == Member::kArguments && c == '{';
  const bool may_be = member_ == Member::kOther || c == '"' || streams_ ||
                      (member_ == Member::kArguments && c == 'n');
  return may_be ? in_value(c) : Step::kBad;
}

Step JsonCall::in_value(char c) {
  const Step step = scanner_.add(c);
  if (step == Step::kBad) return step;
  if (step != Step::kDoneBefore) {
    if (streams_) {
      give(std::string_view(&c, 1));
    } else if (member_ != Member::kOther) {
      text_ += c;
    }
  }
  if (step == Step::kMore) return step;
  state_ = State::kAfter;
  if (!streams_ && !end_of_value()) return Step::kBad;
  return step == Step::kDone ? Step::kMore : add(c);
}

/// Ends the value of a name, or arguments that are no object.
bool JsonCall::end_of_value() {
  if (member_ == Member::kOther) return true;
  const auto value = try_parse_json(text_);
  if (!value) return false;
  if (member_ == Member::kName) {
    name_ = value->get<std::string>();
    if (name_.empty()) return false;
    if (!waiting_.empty()) give("");
    return true;
  }
  if (value->is_null()) {
    give("{}");
    return true;
  }
  const std::string& inner = value->get_ref<const std::string&>();
  const auto object = try_parse_json(inner);
  if (!object || !object->is_object()) return false;
  give(inner);
  return true;
}

void JsonCall::give(std::string_view text) {
  if (name_.empty()) {
    waiting_ += text;
    return;
  }
  if (!std::exchange(has_begun_, true)) begin_(name_);
  if (!waiting_.empty()) arguments_(std::exchange(waiting_, {}));
  if (!text.empty()) arguments_(text);
}

Step JsonCall::end() {
  if (name_.empty() || (!has_arguments_ && keys_.needs_arguments)) return Step::kBad;
  if (!has_arguments_) give("{}");
  return Step::kDone;
}

}  // namespace danlu::api
