// api/reasoning.h: parts what a model thinks (<think>…</think>) from what it answers.
#pragma once
#include <string>
#include <string_view>

namespace danlu::api {

/// How an answer may begin.
enum class Thought {
  kNone,     ///< all of it is content
  kMayOpen,  ///< with <think>, after white space
  kOpen,     ///< inside a thought that the prompt has opened; it may say <think> again
  kInside,   ///< amid a thought whose beginning the prompt has
};

/// By how the prompt ends: kOpen after "<think>", kNone after "</think>" (as templates write it for
/// enable_thinking false), else kMayOpen.
Thought thought_after(std::string_view prompt);

/// By a message that the answer goes on with: kOpen or kInside where it leaves a thought open, else
/// kNone.
Thought thought_within(std::string_view message);

struct ThoughtAndContent {
  std::string reasoning, content;
};

/// A thought stands at the beginning of an answer and ends at the first </think>; one that is never
/// closed is all there is. Tags, white space at both ends of the thought and line breaks after it
/// are in neither part. What is returned, put together, does not depend on how the text was cut.
/// Not thread-safe.
class ReasoningSplitter {
 public:
  explicit ReasoningSplitter(Thought thought)
      : state_(first_state(thought)), thought_begun_(thought == Thought::kInside) {}

  ThoughtAndContent push(std::string_view piece);
  /// What is still held back, once nothing follows.
  ThoughtAndContent finish();
  /// Whether the text so far ends inside a thought.
  bool is_thinking() const { return state_ == State::kThoughtBegin || state_ == State::kThought; }

 private:
  enum class State { kBegin, kThoughtBegin, kThought, kContentBegin, kContent };
  static State first_state(Thought thought);
  void add(char c, ThoughtAndContent& out);
  void begin(char c, ThoughtAndContent& out);
  void think(char c, ThoughtAndContent& out);
  void release_thought(ThoughtAndContent& out);

  State state_;
  std::string held_;  ///< white space and the beginning of a tag
  bool thought_begun_;
};

}  // namespace danlu::api
