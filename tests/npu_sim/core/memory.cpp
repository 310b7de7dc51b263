#include "core/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/config.h"
#include "core/report.h"

namespace npu_sim {
namespace {

constexpr size_t kZone = 64;
constexpr int kZoneByte = 0xA5;
constexpr size_t kMiB = 1 << 20;
constexpr size_t kPoisonFile = 64 * kMiB;

struct Memory {
  std::mutex lock;
  std::map<uintptr_t, std::shared_ptr<Block>> blocks;
  std::map<int, int64_t> used;
  std::map<uintptr_t, size_t> pinned;
  uintptr_t region = 0, next = 0, end = 0;
};

size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

Memory& memory() {
  static Memory* the = [] {
    Memory* made = new Memory;
    for (size_t tib = 16; tib > 0; tib /= 2) {
      void* p =
          mmap(nullptr, tib << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED) continue;
      made->region = reinterpret_cast<uintptr_t>(p);
      made->next = up(made->region, 2 * kMiB);
      made->end = made->region + (tib << 40);
      return made;
    }
    std::fprintf(stderr, "NPU SIMULATOR: no address space for the cards' memory\n");
    std::exit(2);
  }();
  return *the;
}

/// A file full of poison, so that large blocks cost memory only where they are written.
int poison_file() {
  static const int fd = [] {
    const int made = memfd_create("npu_sim_poison", MFD_CLOEXEC);
    std::vector<char> piece(kMiB, static_cast<char>(kPoison));
    for (size_t at = 0; at < kPoisonFile; at += kMiB) {
      if (made < 0 ||
          pwrite(made, piece.data(), kMiB, static_cast<off_t>(at)) != static_cast<ssize_t>(kMiB)) {
        return -1;
      }
    }
    return made;
  }();
  return fd;
}

void fill_with_poison(char* to, size_t bytes) {
  size_t at = 0;
  while (bytes - at >= kPoisonFile && poison_file() >= 0) {
    void* got = mmap(to + at, kPoisonFile, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, poison_file(), 0);
    if (got == MAP_FAILED) break;
    at += kPoisonFile;
  }
  std::memset(to + at, kPoison, bytes - at);
}

int64_t usable_bytes() {
  const int64_t total = static_cast<int64_t>(config().memory_bytes);
  return total - std::min<int64_t>(1 << 30, total / 16);
}

aclError out_of_memory(int card, int64_t asked, int64_t used) {
  return fail(207001, "EL0004: Failed to allocate memory. [NPU SIMULATOR] card " +
                          std::to_string(card) + ": " + std::to_string(asked) +
                          " bytes were asked for, " + std::to_string(usable_bytes() - used) +
                          " of " + std::to_string(usable_bytes()) + " are free");
}

}  // namespace

Block::Block(uintptr_t begin, size_t size, size_t charged, int card)
    : begin_(begin), bytes_(up(size, 32) + 32), charged_(charged), card_(card) {
  map_bytes_ = up(bytes_, kPage) + 2 * kPage;
  void* p = mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    std::fprintf(stderr, "NPU SIMULATOR: the host has no memory for a card's\n");
    std::exit(2);
  }
  map_ = static_cast<char*>(p);
  fill_with_poison(data(), bytes_);
  std::memset(data() - kZone, kZoneByte, kZone);
  std::memset(data() + bytes_, kZoneByte, kZone);
}

Block::~Block() { munmap(map_, map_bytes_); }

bool Block::red_zones_are_whole() const {
  for (size_t i = 0; i < kZone; ++i) {
    if (static_cast<unsigned char>(data()[-1 - static_cast<ptrdiff_t>(i)]) != kZoneByte)
      return false;
    if (static_cast<unsigned char>(data()[bytes_ + i]) != kZoneByte) return false;
  }
  return true;
}

