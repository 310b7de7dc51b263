// text/tokenizer/double_array.h: a Darts-clone double array, as SentencePiece's character maps hold
// one.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace danlu::text {

/// Keys and their values; the unit layout is that of the library's "darts.h". Never reads outside
/// its units, however damaged they are.
class DoubleArray {
 public:
  DoubleArray() = default;
  explicit DoubleArray(std::string_view bytes) : units_(bytes.size() / 4) {
    std::memcpy(units_.data(), bytes.data(), units_.size() * 4);
  }
  bool empty() const { return units_.empty(); }

  /// Calls on_key(length, value) for every key that begins `text`, shortest first, until it says
  /// false. Result: true if a key begins with the whole of `text`.
  template <typename F>
  bool each_prefix(std::string_view text, F&& on_key) const {
    if (units_.empty()) return false;
    size_t node = offset(units_[0]);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      node ^= byte;
      if (node >= units_.size() || label(units_[node]) != byte) return false;
      const uint32_t unit = units_[node];
      node ^= offset(unit);
      if (node >= units_.size()) return false;
      if ((unit >> 8 & 1) && !on_key(i + 1, units_[node] & 0x7FFFFFFF)) return false;
    }
    return true;
  }

 private:
  static uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
  static size_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }
  std::vector<uint32_t> units_;
};

}  // namespace danlu::text
