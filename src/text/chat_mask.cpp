#include "text/chat_mask.h"

#include <algorithm>

#include "text/conversation.h"

namespace danlu::text {

namespace {

/// A stretch of text between special tokens (or one special token) and its ids.
struct Segment {
  size_t text_begin, text_end;
  size_t id_begin, id_end;
};

struct Border {
  size_t next;     ///< the first token that begins at or after it
  bool straddled;  ///< the token before that one holds bytes of both sides
};

class BorderFinder {
 public:
  BorderFinder(const Tokenizer& tokenizer, const SpecialIndex& special, std::string_view text,
               std::span<const TokenId> ids)
      : tokenizer_(tokenizer), text_(text), ids_(ids) {
    if (!split_at_special_tokens(special)) segments_ = {{0, text.size(), 0, ids.size()}};
  }

  /// Where byte `border` falls. Borders must not decrease between calls.
  Border find(size_t border) {
    while (current_ < segments_.size() && border >= segments_[current_].text_end) ++current_;
    if (current_ == segments_.size()) return {ids_.size(), false};
    const Segment& segment = segments_[current_];
    if (border <= segment.text_begin) return {segment.id_begin, false};
    return find_inside(segment, border);
  }

 private:
  bool split_at_special_tokens(const SpecialIndex& special) {
    size_t text_at = 0, id_at = 0;
    for (size_t i = 0; i < ids_.size(); ++i) {
      const std::string_view token = special.text_of(ids_[i]);
      if (token.empty()) continue;
      const size_t found = text_.find(token, text_at);
      if (found == std::string_view::npos) return false;
      if (found > text_at || i > id_at) segments_.push_back({text_at, found, id_at, i});
      text_at = found + token.size();
      id_at = i + 1;
      segments_.push_back({found, text_at, i, id_at});
    }
    if (text_at < text_.size() || id_at < ids_.size())
      segments_.push_back({text_at, text_.size(), id_at, ids_.size()});
    return true;
  }

  bool is_prefix(const std::vector<TokenId>& head, size_t at) const {
    return head.size() <= ids_.size() - at &&
           std::equal(head.begin(), head.end(), ids_.begin() + static_cast<ptrdiff_t>(at));
  }

  Border find_inside(const Segment& segment, size_t border) {
    head_.clear();
    tokenizer_.encode_append(text_.substr(segment.text_begin, border - segment.text_begin), false,
                             head_);
    if (!head_.empty() && is_prefix(head_, segment.id_begin))
      return {segment.id_begin + head_.size(), false};
    // Tokenizers that treat the beginning of a text in a way of their own: try from there.
    head_.clear();
    tokenizer_.encode_append(text_.substr(0, border), false, head_);
    if (head_.size() > segment.id_begin && is_prefix(head_, 0)) return {head_.size(), false};
    return find_by_decoding(segment, border);
  }

  /// Bytes of text that ids [segment.id_begin, k) cover for certain: the decoded part that agrees
  /// with it.
  size_t covered_end(const Segment& segment, size_t k) const {
    const std::string decoded =
        tokenizer_.decode(ids_.subspan(segment.id_begin, k - segment.id_begin), false);
    const std::string_view text =
        text_.substr(segment.text_begin, segment.text_end - segment.text_begin);
    // Decoders may add or drop one blank at the very beginning.
    std::string_view piece = decoded;
    size_t skipped = 0;
    if (piece.starts_with(' ') && !text.starts_with(' ')) piece.remove_prefix(1);
    if (text.starts_with(' ') && !piece.starts_with(' ')) skipped = 1;
    const std::string_view rest = text.substr(skipped);
    const size_t agreed = static_cast<size_t>(
        std::mismatch(piece.begin(), piece.end(), rest.begin(), rest.end()).first - piece.begin());
    return segment.text_begin + skipped + agreed;
  }

  Border find_by_decoding(const Segment& segment, size_t border) const {
    // The covered length grows with k: bisect for the first k whose tokens reach the border.
    size_t low = segment.id_begin, high = segment.id_end;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (covered_end(segment, middle) >= border) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return {low, low > segment.id_begin && covered_end(segment, low) > border};
  }

  const Tokenizer& tokenizer_;
  std::string_view text_;
  std::span<const TokenId> ids_;
  std::vector<Segment> segments_;
  size_t current_ = 0;
  std::vector<TokenId> head_;
};

}  // namespace

std::vector<TokenId> mask_labels(const Tokenizer& tokenizer, const SpecialIndex& special,
                                 std::string_view text, std::span<const TokenId> ids,
                                 std::span<const ByteSpan> spans) {
  std::vector<TokenId> labels(ids.size(), kIgnoreLabel);
  BorderFinder borders(tokenizer, special, text, ids);
  for (const ByteSpan& span : spans) {
    if (span.begin == span.end) continue;
    const Border begin = borders.find(span.begin);
    const size_t end = borders.find(span.end).next;
    for (size_t i = begin.next - begin.straddled; i < end; ++i) labels[i] = ids[i];
  }
  return labels;
}

}  // namespace danlu::text
