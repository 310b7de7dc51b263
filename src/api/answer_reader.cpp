#include "api/answer_reader.h"

#include <algorithm>
#include <utility>

namespace danlu::api {

std::vector<text::TokenId> text_before(std::span<const text::TokenId> prompt) {
  constexpr size_t kContext = 32;  // more than a character, and special tokens at the end
  const auto last = prompt.last(std::min(kContext, prompt.size()));
  return {last.begin(), last.end()};
}

text::DecodeStream stream_behind(std::shared_ptr<const text::Tokenizer> tokenizer,
                                 bool skips_special, std::span<const text::TokenId> before) {
  text::DecodeStream stream(std::move(tokenizer), skips_special);
  for (const text::TokenId id : before) stream.push(id);
  return stream;
}

AnswerReader::AnswerReader(std::shared_ptr<const text::Tokenizer> tokenizer,
                           AnswerReaderSettings settings)
    : settings_(std::move(settings)),
      // Marks of calls may be special tokens.
      decoder_(stream_behind(std::move(tokenizer),
                             settings_.skips_special && !settings_.tool_format, settings_.before)),
      stops_(settings_.stop, settings_.includes_stop),
      splitter_(settings_.thought) {
  if (settings_.tool_format)
    calls_ = make_tool_call_parser(
        *settings_.tool_format,
        {.tools = settings_.tools, .whole_calls = settings_.whole_calls, .make_id = {}});
}

AnswerPiece AnswerReader::push(text::TokenId id) {
  if (stopped_by()) return {};
  ++num_tokens_;
  const std::string text = decoder_.push(id);
  AnswerPiece piece = read(num_tokens_ <= settings_.min_tokens ? text : stops_.push(text), false);
  if (splitter_.is_thinking()) ++reasoning_tokens_;
  return piece;
}

AnswerPiece AnswerReader::finish() {
  if (stopped_by()) return read("", true);
  std::string text = stops_.push(decoder_.finish());
  text += stops_.finish();
  return read(text, true);
}

AnswerPiece AnswerReader::read(const std::string& text, bool is_last) {
  AnswerPiece piece;
  ThoughtAndContent parts = splitter_.push(text);
  if (is_last) {
    ThoughtAndContent rest = splitter_.finish();
    parts.reasoning += rest.reasoning;
    parts.content += rest.content;
  }
  piece.reasoning = std::move(parts.reasoning);
  add_content(parts.content, is_last, &piece);
  return piece;
}

void AnswerReader::add_content(const std::string& text, bool is_last, AnswerPiece* piece) {
  if (!calls_) {
    piece->content = text;
    return;
  }
  const auto take = [&](std::vector<ToolCallEvent> events) {
    for (ToolCallEvent& event : events) {
      if (event.kind == ToolCallEvent::Kind::kContent) {
        piece->content += event.text;
      } else if (!settings_.one_call || event.index == 0) {
        has_called_ = has_called_ || event.kind == ToolCallEvent::Kind::kBegin;
        piece->calls.push_back(std::move(event));
      }
    }
  };
  if (!text.empty()) take(calls_->push(text));
  if (is_last) take(calls_->finish());
}

}  // namespace danlu::api
