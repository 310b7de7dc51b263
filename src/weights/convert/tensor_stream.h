// weights/convert/tensor_stream.h: one stored tensor produced as a stream of bytes from global
// tensors.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "weights/layout.h"

namespace danlu::weights {

/// Takes the next bytes of the tensor.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// Hands the tensor's bytes to `sink` in order, row-major, in its dtype and encoding. Bytes that
/// lie together in the source are passed on where they are mapped; the rest goes through buffers of
/// some megabytes. Errors: as TensorSource::read_rect.
void stream_tensor(const TensorSource& globals, const Layout& layout, const StoredTensor& stored,
                   const ByteSink& sink);

}  // namespace danlu::weights
