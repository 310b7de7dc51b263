// weights/hf/packed_weights.h: matrices that other systems quantised after training, as their files
// hold them: GPTQ, AWQ and compressed-tensors. They are dequantised as they are read.
//
// A linear layer X of `out` rows and `in` columns lies there as
//   GPTQ   X.qweight I32 [in * bits / 32, out], codes in a stream of bits down each column;
//          X.qzeros I32 [groups, out * bits / 32], along each row, less one in "gptq", as they are
//          in "gptq_v2"; X.scales [groups, out]; X.g_idx I32 [in], each column's group
//   AWQ    X.qweight I32 [in, out / 8] and X.qzeros I32 [groups, out / 8], 4 bits each, of 8
//          columns in the order 0 2 4 6 1 3 5 7; X.scales [groups, out]
//   compressed-tensors, pack-quantized
//          X.weight_packed I32 [out, in * bits / 32], X.weight_shape I64 [2], X.weight_scale
//          [out, groups]; X.weight_zero_point I32 [out * bits / 32, groups] and X.weight_g_idx
//          where there are any. Codes are stored plus 2^(bits-1)
//   compressed-tensors, float-quantized, naive-quantized and int-quantized
//          X.weight F8_E4M3 or I8 [out, in], X.weight_scale of the tensor ([], [1]), of each row
//          ([out], [out, 1]), of groups of a row, or of blocks; X.weight_zero_point I8 of I8
// A number is (code - zero) * scale, rounded to the scales' type, as each of their libraries has
// it. Source: AutoGPTQ 0.7 (qlinear_cuda), GPTQModel 2, AutoAWQ 0.2 (packing_utils),
// compressed-tensors 0.12 (compressors, lifecycle/forward).
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// Gives the source with such matrices under X.weight, [out, in] in the type of the scales, and
/// without what lies beside them; the same source if it has none. `directory` holds config.json
/// ("quantization_config"), quantize_config.json (GPTQ) or quant_config.json (AWQ), which say what
/// the tensors do not. Errors: ModelError for parts that are missing, or of another shape or type,
/// and where nothing says how they are packed.
std::shared_ptr<const TensorSource> with_packed_weights(std::shared_ptr<const TensorSource> source,
                                                        const std::filesystem::path& directory);

/// Whether the tensor is such a matrix of GPTQ or AWQ: a linear layer's, [out, in], whichever way
/// round the family's own files have it.
bool is_packed_linear(const TensorSource& source, const std::string& name);

/// What a line says of the matrices that `source` dequantises: "168 x GPTQ 4 bits"; "": there are
/// none. Blocks of FP8 (weights/hf/block_scales.h) count, NF4 does not.
std::string packed_text(const TensorSource& source);

}  // namespace danlu::weights
