// weights/gguf/gguf_writer.h: the plan of a GGUF file: header and metadata, and where each tensor's
// bytes go.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weights/convert/planned_file.h"
#include "weights/gguf/gguf_format.h"

namespace danlu::weights::gguf {

struct PlannedTensor {
  std::string name;
  std::vector<int64_t> shape;  ///< row-major
  TensorType type = TensorType::kF32;
};

/// A small tensor that is computed, not copied: its bytes are part of the plan.
struct ConstantTensor {
  PlannedTensor tensor;
  std::string bytes;
};

/// A version 3 file. PlannedFile::tensor_offsets are those of `tensors`; `constants` stand after
/// them. Errors: InternalError for a name that stands twice or is too long for llama.cpp (63
/// bytes), for rows that do not fill the type's blocks, and for constants of the wrong size.
PlannedFile plan_file(const Metadata& metadata, const std::vector<PlannedTensor>& tensors,
                      const std::vector<ConstantTensor>& constants = {});

/// Bytes of a tensor in the file, without padding.
uint64_t size_bytes(const PlannedTensor& tensor);

}  // namespace danlu::weights::gguf
