#include "api/reasoning.h"

#include <utility>

namespace danlu::api {
namespace {

constexpr std::string_view kThinkOpen = "<think>", kThinkClose = "</think>";
constexpr std::string_view kThoughtSpace = " \t\r\n";

bool is_thought_space(char c) { return kThoughtSpace.find(c) != std::string_view::npos; }

std::string_view without_space_in_front(std::string_view text) {
  const size_t first = text.find_first_not_of(kThoughtSpace);
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

}  // namespace

Thought thought_after(std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(kThoughtSpace);
  prompt = prompt.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (prompt.ends_with(kThinkOpen)) return Thought::kOpen;
  return prompt.ends_with(kThinkClose) ? Thought::kNone : Thought::kMayOpen;
}

Thought thought_within(std::string_view message) {
  const size_t open = message.rfind(kThinkOpen), close = message.rfind(kThinkClose);
  const bool is_open =
      open != std::string_view::npos && (close == std::string_view::npos || close < open);
  if (!is_open) return Thought::kNone;
  const std::string_view thought = message.substr(open + kThinkOpen.size());
  return without_space_in_front(thought).empty() ? Thought::kOpen : Thought::kInside;
}

ReasoningSplitter::State ReasoningSplitter::first_state(Thought thought) {
  switch (thought) {
    case Thought::kMayOpen:
      return State::kBegin;
    case Thought::kOpen:
      return State::kThoughtBegin;
    case Thought::kInside:
      return State::kThought;
    case Thought::kNone:
      break;
  }
  return State::kContent;
}

ThoughtAndContent ReasoningSplitter::push(std::string_view piece) {
  ThoughtAndContent out;
  for (const char c : piece) add(c, out);
  return out;
}

void ReasoningSplitter::add(char c, ThoughtAndContent& out) {
  switch (state_) {
    case State::kBegin:
    case State::kThoughtBegin:
      return begin(c, out);
    case State::kThought:
      return think(c, out);
    case State::kContentBegin:
      if (c == '\n') return;
      state_ = State::kContent;
      break;
    case State::kContent:
      break;
  }
  out.content += c;
}

/// Before the first character that is neither white space nor of an opening tag.
void ReasoningSplitter::begin(char c, ThoughtAndContent& out) {
  held_ += c;
  const std::string_view tag = without_space_in_front(held_);
  if (tag == kThinkOpen) {
    held_.clear();
    state_ = State::kThought;
    return;
  }
  if (kThinkOpen.starts_with(tag)) return;
  const std::string held = std::exchange(held_, {});
  if (state_ == State::kThoughtBegin) {
    state_ = State::kThought;
    for (const char h : held) think(h, out);
  } else {
    state_ = State::kContent;
    out.content += held;
  }
}

/// held_: white space, then what may begin a closing tag.
void ReasoningSplitter::think(char c, ThoughtAndContent& out) {
  held_ += c;
  const std::string_view tag = without_space_in_front(held_);
  if (tag == kThinkClose) {
    held_.clear();
    state_ = State::kContentBegin;
    return;
  }
  if (kThinkClose.starts_with(tag)) return;
  // Only the last of the bytes that are no tag can begin one.
  const bool holds_last = c == '<' || is_thought_space(c);
  if (holds_last) held_.pop_back();
  release_thought(out);
  if (holds_last) held_ = c;
}

void ReasoningSplitter::release_thought(ThoughtAndContent& out) {
  const std::string held = std::exchange(held_, {});
  out.reasoning += thought_begun_ ? std::string_view(held) : without_space_in_front(held);
  thought_begun_ = true;
}

ThoughtAndContent ReasoningSplitter::finish() {
  ThoughtAndContent out;
  if (state_ == State::kBegin) {
    out.content = std::exchange(held_, {});
  } else if (is_thinking() && held_.find('<') != std::string::npos) {
    // White space at the end of a thought is not part of it; half a tag is.
    release_thought(out);
  }
  held_.clear();
  return out;
}

}  // namespace danlu::api
