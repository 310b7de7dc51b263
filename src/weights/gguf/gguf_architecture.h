// weights/gguf/gguf_architecture.h: which models llama.cpp computes exactly, and the metadata keys
// that describe them to it.
#pragma once
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "weights/gguf/gguf_format.h"

namespace danlu::weights::gguf {

/// llama.cpp's name of the family ("llama", "qwen2moe", …). Errors: ModelError for a model that
/// llama.cpp would compute differently, saying why.
std::string architecture_of(const arch::ModelConfig& config);

/// Where llama.cpp computes something else than a model that it has an architecture for, in every
/// file of that kind: a line each.
std::vector<std::string> departures_of_llama_cpp(const arch::ModelConfig& config);

/// Whether llama.cpp's files of such a model have the layers that predict further ahead: its
/// DeepSeek models are written without.
bool keeps_predictions(const arch::ModelConfig& config);

/// general.* and <architecture>.* keys; `type` is that of most matrices, an empty `name` is left
/// out. `notes` gets a line for what llama.cpp leaves out. Errors: as architecture_of; ModelError
/// for a size that the format cannot hold.
/// Source: llama.cpp, gguf-py/gguf/constants.py.
Metadata model_metadata(const arch::ModelConfig& config, TensorType type, const std::string& name,
                        std::vector<std::string>& notes);

/// The number whose root Gemma 2 and 3 divide their scores by, as llama.cpp knows it of the depth.
/// architecture: llama.cpp's name.
int64_t gemma_query_scalar(const arch::ModelConfig& config, const std::string& architecture);

/// One of so many layers of Gemma 3 has no window.
inline constexpr int64_t kGemma3Period = 6;

/// Factors by which llama.cpp divides the rotary frequencies of a llama3-scaled model, one per pair
/// of dimensions. Source: transformers' _compute_llama3_parameters.
std::vector<float> llama3_frequency_factors(const arch::ModelConfig& config);

/// Tensors of such factors: of llama3 scaling; of longrope, for long and for short texts.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";
inline constexpr const char* kLongFactors = "rope_factors_long.weight";
inline constexpr const char* kShortFactors = "rope_factors_short.weight";

/// The factor on cosines and sines of a model with longrope.
double longrope_attention_factor(const arch::ModelConfig& config);

}  // namespace danlu::weights::gguf
