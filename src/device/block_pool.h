// device/block_pool.h: memory of the system in blocks that are kept and used again, so that a
// training step takes no new page.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace danlu::device {

/// Blocks of any size, the smallest free range that holds one first, its beginning; ranges that
/// meet become one. Memory is mapped in multiples of 2 MiB, at such addresses, no more than is
/// missing and where possible after what there is, in huge pages where the system gives them; it
/// stays until release(). Safe between threads. For blocks of 64 KiB and more: every one is rounded
/// up to 512 bytes and costs some 200 bytes of bookkeeping.
class BlockPool {
 public:
  static constexpr size_t kUnit = 512;       ///< blocks begin and end at multiples
  static constexpr size_t kPage = 2u << 20;  ///< so does what is mapped

  BlockPool() = default;
  /// REQUIRES: all blocks are back.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Gives memory that is not zeroed. Null where the system grants no more, though what is free was
  /// given back to it.
  /// Errors: std::bad_alloc for the bookkeeping.
  void* take(size_t bytes);
  /// Bytes of the block, as rounded, that begins there; 0: none of this pool does, nothing is done.
  size_t give_back(void* block) noexcept;
  size_t size_of(const void* block) const;

  /// Gives whole free pages (kPage) back to the system. Returns their bytes. May be called when
  /// memory is short: asks for little.
  size_t release();
  size_t mapped_bytes() const;  ///< of the system's, now
  size_t used_bytes() const;    ///< of blocks

 private:
  using Free = std::map<char*, size_t>;
  using Sizes = std::set<std::pair<size_t, char*>>;
  /// The bookkeeping of a free range, kept while its block is in use: giving back asks for nothing.
  struct Nodes {
    Free::node_type range;
    Sizes::node_type size;
  };
  struct Used {
    size_t bytes;
    Nodes nodes;
  };
  static Nodes new_nodes();
  void insert(char* begin, size_t bytes, Nodes nodes) noexcept;
  Nodes extract(Free::iterator range) noexcept;
  void insert_joined(char* begin, size_t bytes, Nodes nodes) noexcept;
  bool grow(size_t bytes);
  bool map_more(size_t bytes, size_t missing);
  size_t release_locked();

  mutable std::mutex mutex_;
  Free free_;      ///< by address: no two meet
  Sizes by_size_;  ///< the same ranges
  std::unordered_map<const void*, Used> used_;
  char* top_ = nullptr;  ///< where the last mapping ends, after which the next is put
  size_t mapped_ = 0, used_bytes_ = 0;
};

}  // namespace danlu::device
