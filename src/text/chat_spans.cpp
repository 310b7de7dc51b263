#include "text/chat_spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/jinja/python_text.h"

namespace danlu::text {

namespace {

constexpr size_t kNone = std::string_view::npos;
/// Stands for an answer's content in a probe; no text, template or tokenizer has it.
constexpr char kProbe[] = "danlu-probe-7f3a9c";

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

bool has_tool_calls(const Message& message) {
  const auto calls = message.extra.find("tool_calls");
  return calls != message.extra.end() && !calls->empty();
}

class SpanFinder {
 public:
  SpanFinder(const ChatRenderer& renderer, const std::vector<Message>& messages, const std::string& full,
             const SpecialIndex& special, std::string_view eos_text)
      : renderer_(renderer), messages_(messages), full_(full), special_(special), eos_text_(eos_text) {}

  ByteSpan find(size_t message, size_t not_before) {
    prompt_ = renderer_.render(message, true);
    ByteSpan span;
    if (full_.starts_with(prompt_) && prompt_.size() >= not_before) {
      span.begin = prompt_.size();
    } else if (const auto begin = begin_in_rewritten_history(message, not_before)) {
      span.begin = *begin;
    } else {
      throw DataError(fmt::format("message {}: the chat template prints this answer in a way that cannot be told from the "
                                  "rest of the text, so it cannot be a training target", message + 1));
    }
    span.end = find_end(message, span.begin);
    return span;
  }

 private:
  std::optional<size_t> begin_in_rewritten_history(size_t message, size_t not_before) {
    for (const auto search : {&SpanFinder::begin_by_probe, &SpanFinder::begin_by_difference,
                              &SpanFinder::begin_after_shared_header}) {
      try {
        if (const auto begin = (this->*search)(message, not_before)) return begin;
      } catch (const DataError&) {
        // The template refuses this altered conversation: nothing can be learnt from it.
      }
    }
    return std::nullopt;
  }

  /// Replaces the content: what stays the same before and after it gives the place.
  std::optional<size_t> begin_by_probe(size_t message, size_t not_before) {
    const std::string probed = renderer_.render_with_content(message, kProbe);
    const size_t begin = probed.find(kProbe);
    if (begin == kNone || begin < not_before || begin > full_.size()) return std::nullopt;
    const std::string_view after = std::string_view(probed).substr(begin + sizeof kProbe - 1);
    const bool same = full_.compare(0, begin, probed, 0, begin) == 0 && full_.size() >= begin + after.size() &&
                      std::string_view(full_).ends_with(after);
    return same ? std::optional(begin) : std::nullopt;
  }

  /// The text the answer adds to the messages before it, found where its surroundings agree best.
  std::optional<size_t> begin_by_difference(size_t message, size_t not_before) {
    const std::string with_answer = renderer_.render(message + 1, false);
    if (!with_answer.starts_with(prompt_) || with_answer.size() == prompt_.size()) return std::nullopt;
    const std::string_view answer = std::string_view(with_answer).substr(prompt_.size());
    std::optional<size_t> best;
    size_t best_context = 0;
    for (size_t at = full_.find(answer, not_before); at != kNone; at = full_.find(answer, at + 1)) {
      const size_t context = common_suffix(std::string_view(full_).substr(0, at), prompt_);
      if (context > best_context) {
        best = at;
        best_context = context;
      }
    }
    return best;
  }

  /// The prompt and the final text part somewhere in the answer's header: begin after its last special token.
  std::optional<size_t> begin_after_shared_header(size_t message, size_t not_before) {
    const size_t before = renderer_.render(message, false).size();
    const size_t shared = common_prefix(prompt_, full_);
    if (shared < before) return std::nullopt;
    size_t begin = before;
    for (size_t at = special_.find(full_, before); at < shared; at = special_.find(full_, at)) {
      at += special_.length_at(full_, at);
      if (at > shared) break;
      begin = at;
    }
    return begin >= not_before ? std::optional(begin) : std::nullopt;
  }

