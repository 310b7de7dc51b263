// base/address_space.h: whether so much address space can be had.
#pragma once
#include <sys/mman.h>

#include <cstddef>

namespace danlu {

/// Address space, in bytes, that is held while this lives: it counts towards RLIMIT_AS and
/// RLIMIT_DATA, and no memory is touched.
class AddressSpace {
 public:
  explicit AddressSpace(size_t size_bytes)
      : size_bytes_(size_bytes),
        address_(::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~AddressSpace() {
    if (is_there()) ::munmap(address_, size_bytes_);
  }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  bool is_there() const { return address_ != MAP_FAILED; }

 private:
  size_t size_bytes_;
  void* address_;
};

}  // namespace danlu
