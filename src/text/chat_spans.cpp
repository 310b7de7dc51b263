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
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first -
                             a.rbegin());
}

bool has_tool_calls(const Message& message) {
  const auto calls = message.extra.find("tool_calls");
  return calls != message.extra.end() && !calls->empty();
}

class SpanFinder {
 public:
  SpanFinder(const ChatRenderer& renderer, const std::vector<Message>& messages,
             const std::string& full, const SpecialIndex& special,
             const std::vector<std::string>& closers, const std::string& plain_end)
      : renderer_(renderer),
        messages_(messages),
        full_(full),
        special_(special),
        closers_(closers),
        plain_end_(plain_end) {}

  ByteSpan find(size_t message, size_t not_before) {
    prompt_ = renderer_.render(message, true);
    ByteSpan span;
    if (full_.starts_with(prompt_) && prompt_.size() >= not_before) {
      span.begin = prompt_.size();
    } else if (const auto begin = begin_in_rewritten_history(message, not_before)) {
      span.begin = *begin;
    } else {
      throw DataError(tr(
          "message {}: the chat template prints this answer in a way that cannot be told from the "
          "rest of the text, so it cannot be a training target",
          message + 1));
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
        continue;  // the template refuses this altered conversation: nothing is learnt from it
      }
    }
    return std::nullopt;
  }

  /// Replaces the content: what stays the same before and after it gives the place.
  std::optional<size_t> begin_by_probe(size_t message, size_t not_before) {
    const std::string probed = renderer_.render_with_contents({{message, kProbe}});
    const size_t begin = probed.find(kProbe);
    if (begin == kNone || begin < not_before || begin > full_.size()) return std::nullopt;
    const std::string_view after = std::string_view(probed).substr(begin + sizeof kProbe - 1);
    const bool same = full_.compare(0, begin, probed, 0, begin) == 0 &&
                      full_.size() >= begin + after.size() &&
                      std::string_view(full_).ends_with(after);
    return same ? std::optional(begin) : std::nullopt;
  }

  /// The text the answer adds to the messages before it, found where its surroundings agree best.
  std::optional<size_t> begin_by_difference(size_t message, size_t not_before) {
    const std::string with_answer = renderer_.render(message + 1, false);
    if (!with_answer.starts_with(prompt_) || with_answer.size() == prompt_.size())
      return std::nullopt;
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

  /// The prompt and the final text part somewhere in the answer's header: begin after its last
  /// special token.
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
    const size_t end = end_of_turn(full_, content_end, special_, closers_);
    if (end != kNone) return end;
    // Not directly after the content: the next special token closes the turn, in this message's
    // text.
    const auto limit = text_end(message);
    const size_t next = special_.find(full_, content_end);
    if (next < limit.value_or(full_.size())) return end_of_turn(full_, next, special_, closers_);
    return limit ? std::max(content_end, trimmed_end(begin, *limit)) : after_plain_end(content_end);
  }

  /// The place after the template's plain end of a turn, if that stands at `position`.
  size_t after_plain_end(size_t position) const {
    const size_t at = full_.find_first_not_of(" \t\r\n", position);
    const bool stands_there =
        !plain_end_.empty() && at != kNone && full_.compare(at, plain_end_.size(), plain_end_) == 0;
    return stands_there ? at + plain_end_.size() : position;
  }

  size_t trimmed_end(size_t begin, size_t end) const {
    return begin +
           jinja::strip(std::string_view(full_).substr(begin, end - begin), false, true).size();
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
      if (const size_t at = candidate.empty() ? kNone : text.find(candidate, begin); at != kNone)
        return at + candidate.size();
    }
    return begin;
  }

  /// Where the text of the messages up to this one ends in the final text; nothing if the template
  /// prints them differently once more messages follow.
  std::optional<size_t> text_end(size_t message) const {
    if (message + 1 == messages_.size()) return full_.size();
    try {
      const std::string alone = renderer_.render(message + 1, false);
      if (full_.starts_with(alone)) return alone.size();
    } catch (const DataError&) {
      return std::nullopt;  // the template refuses the shortened conversation
    }
    return std::nullopt;
  }

  /// Calls may hold special tokens of their own, so the last closer of the turn's text counts;
  /// where that text is not known to end, the first one.
  size_t end_of_tool_calls(size_t message, size_t begin) const {
    const auto limit = text_end(message);
    const std::string_view text = std::string_view(full_).substr(0, limit.value_or(full_.size()));
    size_t end = kNone;
    for (const std::string& closer : closers_) {
      const size_t at = limit ? text.rfind(closer) : text.find(closer, begin);
      if (at == kNone || at < begin) continue;
      const size_t after = at + closer.size();
      end = end == kNone ? after : limit ? std::max(end, after) : std::min(end, after);
    }
    if (end != kNone) return end;
    if (!limit) return after_plain_end(find_content_end(messages_[message].content, begin));
    end = begin;
    for (size_t at = special_.find(text, begin); at != kNone; at = special_.find(text, at)) {
      at += special_.length_at(text, at);
      end = at;
    }
    return end > begin ? end : trimmed_end(begin, text.size());
  }

  const ChatRenderer& renderer_;
  const std::vector<Message>& messages_;
  const std::string& full_;
  const SpecialIndex& special_;
  const std::vector<std::string>& closers_;
  const std::string& plain_end_;
  std::string prompt_;
};

}  // namespace

size_t end_of_turn(std::string_view text, size_t position, const SpecialIndex& special,
                   const std::vector<std::string>& closers) {
  size_t at = position;
  while (at < text.size() &&
         (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r'))
    ++at;
  const size_t length = special.length_at(text, at);
  if (length == 0) return kNone;
  const auto is_closer = [&](std::string_view token) {
    return std::find(closers.begin(), closers.end(), token) != closers.end();
  };
  const bool closed = is_closer(text.substr(at, length));
  at += length;
  const size_t next = special.length_at(text, at);
  if (!closed && next > 0 && is_closer(text.substr(at, next))) at += next;
  return at;
}

std::vector<ByteSpan> find_answer_spans(const ChatRenderer& renderer,
                                        const std::vector<Message>& messages,
                                        const std::string& full, const SpecialIndex& special,
                                        const std::vector<std::string>& closers,
                                        const std::string& plain_end) {
  SpanFinder finder(renderer, messages, full, special, closers, plain_end);
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
