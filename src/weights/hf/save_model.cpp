#include "weights/hf/save_model.h"

#include <string>

#include "base/error.h"
#include "base/file.h"
#include "weights/convert/layout_writer.h"
#include "weights/hf/safetensors_target.h"
#include "weights/megatron/model_layout.h"
#include "weights/tensor_bands.h"

namespace danlu::weights {
namespace {

/// config.json's spelling.
std::string torch_name_of_weights(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF64:
      return "float64";
    default:
      throw UsageError(
          tr("[weights] models are saved in fp32, bf16, fp16 or fp64, not {}", dtype_name(dtype)));
  }
}

}  // namespace

Json saved_config(const arch::ModelConfig& config, DType dtype) {
  Json json = config.raw;
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name_of_weights(dtype);
  // A head that has weights of its own by now must say so.
  if (json.contains("tie_word_embeddings") || config.tie_embeddings)
    json["tie_word_embeddings"] = config.tie_embeddings;
  return json;
}

void save_model(const TensorSource& model, const arch::ModelConfig& config, DType dtype,
                const std::filesystem::path& directory) {
  const Json json = saved_config(config, dtype);
  const Target target =
      plan_hf_directory(megatron::global_tensors(config, dtype), SaveOptions{}.max_shard_bytes);
  write_layout(model, target.layout, target.plans, directory,
               {.num_threads = streaming_threads(), .keeps_finished = false});
  for (const auto& [name, text] : target.texts) write_file_atomic(directory / name, text);
  write_json_file(directory / "config.json", json);
}

}  // namespace danlu::weights
