// tests/weights/small_tensors.h: weight files made of numbers that a test states, and read back as
// numbers.
#pragma once
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weights/tensor_source.h"

namespace danlu::test {

struct SmallTensor {
  std::vector<int64_t> shape;
  std::vector<double> values;
  DType dtype = DType::kF32;
};
using SmallTensors = std::map<std::string, SmallTensor>;

/// Little-endian bytes of a number in one of the floating types or I64.
inline void append_number(std::string& bytes, double value, DType dtype) {
  char item[8];
  if (dtype == DType::kI64) {
    const auto whole = static_cast<int64_t>(value);
    std::memcpy(item, &whole, sizeof whole);
  } else {
    cast_elements(&value, DType::kF64, item, dtype, 1);
  }
  bytes.append(item, dtype_size_bytes(dtype));
}

inline void save_small(const std::filesystem::path& directory, const SmallTensors& tensors,
                       const weights::SaveOptions& options = {}) {
  std::filesystem::create_directories(directory);
  std::vector<weights::TensorInfo> infos;
  for (const auto& [name, tensor] : tensors) infos.push_back({name, tensor.dtype, tensor.shape});
  std::string bytes;
  weights::save_safetensors(
      directory, infos,
      [&](size_t index) {
        bytes.clear();
        const SmallTensor& tensor = tensors.at(infos[index].name);
        for (const double value : tensor.values) append_number(bytes, value, tensor.dtype);
        return std::span<const std::byte>(reinterpret_cast<const std::byte*>(bytes.data()),
                                          bytes.size());
      },
      options);
}

/// Saved under `directory` and opened.
inline std::shared_ptr<const weights::TensorSource> make_source(
    const std::filesystem::path& directory, const SmallTensors& tensors) {
  save_small(directory, tensors);
  return weights::open_weights(directory);
}

/// A floating tensor as doubles.
inline std::vector<double> numbers_of(const weights::TensorSource& source,
                                      const std::string& name) {
  const weights::TensorInfo& info = *source.find(name);
  std::vector<std::byte> bytes(info.size_bytes());
  source.read(name, bytes);
  std::vector<double> values(static_cast<size_t>(info.num_elements()));
  cast_elements(bytes.data(), info.dtype, values.data(), DType::kF64, values.size());
  return values;
}

}  // namespace danlu::test
