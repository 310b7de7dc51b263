// fuzz/pickle_fuzz.cpp: any bytes as a torch file (zip or legacy) must be read or refused, never
// crash, and every tensor found must lie inside its storage. The first byte picks the way in: the
// whole file, or a pickle wrapped into a well-formed zip, so that the fuzzer need not forge
// checksums.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/error.h"
#include "weights/torch/torch_contents.h"
#include "zip_around.h"

namespace {

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
  const std::string file = data[0] % 2 == 0 ? rest : danlu::fuzz::zip_around(rest);
  read({reinterpret_cast<const std::byte*>(file.data()), file.size()});
  return 0;
}
