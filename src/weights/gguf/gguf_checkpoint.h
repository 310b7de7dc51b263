// weights/gguf/gguf_checkpoint.h: the model in a GGUF file, opened as named global tensors.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights::gguf {

struct Checkpoint {
  arch::ModelConfig config;                   ///< as the file's metadata say
  std::shared_ptr<const TensorSource> model;  ///< HF names; blocks as F32
  /// Matrices that are whole in blocks of one type; a fused one whose parts are of several is not
  /// there. nullptr: none.
  std::shared_ptr<const BlockTensors> blocks;
  WidenedBlocks widened;
  std::string description;  ///< "qwen2, BF16 and F32"
};

/// Whether the file begins as GGUF files do; false for what cannot be read.
bool is_gguf_file(const std::filesystem::path& path);

/// Errors: ModelError as open(); for an architecture that Danlu does not know, a key that is
/// missing, a tensor that is missing, unknown, of another shape or stored as a block type
/// that is not read.
/// Source: llama.cpp, gguf-py/gguf/constants.py (keys), convert_hf_to_gguf.py (their meaning).
Checkpoint open_checkpoint(const std::filesystem::path& file);

}  // namespace danlu::weights::gguf
