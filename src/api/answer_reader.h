// api/answer_reader.h: the tokens of an answer into what a client is told: content, thoughts,
// calls.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/reasoning.h"
#include "api/stop_strings.h"
#include "api/tool_calls.h"
#include "text/tokenizer.h"

namespace danlu::api {

struct AnswerReaderSettings {
  bool skips_special = true;
  /// What the text goes on from, its last few tokens at least: alone it could lack the space that
  /// it begins with (SentencePiece). A character that these leave incomplete is part of the answer.
  std::vector<text::TokenId> before = {};
  std::vector<std::string> stop = {};
  bool includes_stop = false;
  int64_t min_tokens = 0;  ///< no stop string ends the text that so many tokens gave
  Thought thought = Thought::kNone;
  std::optional<text::ToolFormat> tool_format = {};  ///< none: calls are content
  Json tools = Json::array();
  bool whole_calls = false;  ///< calls come when they are complete; a broken one is content
  bool one_call = false;     ///< further ones are left out
};

/// What AnswerReaderSettings::before wants of a prompt.
std::vector<text::TokenId> text_before(std::span<const text::TokenId> prompt);

/// A stream that has read `before`.
text::DecodeStream stream_behind(std::shared_ptr<const text::Tokenizer> tokenizer,
                                 bool skips_special, std::span<const text::TokenId> before);

/// What one more token told.
struct AnswerPiece {
  std::string content, reasoning;
  std::vector<ToolCallEvent> calls = {};  ///< without content

  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
};

/// Put together, the pieces do not depend on which tokens the text came in. Not thread-safe.
class AnswerReader {
 public:
  AnswerReader(std::shared_ptr<const text::Tokenizer> tokenizer, AnswerReaderSettings settings);

  AnswerPiece push(text::TokenId id);
  /// What was held back, once no token follows.
  AnswerPiece finish();

  /// The stop string that ended it: further tokens give nothing.
  const std::optional<std::string>& stopped_by() const { return stops_.found(); }
  bool has_called() const { return has_called_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  AnswerPiece read(const std::string& text, bool is_last);
  void add_content(const std::string& text, bool is_last, AnswerPiece* piece);

  AnswerReaderSettings settings_;
  text::DecodeStream decoder_;
  StopStrings stops_;
  ReasoningSplitter splitter_;
  std::unique_ptr<ToolCallParser> calls_;
  int64_t num_tokens_ = 0, reasoning_tokens_ = 0;
  bool has_called_ = false;
};

}  // namespace danlu::api
