#include "weights/hf/save_model.h"

#include <set>
#include <string>

#include "arch/prediction.h"
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

/// Where transformers has the decoder's keys of a model that sees pictures; nullptr: at the top.
Json* decoder_in(Json& config_json) {
  const auto found = config_json.find("text_config");
  return found != config_json.end() && found->is_object() ? &*found : nullptr;
}

}  // namespace

void set_tied(Json& config_json, bool is_tied) {
  config_json["tie_word_embeddings"] = is_tied;
  Json* const decoder = decoder_in(config_json);
  if (decoder && decoder->contains("tie_word_embeddings"))
    (*decoder)["tie_word_embeddings"] = is_tied;
}

Json saved_config(const arch::ModelConfig& config, DType dtype) {
  Json json = config.raw;
  // Files are written unquantised.
  json.erase("quantization_config");
  json.erase("compression_config");
  const std::string name = torch_name_of_weights(dtype);
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  if (Json* const decoder = decoder_in(json)) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (decoder->contains(key)) (*decoder)[key] = name;
    }
  }
  if (config.score) {
    // Beside the files of a model with a vocabulary, which stay as they are.
    if (config.score->is_described()) arch::describe_score(config, json);
    return json;
  }
  if (config.encoder) {
    // The heads of pre-training are not read, and not written.
    json["architectures"] = Json::array({arch::family_named(config.family).architectures.front()});
    return json;
  }
  // A head that has weights of its own by now must say so.
  if (json.contains("tie_word_embeddings") || config.tie_embeddings || decoder_in(json))
    set_tied(json, config.tie_embeddings);
  return json;
}

std::vector<TensorInfo> saved_tensors(const TensorSource& model, const arch::ModelConfig& config,
                                      DType dtype) {
  std::vector<TensorInfo> saved = megatron::global_tensors(config, dtype);
  if (!config.predicts_ahead && !config.score) {
    for (const TensorInfo& info : model.tensors()) {
      if (arch::is_of_prediction_layer(config, info.name))
        saved.push_back({info.name, is_floating(info.dtype) ? dtype : info.dtype, info.shape});
    }
  }
  const std::set<std::string> wide = arch::wide_parameters(config);
  for (TensorInfo& info : saved) {
    const TensorInfo* const own = wide.count(info.name) ? model.find(info.name) : nullptr;
    if (own && is_floating(own->dtype)) info.dtype = own->dtype;
  }
  return saved;
}

void save_model(const TensorSource& model, const arch::ModelConfig& config, DType dtype,
                const std::filesystem::path& directory, uint64_t max_shard_bytes) {
  const Json json = saved_config(config, dtype);
  const Target target = plan_hf_model(config, saved_tensors(model, config, dtype), max_shard_bytes);
  write_layout(model, target.layout, target.plans, directory,
               {.num_threads = streaming_threads(), .keeps_finished = false});
  for (const auto& [name, text] : target.texts) write_file_atomic(directory / name, text);
  write_json_file(directory / "config.json", json);
}

}  // namespace danlu::weights
