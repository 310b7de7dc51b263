#include "text/tool_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"

namespace danlu::text {
namespace {

constexpr size_t kNoResult = std::string_view::npos;

bool is_result(const Message& message) {
  return message.role != "system" && message.role != "user" && message.role != "assistant";
}

const ByteSpan* span_around(const std::vector<ByteSpan>& spans, const ByteSpan& inner) {
  const auto holds = [&](const ByteSpan& span) {
    return span.begin <= inner.begin && inner.end <= span.end;
  };
  const auto found = std::find_if(spans.begin(), spans.end(), holds);
  return found == spans.end() ? nullptr : &*found;
}

class ResultFinder {
 public:
  ResultFinder(const ChatRenderer& renderer, const std::vector<Message>& messages,
               const std::string& full, const SpecialIndex& special)
      : renderer_(renderer), messages_(messages), full_(full), special_(special) {}

  /// Where in the text the results stand that are inside one of `spans`, with their marks.
  std::vector<ByteSpan> inside(const std::vector<ByteSpan>& spans) const {
    const auto probed = find_by_probes();
    std::vector<ByteSpan> results;
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (!is_result(messages_[i])) continue;
      const auto content = probed ? probed->find(i) : std::map<size_t, ByteSpan>::const_iterator();
      if (probed && content == probed->end()) continue;  // the template does not print it
      if (probed && !span_around(spans, content->second)) continue;
      const auto whole = find_by_absence(i, spans, results.empty() ? 0 : results.back().end,
                                         probed ? std::optional(content->second) : std::nullopt);
      if (whole) {
        results.push_back(*whole);
      } else if (probed) {
        results.push_back(content->second);
      }
    }
    return results;
  }

 private:
  static std::string probe_of(size_t message) {
    return fmt::format("danlu-probe-7f3a9c-{}-", message);
  }

  /// One rendering with a probe for each content: what stands between probes is in the text too.
  /// Nothing if it is not.
  std::optional<std::map<size_t, ByteSpan>> find_by_probes() const {
    std::map<size_t, std::string> contents;
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (is_result(messages_[i])) contents[i] = probe_of(i);
    }
    std::string probed;
    try {
      probed = renderer_.render_with_contents(contents);
    } catch (const DataError&) {
      return std::nullopt;
    }
    std::map<size_t, size_t> places;  // of the probes in their text -> message
    for (const auto& [message, probe] : contents) {
      for (size_t at = probed.find(probe); at != kNoResult; at = probed.find(probe, at + 1))
        places[at] = message;
    }
    return aligned(probed, places);
  }

  std::optional<std::map<size_t, ByteSpan>> aligned(const std::string& probed,
                                                    const std::map<size_t, size_t>& places) const {
    std::map<size_t, ByteSpan> found;
    const std::string_view text = full_;
    size_t at = 0, probed_at = 0;
    for (auto place = places.begin(); place != places.end(); ++place) {
      const std::string_view before =
          std::string_view(probed).substr(probed_at, place->first - probed_at);
      if (text.substr(at, before.size()) != before) return std::nullopt;
      at += before.size();
      probed_at = place->first + probe_of(place->second).size();
      const auto next = std::next(place);
      const std::string_view after = std::string_view(probed).substr(
          probed_at, (next == places.end() ? probed.size() : next->first) - probed_at);
      const size_t end = content_end(place->second, at, after, next == places.end());
      if (end == kNoResult) return std::nullopt;
      found.try_emplace(place->second, ByteSpan{at, end});
      at = end;
    }
    return text.substr(at) == std::string_view(probed).substr(probed_at)
               ? std::optional(std::move(found))
               : std::nullopt;
  }

  /// Where the content of a message that is printed at `at` ends, given what follows it.
  size_t content_end(size_t message, size_t at, std::string_view after, bool is_last) const {
    const std::string_view text = full_;
    if (is_last) return text.size() >= at + after.size() ? text.size() - after.size() : kNoResult;
    // Another content may hold what follows; the message's own is tried before the nearest place.
    const std::string& content = messages_[message].content;
    if (text.substr(at).starts_with(content) && text.substr(at + content.size()).starts_with(after))
      return at + content.size();
    return text.find(after, at);
  }

  /// Whether what opens a mark begins there: a special token, or a bracket that closes nothing.
  bool begins_with_mark(size_t at) const {
    if (special_.length_at(full_, at) > 0) return true;
    const bool is_bracket = std::string_view("<[{(").find(full_[at]) != kNoResult;
    return is_bracket && (at + 1 == full_.size() || full_[at + 1] != '/');
  }

  /// What the text has more than without the message, if that is one piece that can lie around
  /// `content`, inside a span. A piece may often be shifted ("<a>x</a></b>" without "<a>x</a>" or
  /// without "/a>x<"): taken is one after the result before it, which ends at not_before, and of
  /// these the first that begins with a mark.
  std::optional<ByteSpan> find_by_absence(size_t message, const std::vector<ByteSpan>& spans,
                                          size_t not_before,
                                          std::optional<ByteSpan> content) const {
    std::string without;
    try {
      without = renderer_.render_without(message);
    } catch (const DataError&) {
      return std::nullopt;
    }
    if (without.size() >= full_.size()) return std::nullopt;
    const size_t length = full_.size() - without.size();
    const auto same_from_front = static_cast<size_t>(
        std::mismatch(without.begin(), without.end(), full_.begin()).first - without.begin());
    const auto same_from_back = static_cast<size_t>(
        std::mismatch(without.rbegin(), without.rend(), full_.rbegin()).first - without.rbegin());
    if (same_from_front + same_from_back < without.size()) return std::nullopt;
    std::optional<ByteSpan> best;
    int best_rank = -1;
    for (size_t begin = without.size() - same_from_back; begin <= same_from_front; ++begin) {
      const ByteSpan piece{begin, begin + length};
      const bool fits = !content || (piece.begin <= content->begin && content->end <= piece.end);
      if (!fits) continue;
      // A piece that can lie outside the answers is no part of one.
      if (!span_around(spans, piece)) {
        if (!content) return std::nullopt;
        continue;
      }
      const int rank = 2 * (begin >= not_before) + begins_with_mark(begin);
      if (rank > best_rank) {
        best = piece;
        best_rank = rank;
      }
    }
    return best;
  }

  const ChatRenderer& renderer_;
  const std::vector<Message>& messages_;
  const std::string& full_;
  const SpecialIndex& special_;
};

/// REQUIRES: both sorted, every result inside one span.
std::vector<ByteSpan> difference(const std::vector<ByteSpan>& spans,
                                 const std::vector<ByteSpan>& results) {
  std::vector<ByteSpan> left;
  auto result = results.begin();
  for (ByteSpan span : spans) {
    for (; result != results.end() && result->begin < span.end; ++result) {
      if (result->begin > span.begin) left.push_back({span.begin, result->begin});
      span.begin = std::max(span.begin, result->end);
    }
    if (span.begin < span.end) left.push_back(span);
  }
  return left;
}

}  // namespace

std::vector<ByteSpan> without_tool_results(const ChatRenderer& renderer,
                                           const std::vector<Message>& messages,
                                           const std::string& full, const SpecialIndex& special,
                                           std::vector<ByteSpan> spans) {
  if (std::none_of(messages.begin(), messages.end(), is_result)) return spans;
  std::vector<ByteSpan> results = ResultFinder(renderer, messages, full, special).inside(spans);
  if (results.empty()) return spans;
  std::sort(results.begin(), results.end(),
            [](const ByteSpan& a, const ByteSpan& b) { return a.begin < b.begin; });
  return difference(spans, results);
}

}  // namespace danlu::text
