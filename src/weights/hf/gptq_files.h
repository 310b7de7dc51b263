// weights/hf/gptq_files.h: a model whose linear layers are in GPTQ's codes, as AutoGPTQ,
// GPTQModel, transformers and vLLM open it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// The tensors of one layer as weights/hf/packed_weights.h describes them.
struct GptqTensors {
  int64_t rows = 0, cols = 0, groups = 0, bits = 4;
  std::vector<uint32_t> qweight, qzeros;
  std::vector<uint16_t> scales;  ///< F16 [groups, rows]
  std::vector<int32_t> g_idx;
};

/// Codes [rows, cols], scales and zeros [groups, rows] and each column's group, packed.
/// zeros_less_one: as "gptq" stores them; false: "gptq_v2".
GptqTensors pack_gptq(int64_t rows, int64_t cols, int64_t bits, const std::vector<uint8_t>& codes,
                      const std::vector<float>& scales, const std::vector<uint8_t>& zeros,
                      std::vector<int32_t> groups, bool zeros_less_one);

/// Writes the model: the weights of `layers`, by module name, in codes, all others of `model` in
/// `dtype`, with config.json and quantize_config.json that say `quantisation`.
/// Errors: as save_safetensors.
void save_gptq(const TensorSource& model, const arch::ModelConfig& config, DType dtype,
               const std::map<std::string, GptqTensors>& layers, const Json& quantisation,
               const std::filesystem::path& directory, uint64_t max_shard_bytes);

}  // namespace danlu::weights
