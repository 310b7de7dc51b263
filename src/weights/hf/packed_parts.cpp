#include "weights/hf/packed_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/lower_case.h"
#include "weights/source_base.h"

namespace danlu::weights {
namespace {

constexpr std::string_view kCodes = ".qweight", kCodesOfRows = ".weight_packed",
                           kScaleOfRows = ".weight_scale";

int64_t count_of_parts(int64_t size, int64_t part) { return (size + part - 1) / part; }
int64_t words_of(int64_t codes, int64_t bits) { return count_of_parts(codes * bits, 32); }

/// The object of `json` that describes quantised weights, wherever its exporter puts it.
const Json* quantisation_in(const Json& json) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const auto found = json.find(key);
    if (found != json.end() && found->is_object()) return &*found;
  }
  const auto text = json.find("text_config");
  return text != json.end() && text->is_object() ? quantisation_in(*text) : nullptr;
}

/// Errors: ModelError for versions that pack otherwise.
void check_awq(const PackedConfig& config, const std::string& version) {
  if (config.bits == 4 && lower_case(version) == "gemm") return;
  throw ModelError(tr("AWQ's weights are read in version GEMM and of 4 bits, got {} and {}",
                      version, config.bits),
                   tr("take the unquantised release of the model"));
}

void take_block(const Json& quantisation, PackedConfig& config) {
  const auto groups = json_get<Json>(quantisation, "config_groups");
  if (!groups || !groups->is_object()) return;
  for (const auto& [name, group] : groups->items()) {
    const auto weights = json_get<Json>(group, "weights");
    if (!weights || !weights->is_object()) continue;
    const auto found = weights->find("block_structure");
    if (found == weights->end() || !found->is_array() || found->size() != 2) continue;
    config.block = found->get<std::vector<int64_t>>();
  }
}

PackedConfig packed_config_from(const Json& quantisation, const std::string& fallback) {
  PackedConfig config;
  const auto number = [&](const char* key, const char* other, int64_t otherwise) {
    const auto found = json_get<int64_t>(quantisation, key);
    return found ? *found : json_get<int64_t>(quantisation, other).value_or(otherwise);
  };
  config.method =
      lower_case(json_get<std::string>(quantisation, "quant_method").value_or(fallback));
  config.bits = number("bits", "w_bit", 4);
  config.group = number("group_size", "q_group_size", -1);
  config.zeros_less_one =
      json_get<std::string>(quantisation, "checkpoint_format").value_or("gptq") != "gptq_v2";
  if (config.method == "awq")
    check_awq(config, json_get<std::string>(quantisation, "version").value_or("gemm"));
  if (config.method == "compressed-tensors") take_block(quantisation, config);
  return config;
}

/// Finds the parts of one matrix and checks them.
class PartsOf {
 public:
  PartsOf(const TensorSource& source, std::string layer, std::string of, PackedMatrix& matrix)
      : source_(source), layer_(std::move(layer)), of_(std::move(of)), matrix_(matrix) {}

  const TensorInfo* find(std::string_view part) const {
    return source_.find(layer_ + std::string(part));
  }
  /// The part, which is hidden from now on. Errors: ModelError where it is missing.
  const TensorInfo& take(std::string_view part) const {
    const TensorInfo* const info = find(part);
    if (!info) refuse(tr("{} is missing", layer_ + std::string(part)));
    matrix_.parts.push_back(info->name);
    return *info;
  }
  void expect(const TensorInfo& info, DType dtype, const std::vector<int64_t>& shape) const {
    if (info.dtype == dtype && info.shape == shape) return;
    refuse(tr("{} is {} {}, expected {} {}", info.name, dtype_name(info.dtype),
              shape_text(info.shape), dtype_name(dtype), shape_text(shape)));
  }
  void expect_scales(const TensorInfo& info, const std::vector<int64_t>& shape) const {
    const bool is_float =
        info.dtype == DType::kF16 || info.dtype == DType::kBF16 || info.dtype == DType::kF32;
    if (is_float && info.shape == shape) return;
    refuse(tr("{} is {} {}, expected F16, BF16 or F32 {}", info.name, dtype_name(info.dtype),
              shape_text(info.shape), shape_text(shape)));
  }
  void expect_matrix(const TensorInfo& info) const {
    if (info.shape.size() == 2 && info.shape[0] > 0 && info.shape[1] > 0) return;
    refuse(tr("{} is {}, expected a matrix", info.name, shape_text(info.shape)));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw ModelError(tr("{}: {} is not packed as its configuration says: {}",
                        source_.file_of(matrix_.parts.front()).string(), of_, what),
                     tr("take the unquantised release of the model"));
  }

