// fuzz/native_index_fuzz.cpp: any text as danlu_checkpoint.json must open as a checkpoint or be
// refused; what opens lies in the files that are there, and can be read to its end.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "weights/hf/safetensors_header.h"
#include "weights/native/native.h"

namespace {

namespace fs = std::filesystem;
using namespace danlu::weights;

constexpr size_t kMostBytes = 1 << 20;

/// A folder with two files of two tensors, w and exp_avg.w, of 4 × 3 and 2 × 3.
const fs::path& folder() {
  static const fs::path kFolder = [] {
    danlu::log::set_level(danlu::log::Level::kOff);
    const fs::path base = fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    const fs::path path = base / ("danlu-native-fuzz-" + std::to_string(::getpid()));
    fs::create_directories(path);
    for (const auto& [name, rows] : {std::pair{"a", int64_t{4}}, std::pair{"b", int64_t{2}}}) {
      const std::vector<TensorInfo> infos = {{"w", danlu::DType::kF32, {rows, 3}},
                                             {"exp_avg.w", danlu::DType::kF32, {rows, 3}}};
      std::ofstream(path / name, std::ios::binary)
          << build_safetensors_header(infos, {}) << std::string(static_cast<size_t>(rows) * 24, 1);
    }
    std::atexit([] {
      std::error_code ignored;
      fs::remove_all(folder(), ignored);
    });
    return path;
  }();
  return kFolder;
}

void read_all(const TensorSource& source) {
  for (const TensorInfo& info : source.tensors()) {
    if (info.size_bytes() > kMostBytes) std::abort();  // the files hold 144 bytes
    std::vector<std::byte> bytes(info.size_bytes());
    source.read(info.name, bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::ofstream(folder() / native::kIndexFile, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    const native::Checkpoint checkpoint = native::open_checkpoint(folder());
    read_all(*checkpoint.model);
    if (checkpoint.optimizer.tensors) read_all(*checkpoint.optimizer.tensors);
  } catch (const danlu::InternalError&) {
    std::abort();
  } catch (const danlu::Error&) {
  }
  return 0;
}
