// base/ignore_label.h: the label of a token that carries no loss.
#pragma once
#include <cstdint>

namespace danlu {

/// In labels, targets and the files that hold them. PyTorch's and Hugging Face's ignore_index; also
/// what Megatron-style label files store.
inline constexpr int32_t kIgnoreLabel = -100;

}  // namespace danlu