 private:
  const TensorSource& source_;
  std::string layer_, of_;
  PackedMatrix& matrix_;
};

void take_gptq(const PartsOf& parts, const PackedConfig& config, PackedMatrix& matrix) {
  const TensorInfo& codes = parts.take(kCodes);
  const TensorInfo& scales = parts.take(".scales");
  const TensorInfo& zeros = parts.take(".qzeros");
  parts.expect_matrix(codes);
  parts.expect_matrix(scales);
  const TensorInfo* const order = parts.find(".g_idx");
  matrix.rows = codes.shape[1];
  matrix.groups = scales.shape[0];
  matrix.bits = config.bits;
  matrix.cols = codes.shape[0] * 32 / std::max<int64_t>(matrix.bits, 1);
  if (order && order->shape.size() == 1 && order->shape[0] > 0) {
    // Layers may differ in bits ("dynamic").
    matrix.cols = order->shape[0];
    matrix.bits = codes.shape[0] * 32 / matrix.cols;
  }
  constexpr int64_t kBits[] = {2, 3, 4, 8};
  if (std::find(std::begin(kBits), std::end(kBits), matrix.bits) == std::end(kBits))
    parts.refuse(tr("{} bits; 2, 3, 4 and 8 are read", matrix.bits));
  matrix.col_block = config.group > 0 ? config.group : matrix.cols;
  if (order) {
    matrix.groups_of = parts.take(".g_idx").name;
    parts.expect(*order, DType::kI32, {matrix.cols});
  } else if (count_of_parts(matrix.cols, matrix.col_block) != matrix.groups) {
    parts.refuse(tr("{} has {} groups, and group_size {} of {} columns makes {}", scales.name,
                    matrix.groups, config.group, matrix.cols,
                    count_of_parts(matrix.cols, matrix.col_block)));
  }
  matrix.packing = Packing::kGptq;
  matrix.zeros_less_one = config.zeros_less_one;
  parts.expect(codes, DType::kI32, {words_of(matrix.cols, matrix.bits), matrix.rows});
  parts.expect(zeros, DType::kI32, {matrix.groups, words_of(matrix.rows, matrix.bits)});
  parts.expect_scales(scales, {matrix.groups, matrix.rows});
  matrix.codes = codes.name, matrix.scales = scales.name, matrix.zeros = zeros.name;
  matrix.dtype = scales.dtype;
}

void take_awq(const PartsOf& parts, const PackedConfig& config, PackedMatrix& matrix) {
  const TensorInfo& codes = parts.take(kCodes);
  const TensorInfo& scales = parts.take(".scales");
  const TensorInfo& zeros = parts.take(".qzeros");
  parts.expect_matrix(codes);
  matrix.packing = Packing::kAwq;
  matrix.bits = 4;
  matrix.rows = codes.shape[1] * 8;
  matrix.cols = codes.shape[0];
  matrix.col_block = config.group > 0 ? config.group : matrix.cols;
  matrix.groups = count_of_parts(matrix.cols, matrix.col_block);
  parts.expect(codes, DType::kI32, {matrix.cols, matrix.rows / 8});
  parts.expect(zeros, DType::kI32, {matrix.groups, matrix.rows / 8});
  parts.expect_scales(scales, {matrix.groups, matrix.rows});
  matrix.codes = codes.name, matrix.scales = scales.name, matrix.zeros = zeros.name;
  matrix.dtype = scales.dtype;
}

