#include "weights/gguf/gguf_writer.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"

namespace danlu::weights::gguf {
namespace {

constexpr uint32_t kVersion = 3;
/// llama.cpp keeps names in 64 bytes, the last one zero.
constexpr size_t kMaxNameBytes = 63;

uint64_t padded(uint64_t size) {
  return (size + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment;
}

class HeaderText {
 public:
  template <typename T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(std::string_view text) {
    number<uint64_t>(text.size());
    text_ += text;
  }
  void array(const Array& array) {
    number(array.element);
    number(array.count);
    text_ += array.numbers;
    for (const std::string& item : array.strings) string(item);
    for (const Array& item : array.arrays) this->array(item);
  }
  void value(const Value& value) {
    number(static_cast<uint32_t>(value.index()));
    std::visit(
        [this](const auto& held) {
          using T = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<T, std::string>) {
            string(held);
          } else if constexpr (std::is_same_v<T, Array>) {
            array(held);
          } else if constexpr (std::is_same_v<T, bool>) {
            number<uint8_t>(held ? 1 : 0);
          } else {
            number(held);
          }
        },
        value);
  }
  /// `offset`: from the beginning of the data.
  void tensor(const PlannedTensor& tensor, uint64_t offset) {
    string(tensor.name);
    number(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      number(static_cast<uint64_t>(*size));
    number(static_cast<uint32_t>(tensor.type));
    number(offset);
  }
  std::string& text() { return text_; }

 private:
  std::string text_ = "GGUF";
};

void check(const PlannedTensor& tensor, std::set<std::string>& names) {
  const auto fail = [&](const std::string& what) {
    throw InternalError(fmt::format("[gguf] {}: {}", tensor.name, what));
  };
  if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes)
    fail(tr("a name has 1 to {} bytes", kMaxNameBytes));
  if (!names.insert(tensor.name).second) fail("stands twice");
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % type_traits(tensor.type).block != 0)
    fail(tr("rows of {} do not fill blocks of {}", row, type_traits(tensor.type).block));
}

}  // namespace

uint64_t size_bytes(const PlannedTensor& tensor) {
  uint64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= static_cast<uint64_t>(size);
  const TypeTraits& traits = type_traits(tensor.type);
  return elements / traits.block * traits.block_bytes;
}

PlannedFile plan_file(const Metadata& metadata, const std::vector<PlannedTensor>& tensors,
                      const std::vector<ConstantTensor>& constants) {
  HeaderText header;
  header.number(kVersion);
  header.number<uint64_t>(tensors.size() + constants.size());
  header.number<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    header.string(key);
    header.value(value);
  }
  std::set<std::string> names;
  std::vector<uint64_t> offsets;
  uint64_t end = 0;
  const auto add = [&](const PlannedTensor& tensor) {
    check(tensor, names);
    header.tensor(tensor, end);
    offsets.push_back(end);
    end += padded(size_bytes(tensor));
  };
  for (const PlannedTensor& tensor : tensors) add(tensor);
  for (const ConstantTensor& constant : constants) add(constant.tensor);

  PlannedFile plan;
  const uint64_t data = padded(header.text().size());
  plan.size_bytes = data + end;
  plan.known.push_back({0, std::move(header.text())});
  for (size_t i = 0; i < tensors.size(); ++i) plan.tensor_offsets.push_back(data + offsets[i]);
  for (size_t i = 0; i < constants.size(); ++i) {
    if (constants[i].bytes.size() != size_bytes(constants[i].tensor))
      throw InternalError(fmt::format("[gguf] {}: {} bytes given", constants[i].tensor.name,
                                      constants[i].bytes.size()));
    plan.known.push_back({data + offsets[tensors.size() + i], constants[i].bytes});
  }
  return plan;
}

}  // namespace danlu::weights::gguf
