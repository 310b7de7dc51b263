// weights/gguf/gguf_model.h: a model of one of Danlu's families as llama.cpp expects it in a GGUF
// file: metadata keys, tensor names, and which parts of which named global tensors they are made
// of.
#pragma once
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "weights/gguf/gguf_writer.h"
#include "weights/layout.h"

namespace danlu::weights::gguf {

struct ModelOptions {
  /// The type of matrices; vectors and routers are always F32, with Q4_0 the embedding and the head
  /// Q8_0.
  TensorType type = TensorType::kF16;
  std::string model_name = {};  ///< general.name; empty: left out
  std::string file_name = "model.gguf";
  /// Latent attention: keys and values of all heads come from one matrix, attn_kv_b, as in files of
  /// before llama.cpp computed in the short vectors; false: from attn_k_b and attn_v_b.
  bool joins_kv_up = false;
};

struct ModelPlan {
  /// Architecture and sizes; what describes the tokenizer is appended by who knows it.
  Metadata metadata;
  Layout layout;                          ///< one file
  std::vector<PlannedTensor> tensors;     ///< those of layout.tensors, in their order
  std::vector<ConstantTensor> constants;  ///< tensors made from the config alone
  std::vector<std::string> notes;         ///< what the user should know, a line each
  std::vector<std::string> warnings;      ///< where the file is not what was asked for
  TensorType type = TensorType::kF32;     ///< asked for, or F16 if nothing could be quantised
};

/// `globals`: the model's tensors as a source has them (names of arch::parameters_of, dtypes as
/// stored); tied heads and ignored buffers may be among them. The plan's file is
/// plan_file(metadata, tensors, constants). What is written is with_one_added (offset_norms.h).
/// Errors: ModelError where llama.cpp would compute something else than the model does, naming the
/// key of config.json; where a tensor is missing.
ModelPlan plan_model(const arch::ModelConfig& config, const std::vector<TensorInfo>& globals,
                     const ModelOptions& options);

}  // namespace danlu::weights::gguf
