// api/call_reader.h: what the forms of tool calls have in common.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/json_scanner.h"
#include "api/tool_calls.h"

namespace danlu::api {

/// Whether a text is, or may become, something.
enum class Match { kNo, kMayBe, kYes };

inline Match match_of(std::string_view text, std::string_view literal) {
  if (text == literal) return Match::kYes;
  return literal.starts_with(text) ? Match::kMayBe : Match::kNo;
}

/// Without white space around it.
std::string trimmed(const std::string& text);

/// White space, then a literal, byte by byte.
class Expected {
 public:
  explicit Expected(std::string_view literal) : literal_(literal) {}
  Step add(char c) {
    if (at_ == 0 && is_json_space(c)) return Step::kMore;
    if (c != literal_[at_]) return Step::kBad;
    return ++at_ == literal_.size() ? Step::kDone : Step::kMore;
  }

 private:
  std::string_view literal_;
  size_t at_ = 0;
};

/// Finds the mark that begins calls and hands on what follows it, byte by byte.
class CallReader : public ToolCallParser {
 public:
  explicit CallReader(ToolCallOptions options) : options_(std::move(options)) {}
  std::vector<ToolCallEvent> push(std::string_view piece) override;
  std::vector<ToolCallEvent> finish() override;

 protected:
  /// Whether `text`, which begins with no white space, is the mark. No byte of a mark but its first
  /// may begin one.
  virtual Match is_mark(std::string_view text) const = 0;
  /// After the mark, which was `mark`. kBad: no call, as far as none was given out.
  virtual Step begin_calls(std::string_view mark) = 0;
  /// A byte after it. kDoneBefore: not_mine() too is not part of it.
  virtual Step in_calls(char c) = 0;
  /// What was read of something that turned out to be none, before the byte of kDoneBefore.
  virtual std::string not_mine() { return {}; }
  /// What was read since the last call can only be brackets and tags that close it.
  virtual bool only_closes() const { return false; }

  /// What was read of something that is no call becomes content, though more of it follows.
  void give_back();
  /// A part of a string among the arguments, as JSON without its quotes.
  void add_string_part(std::string_view text);
  /// What the schema of a tool says of an argument's "type"; null: nothing.
  Json type_of(const std::string& function, const std::string& argument) const;
  void begin_call(const std::string& name);
  void add_arguments(std::string_view fragment);
  void end_call();
  /// Nothing but white space stands between the last call and here.
  bool is_after_call() const { return after_call_; }
  const ToolCallOptions& options() const { return options_; }

 private:
  void add(char c);
  void seek(char c);
  void leave(Step step, char c);
  void break_call();
  void add_content(std::string_view text);

  ToolCallOptions options_;
  std::vector<ToolCallEvent> events_;
  size_t num_calls_ = 0;
  bool in_calls_ = false, in_call_ = false, after_call_ = false;
  std::string held_;          ///< white space and what may be the mark
  std::string raw_;           ///< what was read since then that is not given out
  size_t events_before_ = 0;  ///< where the events of the call begin (whole_calls)
};

}  // namespace danlu::api