/// How scales of one row, or of fewer, lie over a matrix of compressed-tensors.
void take_scales(const PartsOf& parts, const PackedConfig& config, PackedMatrix& matrix) {
  const TensorInfo& scales = parts.take(kScaleOfRows);
  matrix.scales = scales.name;
  matrix.dtype = scales.dtype;
  const int64_t count = scales.num_elements();
  if (count == 1) {
    matrix.row_block = matrix.rows;
    matrix.col_block = matrix.cols;
    return parts.expect_scales(scales, scales.shape);
  }
  const bool is_matrix = scales.shape.size() == 2;
  if (count == matrix.rows && (!is_matrix || scales.shape[1] == 1)) {
    matrix.col_block = matrix.cols;
    return parts.expect_scales(scales, scales.shape);
  }
  parts.expect_matrix(scales);
  if (scales.shape[0] == matrix.rows && matrix.cols % scales.shape[1] == 0) {
    matrix.groups = scales.shape[1];
    matrix.col_block = matrix.cols / matrix.groups;
    return parts.expect_scales(scales, scales.shape);
  }
  const std::vector<int64_t> block =
      config.block.empty() ? std::vector<int64_t>{128, 128} : config.block;
  if (block[0] < 1 || block[1] < 1)
    parts.refuse(tr("blocks of {} x {} numbers", block[0], block[1]));
  matrix.row_block = block[0];
  matrix.col_block = block[1];
  matrix.groups = count_of_parts(matrix.cols, block[1]);
  parts.expect_scales(scales, {count_of_parts(matrix.rows, block[0]), matrix.groups});
}

/// weight_shape, a tensor of two numbers.
void take_shape(const TensorSource& source, const PartsOf& parts, PackedMatrix& matrix) {
  const TensorInfo& shape = parts.take(".weight_shape");
  if (shape.num_elements() != 2 || (shape.dtype != DType::kI64 && shape.dtype != DType::kI32))
    parts.refuse(tr("{} is {} {}, expected {} {}", shape.name, dtype_name(shape.dtype),
                    shape_text(shape.shape), "I64", "[2]"));
  if (shape.dtype == DType::kI64) {
    int64_t sizes[2];
    source.read(shape.name, std::as_writable_bytes(std::span(sizes)));
    matrix.rows = sizes[0], matrix.cols = sizes[1];
  } else {
    int32_t sizes[2];
    source.read(shape.name, std::as_writable_bytes(std::span(sizes)));
    matrix.rows = sizes[0], matrix.cols = sizes[1];
  }
}

void take_packed(const TensorSource& source, const PartsOf& parts, const PackedConfig& config,
                 PackedMatrix& matrix) {
  matrix.packing = Packing::kPacked;
  const TensorInfo& codes = parts.take(kCodesOfRows);
  matrix.codes = codes.name;
  parts.expect_matrix(codes);
  take_shape(source, parts, matrix);
  constexpr int64_t kMostColumns = int64_t{1} << 40;
  const bool fits = matrix.rows == codes.shape[0] && matrix.cols > 0 && matrix.cols < kMostColumns;
  matrix.bits = fits && codes.shape[1] == words_of(matrix.cols, 4)   ? 4
                : fits && codes.shape[1] == words_of(matrix.cols, 8) ? 8
                                                                     : 0;
  if (matrix.bits == 0)
    parts.refuse(tr("{} is {}, of a matrix {} in 4 or 8 bits", codes.name, shape_text(codes.shape),
                    shape_text({matrix.rows, matrix.cols})));
  parts.expect(codes, DType::kI32, {matrix.rows, words_of(matrix.cols, matrix.bits)});
  take_scales(parts, config, matrix);
  if (matrix.row_block != 1 && matrix.row_block != matrix.rows)
    parts.refuse(
        tr("{} is of blocks; of packed codes scales are of rows or groups", matrix.scales));
  if (parts.find(".weight_zero_point")) {
    const TensorInfo& zeros = parts.take(".weight_zero_point");
    matrix.zeros = zeros.name;
    parts.expect(zeros, DType::kI32, {words_of(matrix.rows, matrix.bits), matrix.groups});
  }
  if (!parts.find(".weight_g_idx")) return;
  const TensorInfo& order = parts.take(".weight_g_idx");
  matrix.groups_of = order.name;
  parts.expect(order, DType::kI32, {matrix.cols});
}

