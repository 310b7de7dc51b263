#include "text/merge_order.h"

#include <algorithm>
#include <cstdint>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/char_class.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {
namespace {

std::string pair_of(std::string_view left, std::string_view right) {
  std::string pair(left);
  pair += ' ';
  return pair += right;
}

/// Parts of characters count where they stand beside a digit: they may be of one.
bool has_neighbouring_digits(std::string_view bytes) {
  enum class Kind { kNone, kOther, kPart, kDigit };
  Kind before = Kind::kNone;
  for (size_t at = 0; at < bytes.size();) {
    size_t bad_length = 0;
    bool is_truncated = false;
    const size_t length = utf8_char_length(bytes, at, bad_length, is_truncated);
    Kind kind = Kind::kPart;
    if (length > 0) {
      const bool is_digit = (char_class(decode_utf8(bytes, at).value) & kNumber) != 0;
      kind = is_digit ? Kind::kDigit : Kind::kOther;
    }
    const bool may_be_two = (kind == Kind::kDigit && before >= Kind::kPart) ||
                            (kind == Kind::kPart && before == Kind::kDigit);
    if (may_be_two) return true;
    before = kind;
    at += std::max<size_t>(length > 0 ? length : bad_length, 1);
  }
  return false;
}

}  // namespace

MergeOrder::MergeOrder(const Merges& merges) {
  ranks_.reserve(merges.size());
  for (const auto& [left, right] : merges) ranks_.emplace(pair_of(left, right), ranks_.size());
}

bool MergeOrder::reach(std::string_view token) const {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at < token.size();) {
    size_t bad_length = 0;
    bool is_truncated = false;
    const size_t length = utf8_char_length(token, at, bad_length, is_truncated);
    parts.push_back(token.substr(at, length > 0 ? length : std::max<size_t>(bad_length, 1)));
    at += parts.back().size();
  }
  while (parts.size() > 1) {
    size_t lowest = SIZE_MAX, best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = ranks_.find(pair_of(parts[i], parts[i + 1]));
      if (rank == ranks_.end() || rank->second >= lowest) continue;
      lowest = rank->second;
      best = i;
    }
    if (lowest == SIZE_MAX) return false;
    parts[best] = {parts[best].data(), parts[best].size() + parts[best + 1].size()};
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  return true;
}

bool join_digits(const Merges& merges) {
  std::string bytes;
  return std::any_of(merges.begin(), merges.end(), [&](const auto& merge) {
    bytes.clear();
    return append_bytes_of_token(merge.first + merge.second, bytes) &&
           has_neighbouring_digits(bytes);
  });
}

}  // namespace danlu::text
