// weights/gguf/gguf_reader.h: GGUF files, read strictly. The rules are in docs/formats/gguf.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weights/gguf/gguf_format.h"
#include "weights/tensor_source.h"

namespace danlu::weights::gguf {

/// A GGUF file as a source of tensors. Tensors of the block types that base/number_blocks.h knows
/// are F32 to the reader, decoded as they are read; other block types are listed (as F32, what they
/// would decode to) but reading them is a ModelError. metadata(): the file's keys, long values cut
/// short, and under "tensor types" how many tensors are stored how. Errors: as parse_header;
/// IoError.
std::shared_ptr<const TensorSource> open(const std::filesystem::path& file);

/// The tensors of these block types as their bytes: U8 [..., bytes of a row]. Errors: as open.
std::shared_ptr<const TensorSource> open_blocks(const std::filesystem::path& file);

}  // namespace danlu::weights::gguf
