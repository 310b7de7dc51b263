#include "api/call_reader.h"

#include "base/json_text.h"

namespace danlu::api {
namespace {

std::string_view without_json_space(std::string_view text) {
  const size_t first = text.find_first_not_of(" \n\t\r");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

}  // namespace

std::string trimmed(const std::string& text) {
  const std::string_view rest = without_json_space(text);
  return std::string(rest.substr(0, rest.find_last_not_of(" \n\t\r") + 1));
}

std::vector<ToolCallEvent> CallReader::push(std::string_view piece) {
  for (const char c : piece) add(c);
  if (!options_.whole_calls || !in_call_) {
    events_before_ = 0;
    return std::exchange(events_, {});
  }
  std::vector<ToolCallEvent> ready(std::make_move_iterator(events_.begin()),
                                   std::make_move_iterator(events_.begin() + events_before_));
  events_.erase(events_.begin(), events_.begin() + events_before_);
  events_before_ = 0;
  return ready;
}

std::vector<ToolCallEvent> CallReader::finish() {
  if (in_calls_) {
    if (only_closes()) raw_.clear();
    break_call();
    add_content(std::exchange(raw_, {}));
  } else if (!after_call_ || !without_json_space(held_).empty()) {
    add_content(held_);
  }
  held_.clear();
  in_calls_ = false;
  return std::exchange(events_, {});
}

void CallReader::add(char c) {
  if (!in_calls_) return seek(c);
  raw_ += c;
  leave(in_calls(c), c);
}

void CallReader::seek(char c) {
  held_ += c;
  const std::string_view text = without_json_space(held_);
  const Match match = text.empty() ? Match::kMayBe : is_mark(text);
  if (match == Match::kMayBe) return;
  if (match == Match::kYes) {
    const std::string mark(text);
    raw_ = std::exchange(held_, {});
    in_calls_ = true;
    return leave(begin_calls(mark), 0);
  }
  // Only the last of these bytes can begin a mark.
  held_.pop_back();
  if (held_.empty()) return add_content({&c, 1});
  add_content(std::exchange(held_, {}));
  seek(c);
}

void CallReader::leave(Step step, char c) {
  if (step == Step::kMore) return;
  if (step == Step::kDone) {
    in_calls_ = false;
    raw_.clear();
    return;
  }
  std::string again = not_mine();
  if (step == Step::kBad) {
    break_call();
    if (!raw_.empty()) raw_.pop_back();
    add_content(raw_);
    again.clear();
  }
  in_calls_ = false;
  raw_.clear();
  again += c;
  for (const char a : again) add(a);
}

/// Takes back what was not given out of the call, or says that it is broken.
void CallReader::break_call() {
  if (!std::exchange(in_call_, false)) return;
  if (options_.whole_calls) {
    --num_calls_;
    events_.resize(events_before_, ToolCallEvent{ToolCallEvent::Kind::kContent, {}});
  } else {
    events_.push_back({ToolCallEvent::Kind::kBroken, {}, num_calls_ - 1});
  }
}

void CallReader::begin_call(const std::string& name) {
  events_before_ = events_.size();
  in_call_ = true;
  events_.push_back({ToolCallEvent::Kind::kBegin, {}, num_calls_++, options_.make_id(), name});
  if (!options_.whole_calls) raw_.clear();
}

void CallReader::add_arguments(std::string_view fragment) {
  if (fragment.empty()) return;
  if (!options_.whole_calls) raw_.clear();
  if (!events_.empty() && events_.back().kind == ToolCallEvent::Kind::kArguments) {
    events_.back().text += fragment;
  } else {
    events_.push_back({ToolCallEvent::Kind::kArguments, std::string(fragment), num_calls_ - 1});
  }
}

void CallReader::end_call() {
  events_.push_back({ToolCallEvent::Kind::kEnd, {}, num_calls_ - 1});
  in_call_ = false;
  after_call_ = true;
  raw_.clear();
  events_before_ = events_.size();
}

void CallReader::give_back() { add_content(std::exchange(raw_, {})); }

void CallReader::add_string_part(std::string_view text) {
  for (const char c : text) {
    const bool is_plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
    const std::string escaped = is_plain ? std::string(1, c) : dump_text(std::string(1, c));
    add_arguments(is_plain ? escaped : escaped.substr(1, escaped.size() - 2));
  }
}

Json CallReader::type_of(const std::string& function, const std::string& argument) const {
  for (const Json& tool : options_.tools) {
    const Json& one = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!one.is_object() || one.value("name", Json()) != function) continue;
    const Json::json_pointer place =
        Json::json_pointer("/parameters/properties") / argument / "type";
    if (one.contains(place)) return one[place];
  }
  return nullptr;
}

void CallReader::add_content(std::string_view text) {
  if (text.empty()) return;
  after_call_ = false;
  if (!events_.empty() && events_.back().kind == ToolCallEvent::Kind::kContent) {
    events_.back().text += text;
  } else {
    events_.push_back({ToolCallEvent::Kind::kContent, std::string(text)});
  }
}

}  // namespace danlu::api
