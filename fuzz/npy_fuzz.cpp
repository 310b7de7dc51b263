// fuzz/npy_fuzz.cpp: any bytes as a .npy file must be read or refused, never crash. The first byte
// says whether the rest is a file or only a header, to which the target gives a good preamble.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "data/megatron/npy.h"

namespace {

namespace fs = std::filesystem;

const fs::path& file() {
  static const fs::path kFile = [] {
    danlu::log::set_level(danlu::log::Level::kOff);
    const fs::path base = fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    std::atexit([] {
      std::error_code ignored;
      fs::remove(file(), ignored);
    });
    return base / ("danlu-npy-fuzz-" + std::to_string(::getpid()) + ".npy");
  }();
  return kFile;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 0xffff) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) {
    const auto length = static_cast<uint16_t>(bytes.size());
    std::string preamble("\x93NUMPY\x01\x00", 8);
    preamble.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes = preamble + bytes + std::string(64, '\1');
  }
  std::ofstream(file(), std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  try {
    const danlu::data::NpyFile array(file());
    for (int64_t i = 0; i < array.shape().size(); ++i) array.at(i);
  } catch (const danlu::Error&) {
  }
  return 0;
}