aclError allocate_device(int card, size_t size, void** out) {
  Memory& m = memory();
  const size_t bytes = up(size, 32) + 32;
  const bool large = bytes > kMiB;
  const size_t charged = large ? up(bytes, 2 * kMiB) : bytes;
  uintptr_t begin = 0;
  {
    std::lock_guard hold(m.lock);
    if (size > static_cast<size_t>(usable_bytes()) ||
        m.used[card] + static_cast<int64_t>(charged) > usable_bytes()) {
      return out_of_memory(card, static_cast<int64_t>(size), m.used[card]);
    }
    // Small blocks are aligned to 64 bytes and no better. No address is given twice.
    begin = large ? up(m.next, 2 * kMiB) : up(m.next, 128) + 64;
    m.next = begin + up(bytes + 2 * kZone, Block::kPage);
    if (m.next >= m.end) return out_of_memory(card, static_cast<int64_t>(size), m.used[card]);
    m.used[card] += static_cast<int64_t>(charged);
    count_peak("peak_bytes", m.used[card]);
  }
  auto block = std::make_shared<Block>(begin, size, charged, card);
  std::lock_guard hold(m.lock);
  m.blocks[begin] = block;
  *out = reinterpret_cast<void*>(begin);
  return 0;
}

std::shared_ptr<Block> release_device(void* p) {
  Memory& m = memory();
  std::lock_guard hold(m.lock);
  const auto found = m.blocks.find(reinterpret_cast<uintptr_t>(p));
  if (found == m.blocks.end()) return nullptr;
  std::shared_ptr<Block> block = found->second;
  m.used[block->card()] -= static_cast<int64_t>(block->charged());
  m.blocks.erase(found);
  if (!block->red_zones_are_whole()) violation("the red zone of a freed block was written");
  return block;
}

std::shared_ptr<Block> block_around(const void* p, size_t bytes) {
  Memory& m = memory();
  const auto at = reinterpret_cast<uintptr_t>(p);
  std::lock_guard hold(m.lock);
  auto found = m.blocks.upper_bound(at);
  if (found == m.blocks.begin()) return nullptr;
  const std::shared_ptr<Block>& block = (--found)->second;
  return at + bytes <= block->begin() + block->bytes() ? block : nullptr;
}

bool is_device_address(const void* p) {
  const Memory& m = memory();
  const auto at = reinterpret_cast<uintptr_t>(p);
  return at >= m.region && at < m.end;
}

int release_card(int card) {
  Memory& m = memory();
  std::lock_guard hold(m.lock);
  const auto left =
      std::erase_if(m.blocks, [&](const auto& entry) { return entry.second->card() == card; });
  m.used[card] = 0;
  return static_cast<int>(left);
}

int64_t live_blocks() {
  std::lock_guard hold(memory().lock);
  return static_cast<int64_t>(memory().blocks.size());
}

void check_red_zones() {
  std::lock_guard hold(memory().lock);
  for (const auto& [begin, block] : memory().blocks) {
    if (!block->red_zones_are_whole()) violation("the red zone of a live block was written");
  }
}

aclError charge(int card, int64_t bytes) {
  Memory& m = memory();
  std::lock_guard hold(m.lock);
  if (m.used[card] + bytes > usable_bytes()) return out_of_memory(card, bytes, m.used[card]);
  m.used[card] += bytes;
  count_peak("peak_bytes", m.used[card]);
  return 0;
}

void memory_info(int card, size_t* free, size_t* total) {
  std::lock_guard hold(memory().lock);
  *total = static_cast<size_t>(usable_bytes());
  *free = static_cast<size_t>(usable_bytes() - memory().used[card]);
}

void* allocate_host(size_t size) {
  void* p = nullptr;
  if (posix_memalign(&p, 64, up(size, 64)) != 0) return nullptr;
  std::memset(p, kPoison, up(size, 64));
  std::lock_guard hold(memory().lock);
  memory().pinned[reinterpret_cast<uintptr_t>(p)] = size;
  return p;
}

bool release_host(void* p) {
  std::lock_guard hold(memory().lock);
  const auto found = memory().pinned.find(reinterpret_cast<uintptr_t>(p));
  if (found == memory().pinned.end()) return false;
  std::memset(p, kPoison, found->second);
  memory().pinned.erase(found);
  std::free(p);
  return true;
}

bool is_pinned(const void* p, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  std::lock_guard hold(memory().lock);
  auto found = memory().pinned.upper_bound(at);
  if (found == memory().pinned.begin()) return false;
  --found;
  return at + bytes <= found->first + found->second;
}

}  // namespace npu_sim