void take_scaled(const TensorSource& source, const PartsOf& parts, const PackedConfig& config,
                 PackedMatrix& matrix) {
  matrix.packing = Packing::kScaled;
  const TensorInfo& codes = parts.take(".weight");
  matrix.codes = codes.name;
  const std::string type = source.storage(codes.name).type;
  if (type != "F8_E4M3" && type != "I8")
    parts.refuse(tr("{} is {}, expected F8_E4M3 or I8", codes.name, type));
  parts.expect_matrix(codes);
  matrix.bits = 8;
  matrix.rows = codes.shape[0];
  matrix.cols = codes.shape[1];
  take_scales(parts, config, matrix);
  if (parts.find(".input_scale")) parts.take(".input_scale");  // of activations, quantised there
  if (!parts.find(".weight_zero_point")) return;
  const TensorInfo& zeros = parts.take(".weight_zero_point");
  matrix.zeros = zeros.name;
  parts.expect(zeros, DType::kI8, source.find(matrix.scales)->shape);
}

/// The layer that a tensor of this ending is of; nothing: it has another ending.
std::optional<std::string> layer_before(const std::string& name, std::string_view ending) {
  if (!name.ends_with(ending)) return std::nullopt;
  return name.substr(0, name.size() - ending.size());
}

}  // namespace

std::string PackedMatrix::storage_name() const {
  switch (packing) {
    case Packing::kGptq:
      return fmt::format("GPTQ {} bits", bits);
    case Packing::kAwq:
      return fmt::format("AWQ {} bits", bits);
    case Packing::kPacked:
      return fmt::format("compressed-tensors {} bits", bits);
    case Packing::kScaled:
      break;
  }
  return fmt::format("compressed-tensors {}", "8-bit");
}

PackedConfig packed_config_in(const std::filesystem::path& directory) {
  std::error_code error;
  if (const auto file = directory / "config.json"; std::filesystem::exists(file, error)) {
    const Json json = read_json_file(file);
    if (const Json* const found = json.is_object() ? quantisation_in(json) : nullptr)
      return packed_config_from(*found, "");
  }
  if (const auto file = directory / "quantize_config.json"; std::filesystem::exists(file, error))
    return packed_config_from(read_json_file(file), "gptq");
  if (const auto file = directory / "quant_config.json"; std::filesystem::exists(file, error))
    return packed_config_from(read_json_file(file), "awq");
  return {};
}

std::map<std::string, PackedMatrix> packed_matrices(const TensorSource& source,
                                                    const std::filesystem::path& directory) {
  std::map<std::string, PackedMatrix> matrices;
  std::optional<PackedConfig> config;
  for (const TensorInfo& info : source.tensors()) {
    for (const std::string_view ending : {kCodes, kCodesOfRows, kScaleOfRows}) {
      const auto layer = layer_before(info.name, ending);
      if (!layer || (ending == kScaleOfRows && source.find(*layer + std::string(kCodesOfRows))))
        continue;
      const std::string name = *layer + ".weight";
      // In some exports a scale lies beside weights that stayed as they were.
      if (ending == kScaleOfRows && !source.find(name)) continue;
      if (!config) config = packed_config_in(directory);
      PackedMatrix& matrix = matrices[name];
      matrix.parts.push_back(info.name);
      const PartsOf parts(source, *layer, name, matrix);
      if (ending != kScaleOfRows && source.find(name))
        parts.refuse(tr("{} is there as well", name));
      if (ending == kCodesOfRows) {
        take_packed(source, parts, *config, matrix);
      } else if (ending == kScaleOfRows) {
        take_scaled(source, parts, *config, matrix);
      } else if (config->method == "gptq") {
        take_gptq(parts, *config, matrix);
      } else if (config->method == "awq") {
        take_awq(parts, *config, matrix);
      } else {
        parts.refuse(
            tr("neither quantization_config of config.json nor quantize_config.json in "
               "{} says gptq or awq",
               directory.string()));
      }
    }
  }
  return matrices;
}

}  // namespace danlu::weights
