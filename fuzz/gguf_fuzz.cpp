// fuzz/gguf_fuzz.cpp: any bytes as a GGUF file must be read or refused, never crash; what is read
// lies inside the file, opens as a source, and its metadata are written back to the same bytes.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/number_blocks.h"
#include "weights/gguf/gguf_reader.h"
#include "weights/gguf/gguf_writer.h"

namespace {

using namespace danlu::weights::gguf;

std::string written(const Metadata& metadata) { return plan_file(metadata, {}).known[0].bytes; }

/// Sources are opened from files: these bytes as one that touches no disk.
class FileInMemory {
 public:
  explicit FileInMemory(std::span<const std::byte> bytes) : fd_(::memfd_create("input", 0)) {
    if (::write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }
  FileInMemory(const FileInMemory&) = delete;
  FileInMemory& operator=(const FileInMemory&) = delete;
  ~FileInMemory() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  const int fd_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file{reinterpret_cast<const std::byte*>(data), size};
  Header header;
  try {
    header = parse_header(file, "input");
  } catch (const danlu::ModelError&) {
    return 0;
  }
  std::vector<float> numbers;
  for (const TensorEntry& entry : header.tensors) {
    if (entry.offset > size + header.alignment || (entry.size_bytes > 0 && entry.offset > size) ||
        (entry.size_bytes > 0 && entry.size_bytes > size - entry.offset))
      std::abort();
    const auto blocks = block_type(entry.type);
    if (!blocks) continue;
    const danlu::BlockTraits& traits = danlu::block_traits(*blocks);
    numbers.resize(entry.size_bytes / traits.bytes * traits.numbers);
    if (!numbers.empty())
      danlu::dequantize(*blocks, file.data() + entry.offset, numbers.size(), numbers.data());
  }
  const FileInMemory input(file);
  if (open(input.path())->tensors().size() != header.tensors.size()) std::abort();
  (void)open_blocks(input.path());
  const std::string first = written(header.metadata);
  const auto* bytes = reinterpret_cast<const std::byte*>(first.data());
  const Header again = parse_header({bytes, first.size()}, "written");
  if (written(again.metadata) != first) std::abort();
  return 0;
}
