// device/small_blocks.h: memory of some kilobytes that a thread keeps for its next tensors.
#pragma once
#include <array>
#include <cstddef>

namespace danlu::device {

/// Blocks of the C library's, which for more than a kilobyte takes its slow way at each of them: a
/// token's pass asks for several hundred. What one thread takes another may keep.
class SmallBlocks {
 public:
  static constexpr size_t kUnit = 512, kLargest = size_t{64} << 10;  ///< bytes
  static constexpr size_t kMostKept = size_t{1} << 20;

  SmallBlocks() = default;
  ~SmallBlocks();
  SmallBlocks(const SmallBlocks&) = delete;
  SmallBlocks& operator=(const SmallBlocks&) = delete;

  /// What to ask the C library for where take() has none, so that keep() knows the block again.
  static size_t rounded(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

  /// At least so many bytes; null: none are kept. REQUIRES: 0 < bytes <= kLargest.
  void* take(size_t bytes);
  /// Keeps a block of `usable` bytes; false: it is too small or too large. What would be more than
  /// kMostKept is given back first, all of it: sizes may have changed for good.
  bool keep(void* block, size_t usable);
  size_t kept_bytes() const { return kept_; }

 private:
  void give_back();

  struct Block {
    Block* next;
  };
  std::array<Block*, kLargest / kUnit> kept_of_size_{};
  size_t kept_ = 0;
};

}  // namespace danlu::device
