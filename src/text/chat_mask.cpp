#include "text/chat_mask.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/conversation.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {

namespace {

/// A special token or a stretch of text between two, and its ids.
struct Segment {
  size_t text_begin, text_end;
  size_t id_begin, id_end;
  ByteSpan token = {};  ///< the special token's own text, without the blanks
                        ///< that it takes along
  bool is_token = false;
};

struct Border {
  size_t next;     ///< the first token that begins at or after it
  bool straddled;  ///< the token before that one holds bytes of both sides
};

/// A byte of the text before which exactly these ids stand.
struct Joint {
  size_t byte, id;
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
    if (segment.is_token) return find_at_token(segment, border);
    if (const auto id = id_at(segment, border)) return {*id, false};
    return find_between(joint_before(segment, border), joint_after(segment, border), border);
  }

 private:
  bool split_at_special_tokens(const SpecialIndex& special) {
    size_t text_at = 0, id_at = 0;
    for (size_t i = 0; i < ids_.size(); ++i) {
      const std::string_view token = special.text_of(ids_[i]);
      if (token.empty()) continue;
      const size_t found = text_.find(token, text_at);
      if (found == std::string_view::npos) {
        segments_.clear();
        return false;
      }
      const ByteSpan own{found, found + token.size()};
      const Tokenizer::BlanksTaken taken = tokenizer_.blanks_taken_by(ids_[i]);
      const size_t begin = taken.before ? std::max(space_before(text_, found), text_at) : found;
      if (begin > text_at || i > id_at) segments_.push_back({text_at, begin, id_at, i});
      text_at = taken.after ? space_after(text_, own.end) : own.end;
      id_at = i + 1;
      segments_.push_back({begin, text_at, i, id_at, own, true});
    }
    if (text_at < text_.size() || id_at < ids_.size())
      segments_.push_back({text_at, text_.size(), id_at, ids_.size()});
    return true;
  }

  /// Blanks before or behind a token belong to it, and to no other.
  static Border find_at_token(const Segment& segment, size_t border) {
    if (border <= segment.token.begin) return {segment.id_begin, false};
    return {segment.id_end, border < segment.token.end};
  }

  /// The number of ids before `byte`, where ids and text part there: the text
  /// up to it, encoded by itself, gives just these. It is encoded from the
  /// special token before it on (tokenizers treat the beginning of a text in
  /// ways of their own), else from the beginning of all.
  std::optional<size_t> id_at(const Segment& segment, size_t byte) {
    Joint origins[] = {{segment.text_begin, segment.id_begin}, {0, 0}};
    if (current_ > 0)
      origins[0] = {segments_[current_ - 1].token.begin, segments_[current_ - 1].id_begin};
    for (const Joint& origin : origins) {
      head_.clear();
      tokenizer_.encode_append(text_.substr(origin.byte, byte - origin.byte), false, head_);
      const size_t id = origin.id + head_.size();
      if (id <= ids_.size() && id >= segment.id_begin && id <= segment.id_end &&
          std::equal(head_.begin(), head_.end(), ids_.begin() + static_cast<ptrdiff_t>(origin.id)))
        return id;
      if (origin.byte == 0) break;
    }
    return std::nullopt;
  }

  Joint joint_before(const Segment& segment, size_t border) {
    size_t byte = border;
    for (size_t tried = 0; tried < kMostTried; ++tried) {
      byte = previous_char(text_, byte);
      if (byte <= segment.text_begin) break;
      if (const auto id = id_at(segment, byte)) return {byte, *id};
    }
    return {segment.text_begin, segment.id_begin};
  }

  Joint joint_after(const Segment& segment, size_t border) {
    size_t byte = border;
    for (size_t tried = 0; tried < kMostTried; ++tried) {
      do ++byte;
      while (byte < segment.text_end && (static_cast<unsigned char>(text_[byte]) & 0xC0) == 0x80);
      if (byte >= segment.text_end) break;
      if (const auto id = id_at(segment, byte)) return {byte, *id};
    }
    return {segment.text_end, segment.id_end};
  }

  Border find_between(const Joint& before, const Joint& after, size_t border) const {
    if (before.id >= after.id) return {after.id, false};
    if (before.id + 1 == after.id) return {after.id, true};
    return find_by_decoding(before, after, border);
  }

  /// Bytes of text that ids [before.id, k) cover for certain: the decoded part
  /// that agrees with it.
  size_t covered_end(const Joint& before, const Joint& after, size_t k) const {
    const std::string decoded = tokenizer_.decode(ids_.subspan(before.id, k - before.id), false);
    const std::string_view text = text_.substr(before.byte, after.byte - before.byte);
    // Decoders may add or drop one blank at the very beginning.
    std::string_view piece = decoded;
    size_t skipped = 0;
    if (piece.starts_with(' ') && !text.starts_with(' ')) piece.remove_prefix(1);
    if (text.starts_with(' ') && !piece.starts_with(' ')) skipped = 1;
    const std::string_view rest = text.substr(skipped);
    const size_t agreed = static_cast<size_t>(
        std::mismatch(piece.begin(), piece.end(), rest.begin(), rest.end()).first - piece.begin());
    return before.byte + skipped + agreed;
  }

  Border find_by_decoding(const Joint& before, const Joint& after, size_t border) const {
    if (covered_end(before, after, after.id) < after.byte) {
      throw DataError(
          tr("where an answer begins or ends cannot be told: near "
             "byte {} of the text its tokens "
             "stand for other characters",
             border));
    }
    // The covered length grows with k: bisect for the first k whose tokens
    // reach the border.
    size_t low = before.id, high = after.id;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (covered_end(before, after, middle) >= border) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return {low, low > before.id && covered_end(before, after, low) > border};
  }

  /// Characters on each side of a border, at most, among which a joint is
  /// looked for.
  static constexpr size_t kMostTried = 64;

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
