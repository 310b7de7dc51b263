#include "device/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

namespace danlu::device {
namespace {

constexpr size_t up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
char* up(char* address, size_t unit) {
  return address + (unit - reinterpret_cast<uintptr_t>(address) % unit) % unit;
}
char* down(char* address, size_t unit) {
  return address - reinterpret_cast<uintptr_t>(address) % unit;
}

char* map_at(char* address, size_t bytes, int flags) {
  void* mapped =
      ::mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  // A kernel that does not know the flag takes the address for a wish.
  if (address && mapped != address) {
    ::munmap(mapped, bytes);
    return nullptr;
  }
  return static_cast<char*>(mapped);
}

/// At a multiple of kPage. below: so far from all else that it can be mapped on from there.
char* map_anywhere(size_t bytes, bool below) {
  constexpr size_t kPage = BlockPool::kPage, kFar = sizeof(void*) > 4 ? size_t{1} << 40 : 0;
  char* const all = map_at(nullptr, bytes + kPage, 0);
  if (!all) return nullptr;
  if (below && reinterpret_cast<uintptr_t>(all) > 2 * kFar) {
    if (char* const begin = map_at(down(all, kPage) - kFar, bytes, MAP_FIXED_NOREPLACE)) {
      ::munmap(all, bytes + kPage);
      return begin;
    }
  }
  char* const begin = up(all, kPage);
  if (begin > all) ::munmap(all, static_cast<size_t>(begin - all));
  char* const end = all + bytes + kPage;
  if (end > begin + bytes) ::munmap(begin + bytes, static_cast<size_t>(end - begin - bytes));
  return begin;
}

}  // namespace

BlockPool::~BlockPool() { release_locked(); }

BlockPool::Nodes BlockPool::new_nodes() {
  Free range{{nullptr, 0}};
  Sizes size{{0, nullptr}};
  return {range.extract(range.begin()), size.extract(size.begin())};
}

void BlockPool::insert(char* begin, size_t bytes, Nodes nodes) noexcept {
  nodes.range.key() = begin;
  nodes.range.mapped() = bytes;
  nodes.size.value() = {bytes, begin};
  free_.insert(std::move(nodes.range));
  by_size_.insert(std::move(nodes.size));
}

BlockPool::Nodes BlockPool::extract(Free::iterator range) noexcept {
  auto size = by_size_.extract({range->second, range->first});
  return {free_.extract(range), std::move(size)};
}

void BlockPool::insert_joined(char* begin, size_t bytes, Nodes nodes) noexcept {
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      extract(before);
    }
  }
  if (next != free_.end() && begin + bytes == next->first) {
    bytes += next->second;
    extract(next);
  }
  insert(begin, bytes, std::move(nodes));
}

/// `missing`: what the range that ends at the top lacks.
bool BlockPool::map_more(size_t bytes, size_t missing) {
  Nodes nodes = new_nodes();
  char* begin = nullptr;
  size_t size = up(missing, kPage);
  if (top_) begin = map_at(top_, size, MAP_FIXED_NOREPLACE);
  if (!begin) {
    size = up(bytes, kPage);
    begin = map_anywhere(size, /*below=*/!top_);
  }
  if (!begin) return false;
  // Where huge pages are off, or the kernel has none, pages are small: nothing else changes.
  ::madvise(begin, size, MADV_HUGEPAGE);
  top_ = begin + size;
  mapped_ += size;
  insert_joined(begin, size, std::move(nodes));
  return true;
}

bool BlockPool::grow(size_t bytes) {
  size_t missing = bytes;
  if (!free_.empty()) {
    const auto& [begin, size] = *free_.rbegin();
    if (begin + size == top_) missing -= size;
  }
  if (map_more(bytes, missing)) return true;
  release_locked();
  return map_more(bytes, bytes);
}

void* BlockPool::take(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) return nullptr;
  bytes = up(std::max<size_t>(bytes, 1), kUnit);
  const std::lock_guard lock(mutex_);
  auto found = by_size_.lower_bound({bytes, nullptr});
  if (found == by_size_.end()) {
    if (!grow(bytes)) return nullptr;
    found = by_size_.lower_bound({bytes, nullptr});
  }
  const auto [size, begin] = *found;
  Nodes rest;
  if (size > bytes) rest = new_nodes();
  Used& used = used_.try_emplace(begin).first->second;  // may throw: the range is still free then
  used = {bytes, extract(free_.find(begin))};
  if (size > bytes) insert(begin + bytes, size - bytes, std::move(rest));
  used_bytes_ += bytes;
  return begin;
}

size_t BlockPool::give_back(void* block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(block);
  if (found == used_.end()) return 0;
  const size_t bytes = found->second.bytes;
  Nodes nodes = std::move(found->second.nodes);
  used_.erase(found);
  used_bytes_ -= bytes;
  insert_joined(static_cast<char*>(block), bytes, std::move(nodes));
  return bytes;
}

size_t BlockPool::size_of(const void* block) const {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(block);
  return found == used_.end() ? 0 : found->second.bytes;
}

size_t BlockPool::release() {
  const std::lock_guard lock(mutex_);
  return release_locked();
}

size_t BlockPool::release_locked() {
  size_t released = 0;
  for (auto range = free_.begin(); range != free_.end();) {
    char *const begin = range->first, *const end = begin + range->second;
    char *const first = up(begin, kPage), *const last = down(end, kPage);
    const auto here = range++;
    if (first >= last) continue;
    // What is left on both sides needs a place in the books each.
    Nodes second;
    try {
      if (begin < first && last < end) second = new_nodes();
    } catch (const std::bad_alloc&) {
      continue;
    }
    const auto bytes = static_cast<size_t>(last - first);
    if (::munmap(first, bytes) != 0) continue;  // too many mappings: it stays in use
    Nodes nodes = extract(here);
    released += bytes;
    if (last == top_) top_ = first;
    if (begin < first) {
      insert(begin, static_cast<size_t>(first - begin), std::move(nodes));
      nodes = std::move(second);
    }
    if (last < end) insert(last, static_cast<size_t>(end - last), std::move(nodes));
  }
  mapped_ -= released;
  return released;
}

size_t BlockPool::mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  return mapped_;
}
size_t BlockPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace danlu::device
