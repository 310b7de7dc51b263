#include "device/small_blocks.h"

#include <cstdlib>
#include <new>

namespace danlu::device {

SmallBlocks::~SmallBlocks() { give_back(); }

void SmallBlocks::give_back() {
  for (Block*& first : kept_of_size_) {
    while (first) {
      Block* const next = first->next;
      std::free(first);
      first = next;
    }
  }
  kept_ = 0;
}

void* SmallBlocks::take(size_t bytes) {
  const size_t units = rounded(bytes) / kUnit;
  Block*& first = kept_of_size_[units - 1];
  if (!first) return nullptr;
  Block* const block = first;
  first = block->next;
  kept_ -= units * kUnit;
  return block;
}

bool SmallBlocks::keep(void* block, size_t usable) {
  const size_t units = usable / kUnit;  // what the C library added is not counted on
  if (units == 0 || units > kept_of_size_.size()) return false;
  if (kept_ + units * kUnit > kMostKept) give_back();
  Block*& first = kept_of_size_[units - 1];
  first = new (block) Block{first};
  kept_ += units * kUnit;
  return true;
}

}  // namespace danlu::device
