#include "device/scratch_file.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <new>

#include "base/temporary.h"
#include "device/file_transfer.h"

namespace danlu::device {

ScratchFile::ScratchFile(const std::filesystem::path& directory)
    : directory_(directory), file_(open_nameless(directory)), buffer_(nullptr, &std::free) {
  if (file_ < 0) file_transfer::fail(directory, "no file can be made there", errno);
  bool is_direct = false;
  file_ = file_transfer::past_the_cache(file_, is_direct);
  void* memory = nullptr;
  if (::posix_memalign(&memory, file_transfer::kAlignment, file_transfer::kBlockBytes) != 0) {
    ::close(file_);
    throw std::bad_alloc();
  }
  buffer_.reset(static_cast<std::byte*>(memory));
}

ScratchFile::~ScratchFile() { ::close(file_); }

ScratchFile::Place ScratchFile::take(int64_t bytes) {
  const int64_t size = file_transfer::rounded_up(bytes);
  const std::lock_guard lock(mutex_);
  auto room = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const bool is_closer = room == free_.end() || at->second < room->second;
    if (at->second >= size && is_closer) room = at;
  }
  if (room != free_.end()) {
    const auto [begin, all] = *room;
    free_.erase(room);
    if (all > size) free_[begin + size] = all - size;
    return {begin, size};
  }
  // Where the system runs out of room it says so here, and not in the midst of a write.
  if (const int error = ::posix_fallocate(file_, end_, size))
    file_transfer::fail(directory_, "no space", error);
  end_ += size;
  return {end_ - size, size};
}

void ScratchFile::give_back(const Place& place) {
  const std::lock_guard lock(mutex_);
  auto [begin, bytes] = place;
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      free_.erase(before);
    }
  }
  if (after != free_.end() && after->first == place.begin + place.bytes) {
    bytes += after->second;
    free_.erase(after);
  }
  free_[begin] = bytes;
}

template <typename Block>
void ScratchFile::go_through(const at::Tensor& elements, const Place& place, const Block& block) {
  const auto width = static_cast<int64_t>(elements.element_size());
  const int64_t most = file_transfer::kBlockBytes / width;
  for (int64_t at = 0; at < elements.numel(); at += most) {
    const int64_t count = std::min(most, elements.numel() - at);
    const at::Tensor in_host = at::from_blob(buffer_.get(), {count}, elements.scalar_type());
    const int64_t begin = place.begin + at * width;
    block(elements.narrow(0, at, count), in_host, begin,
          begin + file_transfer::rounded_up(count * width));
  }
}

void ScratchFile::write(const at::Tensor& elements, const Place& place) {
  go_through(elements, place,
             [&](const at::Tensor& part, const at::Tensor& in_host, int64_t begin, int64_t end) {
               at::Tensor(in_host).copy_(part);
               if (!file_transfer::write_all(file_, begin, end, buffer_.get()))
                 file_transfer::fail(directory_, "what is offloaded cannot be written there",
                                     errno);
             });
}

void ScratchFile::read(const at::Tensor& elements, const Place& place) {
  go_through(elements, place,
             [&](const at::Tensor& part, const at::Tensor& in_host, int64_t begin, int64_t end) {
               if (!file_transfer::read_all(file_, begin, end, buffer_.get()))
                 file_transfer::fail(directory_, "what is offloaded there cannot be read", errno);
               at::Tensor(part).copy_(in_host);
             });
}

}  // namespace danlu::device
