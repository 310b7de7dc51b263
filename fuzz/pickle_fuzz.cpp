// fuzz/pickle_fuzz.cpp: any bytes as a torch file (zip or legacy) must be read or refused, never
// crash, and every tensor found must lie inside its storage. The first byte picks the way in: the
// whole file, or a pickle wrapped into a well-formed zip, so that the fuzzer need not forge
// checksums.
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/error.h"
#include "weights/torch/torch_contents.h"

namespace {

std::string little_endian(uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

/// A zip with a/data.pkl = `pickle` and two storages of 64 bytes.
std::string zip_around(const std::string& pickle) {
  std::string file, directory;
  const std::pair<std::string, std::string> entries[] = {{"a/data.pkl", pickle},
                                                         {"a/data/0", std::string(64, '0')},
                                                         {"a/data/1", std::string(64, '1')}};
  for (const auto& [name, data] : entries) {
    const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size());
    const std::string sizes = little_endian(crc, 4) + little_endian(data.size(), 4) +
                              little_endian(data.size(), 4) + little_endian(name.size(), 2) +
                              little_endian(0, 2);
    directory += "PK\x01\x02" + little_endian(0, 12) + sizes + little_endian(0, 10) +
                 little_endian(file.size(), 4) + name;
    file += "PK\x03\x04" + little_endian(0, 10) + sizes + name + data;
  }
  return file + directory + "PK\x05\x06" + little_endian(0, 4) + little_endian(3, 2) +
         little_endian(3, 2) + little_endian(directory.size(), 4) + little_endian(file.size(), 4) +
         little_endian(0, 2);
}

void read(std::span<const std::byte> file) {
  using namespace danlu::weights::torch_file;
  try {
    for (const StridedTensor& tensor : read_torch_contents(file, "input")) {
      tensor.is_contiguous();
      const int64_t elements = tensor.info.num_elements();
      if (elements == 0) continue;
      uint64_t last = static_cast<uint64_t>(tensor.offset);
      for (size_t d = 0; d < tensor.strides.size(); ++d) {
        last += static_cast<uint64_t>(tensor.info.shape[d] - 1) *
                static_cast<uint64_t>(tensor.strides[d]);
      }
      const size_t item = danlu::dtype_size_bytes(tensor.info.dtype);
      if ((last + 1) * item > tensor.storage.size()) std::abort();
      if (tensor.storage.data() < file.data() ||
          tensor.storage.data() + tensor.storage.size() > file.data() + file.size())
        std::abort();
    }
  } catch (const danlu::ModelError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string file = data[0] % 2 == 0 ? rest : zip_around(rest);
  read({reinterpret_cast<const std::byte*>(file.data()), file.size()});
  return 0;
}
