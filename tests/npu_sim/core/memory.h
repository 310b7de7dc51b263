// Memory of the simulated cards. An address of a card is reserved but never mapped for the host: a
// program that reads through it dies, as it does beside a real card. The simulator reads and writes
// the same bytes at another place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "acl_api.h"

namespace npu_sim {

class Block {
 public:
  Block(uintptr_t begin, size_t size, size_t charged, int card);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  uintptr_t begin() const { return begin_; }
  /// What was asked for, rounded as the vendor's library does.
  size_t bytes() const { return bytes_; }
  size_t charged() const { return charged_; }
  int card() const { return card_; }
  char* data() const { return map_ + kPage; }
  /// Whether nobody wrote before or behind it.
  bool red_zones_are_whole() const;

  static constexpr size_t kPage = 4096;

 private:
  uintptr_t begin_;
  size_t bytes_, charged_, map_bytes_;
  int card_;
  char* map_;
};

/// Device memory on `card`; 207001 with a text if it does not fit.
aclError allocate_device(int card, size_t size, void** out);
/// The block that begins at `p` leaves; nullptr if none does.
std::shared_ptr<Block> release_device(void* p);
/// The live block around [p, p + bytes), nullptr if there is none.
std::shared_ptr<Block> block_around(const void* p, size_t bytes);
bool is_device_address(const void* p);
/// All blocks of a card leave (its device was reset). Returns how many.
int release_card(int card);
int64_t live_blocks();
/// Reports every block whose red zones were written.
void check_red_zones();
/// Memory that is used beside the program's own, such as HCCL's buffers: 207001 if it does not fit.
aclError charge(int card, int64_t bytes);
void memory_info(int card, size_t* free, size_t* total);

/// Pinned host memory.
void* allocate_host(size_t size);
bool release_host(void* p);
/// Whether [p, p + bytes) lies in pinned memory.
bool is_pinned(const void* p, size_t bytes);

/// What memory holds that nobody has written: NaN in every float, -1 in every integer.
inline constexpr int kPoison = 0xFF;

}  // namespace npu_sim
