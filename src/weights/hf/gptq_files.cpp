#include "weights/hf/gptq_files.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "weights/cast.h"
#include "weights/hf/save_model.h"

namespace danlu::weights {
namespace {

/// Adds the code that begins at `bit` of a stream whose words lie `stride` apart.
void add_code(uint32_t* words, int64_t stride, int64_t bit, int64_t bits, uint32_t code) {
  const int64_t word = bit / 32, shift = bit % 32;
  words[word * stride] |= code << shift;
  if (shift + bits > 32) words[(word + 1) * stride] |= code >> (32 - shift);
}

/// A tensor that is written: one of a layer's, or of the model where there is no layer.
struct GptqPart {
  TensorInfo info;
  const GptqTensors* of = nullptr;
};

void add_parts(const std::string& module, const GptqTensors& layer, std::vector<GptqPart>& parts) {
  const auto words = [&](int64_t codes) { return codes * layer.bits / 32; };
  const auto put = [&](const char* ending, DType dtype, std::vector<int64_t> shape) {
    parts.push_back({{module + ending, dtype, std::move(shape)}, &layer});
  };
  put(".g_idx", DType::kI32, {layer.cols});
  put(".qweight", DType::kI32, {words(layer.cols), layer.rows});
  put(".qzeros", DType::kI32, {layer.groups, words(layer.rows)});
  put(".scales", DType::kF16, {layer.groups, layer.rows});
}

std::span<const std::byte> bytes_of(const GptqPart& part) {
  const std::string& name = part.info.name;
  if (name.ends_with(".g_idx")) return std::as_bytes(std::span(part.of->g_idx));
  if (name.ends_with(".qweight")) return std::as_bytes(std::span(part.of->qweight));
  if (name.ends_with(".qzeros")) return std::as_bytes(std::span(part.of->qzeros));
  return std::as_bytes(std::span(part.of->scales));
}

/// The module whose weight this is; nothing: it is no weight.
std::string module_of_weight(const std::string& name) {
  constexpr std::string_view kWeight = ".weight";
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : "";
}

}  // namespace

GptqTensors pack_gptq(int64_t rows, int64_t cols, int64_t bits, const std::vector<uint8_t>& codes,
                      const std::vector<float>& scales, const std::vector<uint8_t>& zeros,
                      std::vector<int32_t> groups, bool zeros_less_one) {
  GptqTensors made;
  made.rows = rows, made.cols = cols, made.bits = bits;
  made.groups = static_cast<int64_t>(scales.size()) / rows;
  if (rows * bits % 32 != 0 || cols * bits % 32 != 0)
    throw InternalError("[gptq] words of 32 bits do not divide rows and columns");
  made.qweight.resize(static_cast<size_t>(cols * bits / 32 * rows));
  made.qzeros.resize(static_cast<size_t>(made.groups * (rows * bits / 32)));
  made.g_idx = std::move(groups);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c)
      add_code(&made.qweight[static_cast<size_t>(r)], rows, c * bits, bits,
               codes[static_cast<size_t>(r * cols + c)]);
  }
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t g = 0; g < made.groups; ++g) {
    for (int64_t r = 0; r < rows; ++r) {
      const uint32_t zero = zeros[static_cast<size_t>(g * rows + r)];
      add_code(&made.qzeros[static_cast<size_t>(g * (rows * bits / 32))], 1, r * bits, bits,
               (zero - (zeros_less_one ? 1 : 0)) & mask);
    }
  }
  for (const float scale : scales) made.scales.push_back(float_to_f16(scale));
  return made;
}

void save_gptq(const TensorSource& model, const arch::ModelConfig& config, DType dtype,
               const std::map<std::string, GptqTensors>& layers, const Json& quantisation,
               const std::filesystem::path& directory, uint64_t max_shard_bytes) {
  std::vector<GptqPart> parts;
  for (const TensorInfo& info : saved_tensors(model, config, dtype)) {
    const auto layer = layers.find(module_of_weight(info.name));
    if (layer == layers.end()) {
      parts.push_back({info});
    } else {
      add_parts(layer->first, layer->second, parts);
    }
  }
  std::vector<TensorInfo> infos;
  for (const GptqPart& part : parts) infos.push_back(part.info);
  std::vector<std::byte> stored, cast;
  save_safetensors(directory, infos, TensorBytes([&](size_t index) -> std::span<const std::byte> {
                     const GptqPart& part = parts[index];
                     if (part.of) return bytes_of(part);
                     const TensorInfo& own = *model.find(part.info.name);
                     stored.resize(own.size_bytes());
                     model.read(own.name, stored);
                     if (own.dtype == part.info.dtype) return stored;
                     cast.resize(part.info.size_bytes());
                     cast_weights(model, own, stored.data(), cast.data(), part.info.dtype,
                                  static_cast<size_t>(own.num_elements()));
                     return cast;
                   }),
                   {.max_shard_bytes = max_shard_bytes});
  Json json = saved_config(config, dtype);
  json["quantization_config"] = quantisation;
  write_json_file(directory / "config.json", json);
  write_json_file(directory / "quantize_config.json", quantisation);
}

}  // namespace danlu::weights
