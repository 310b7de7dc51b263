// tests/support/plain_gguf.h: the simplest reader of a GGUF file, without any check: an oracle for
// the strict one, and for rooms that must not use it.
#pragma once
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"

namespace danlu::test {

/// Metadata by key, numbers of every type as double; tensors with their bytes.
struct PlainGguf {
  struct Tensor {
    std::vector<int64_t> shape;  ///< row-major
    uint32_t type = 0;
    size_t offset = 0;  ///< in the file
  };
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<double>> number_lists;
  std::map<std::string, std::vector<std::string>> text_lists;
  std::map<std::string, Tensor> tensors;
  std::string bytes;

  explicit PlainGguf(const std::filesystem::path& file) : bytes(read_file(file)) {
    at_ = 8;
    const auto num_tensors = take<uint64_t>(), num_keys = take<uint64_t>();
    for (uint64_t i = 0; i < num_keys; ++i) read_key();
    for (uint64_t i = 0; i < num_tensors; ++i) {
      const std::string name = text();
      Tensor& tensor = tensors[name];
      for (auto dims = take<uint32_t>(); dims > 0; --dims)
        tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(take<uint64_t>()));
      tensor.type = take<uint32_t>();
      tensor.offset = take<uint64_t>();
    }
    at_ = (at_ + 31) / 32 * 32;
    for (auto& [name, tensor] : tensors) tensor.offset += at_;
  }

  /// The tensor's first `count` F32 numbers.
  std::vector<float> floats(const std::string& name, size_t count) const {
    std::vector<float> result(count);
    std::memcpy(result.data(), bytes.data() + tensors.at(name).offset, count * sizeof(float));
    return result;
  }

 private:
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, bytes.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto size = take<uint64_t>();
    at_ += size;
    return bytes.substr(at_ - size, size);
  }
  double number(uint32_t type) {
    switch (type) {
      case 0:
        return take<uint8_t>();
      case 1:
        return take<int8_t>();
      case 2:
        return take<uint16_t>();
      case 3:
        return take<int16_t>();
      case 4:
        return take<uint32_t>();
      case 5:
        return take<int32_t>();
      case 6:
        return static_cast<double>(take<float>());
      case 7:
        return take<uint8_t>();
      case 10:
        return static_cast<double>(take<uint64_t>());
      case 11:
        return static_cast<double>(take<int64_t>());
      default:
        return take<double>();
    }
  }
  void read_key() {
    const std::string key = text();
    const auto type = take<uint32_t>();
    if (type == 8) {
      texts[key] = text();
    } else if (type == 9) {
      const auto element = take<uint32_t>();
      for (auto count = take<uint64_t>(); count > 0; --count) {
        if (element == 8) {
          text_lists[key].push_back(text());
        } else {
          number_lists[key].push_back(number(element));
        }
      }
    } else {
      numbers[key] = number(type);
    }
  }

  size_t at_ = 0;
};

}  // namespace danlu::test