  size_t find_end(size_t message, size_t begin) {
    if (has_tool_calls(messages_[message])) return end_of_tool_calls(message, begin);
    const size_t content_end = find_content_end(messages_[message].content, begin);
    const size_t end = end_of_turn(full_, content_end, special_, eos_text_);
    if (end != kNone) return end;
    // Not directly after the content: the next special token closes the turn, in this message's text.
    const size_t limit = text_end(message);
    const size_t next = special_.find(full_, content_end);
    if (next < limit) return end_of_turn(full_, next, special_, eos_text_);
    return std::max(content_end, begin + jinja::strip(std::string_view(full_).substr(begin, limit - begin), false, true).size());
  }

  /// Where the content, as the template printed it, ends; `begin` if it cannot be seen.
  size_t find_content_end(const std::string& content, size_t begin) const {
    std::string_view candidates[] = {content, jinja::strip(content), content};
    if (const size_t think = content.rfind("</think>"); think != kNone) {
      candidates[2] = jinja::strip(std::string_view(content).substr(think + 8));
    }
    const std::string_view text = full_;
    for (const std::string_view candidate : candidates) {
      if (text.substr(begin).starts_with(candidate)) return begin + candidate.size();
    }
    for (const std::string_view candidate : candidates) {
      if (const size_t at = candidate.empty() ? kNone : text.find(candidate, begin); at != kNone) return at + candidate.size();
    }
    return begin;
  }

  /// Where the text of the messages up to this one ends in the final text.
  size_t text_end(size_t message) const {
    if (message + 1 == messages_.size()) return full_.size();
    return common_prefix(renderer_.render(message + 1, false), full_);
  }

  /// Tool calls may hold special tokens of their own: the last end-of-turn token counts.
  size_t end_of_tool_calls(size_t message, size_t begin) const {
    size_t limit = text_end(message);
    if (limit <= begin) limit = next_answer_or_end(message);
    const std::string_view text = std::string_view(full_).substr(0, limit);
    if (!eos_text_.empty()) {
      const size_t eos = text.rfind(eos_text_);
      if (eos != kNone && eos >= begin) return eos + eos_text_.size();
    }
    size_t end = begin;
    for (size_t at = special_.find(text, begin); at != kNone; at = special_.find(text, at)) {
      at += special_.length_at(text, at);
      end = at;
    }
    return end > begin ? end : begin + jinja::strip(text.substr(begin), false, true).size();
  }

  /// Rewritten history: the turn ends at the first eos after it begins, or with the text.
  size_t next_answer_or_end(size_t message) const {
    const size_t begin = std::min(prompt_.size(), full_.size());
    const size_t eos = eos_text_.empty() ? kNone : full_.find(eos_text_, begin);
    return eos == kNone ? full_.size() : eos + eos_text_.size();
  }

  const ChatRenderer& renderer_;
  const std::vector<Message>& messages_;
  const std::string& full_;
  const SpecialIndex& special_;
  std::string_view eos_text_;
  std::string prompt_;
};

}  // namespace

size_t end_of_turn(std::string_view text, size_t position, const SpecialIndex& special, std::string_view eos_text) {
  size_t at = position;
  while (at < text.size() && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r')) ++at;
  const size_t length = special.length_at(text, at);
  if (length == 0) return kNone;
  const bool is_eos = text.substr(at, length) == eos_text;
  at += length;
  if (!is_eos && !eos_text.empty() && text.substr(at).starts_with(eos_text)) at += eos_text.size();
  return at;
}

std::vector<ByteSpan> find_answer_spans(const ChatRenderer& renderer, const std::vector<Message>& messages,
                                        const std::string& full, const SpecialIndex& special, std::string_view eos_text) {
  SpanFinder finder(renderer, messages, full, special, eos_text);
  std::vector<ByteSpan> spans;
  size_t not_before = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant" || !messages[i].train) continue;
    const ByteSpan span = finder.find(i, not_before);
    not_before = span.end;
    spans.push_back(span);
  }
  return spans;
}

}  // namespace danlu::text
