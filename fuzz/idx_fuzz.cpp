// fuzz/idx_fuzz.cpp: any bytes as a Megatron .idx (and .npy) must be read or refused, never crash.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "data/megatron/indexed_dataset.h"
#include "data/megatron/npy.h"

namespace {

namespace fs = std::filesystem;

const fs::path& folder() {
  static const fs::path kFolder = [] {
    danlu::log::set_level(danlu::log::Level::kOff);
    const fs::path base = fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    const fs::path path = base / ("danlu-idx-fuzz-" + std::to_string(::getpid()));
    fs::create_directories(path);
    std::atexit([] {
      std::error_code ignored;
      fs::remove_all(folder(), ignored);
    });
    return path;
  }();
  return kFolder;
}

void write(const char* name, const uint8_t* data, size_t size) {
  std::ofstream(folder() / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // The first byte says how many bytes at the end are the .bin; the rest is the .idx.
  const size_t tokens = std::min<size_t>(data[0], size - 1);
  write("d.idx", data + 1, size - 1 - tokens);
  write("d.bin", data + size - tokens, tokens);
  write("d.npy", data, size);
  try {
    const danlu::data::IndexedDataset dataset(folder() / "d");
    for (int64_t i = 0; i < dataset.num_sequences(); ++i) dataset.tokens(i);
    for (int64_t i = 0; i <= dataset.num_documents(); ++i) dataset.document_start(i);
    if (dataset.has_modes()) dataset.mode(0);
    dataset.content_hash();
  } catch (const danlu::Error&) {
  }
  try {
    const danlu::data::NpyFile array(folder() / "d.npy");
    for (int64_t i = 0; i < array.shape().size(); ++i) array.at(i);
  } catch (const danlu::Error&) {
  }
  return 0;
}
