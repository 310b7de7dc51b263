// weights/torch/pickle_reader.h: a pickle read as data: a stack machine that builds values and
// calls nothing.
#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "weights/torch/pickle_value.h"

namespace danlu::weights::torch_file {

/// Bounds that keep a hostile file from exhausting memory.
struct PickleLimits {
  size_t max_bytes = size_t{256} << 20;
  size_t max_values = 6'000'000;
  size_t max_stack = 1'000'000;
  size_t max_string_bytes = size_t{64} << 20;
  size_t max_long_bytes = 1024;
};

/// Reads one pickle from the start of `bytes` (protocols 2 to 5); the result views into `bytes`.
/// Errors: ModelError "<origin>: …" naming the opcode and its position for anything malformed,
/// beyond the limits, or outside the set torch.save uses; and for a name from a module that runs
/// programs.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& origin,
                   const PickleLimits& limits = {});

}  // namespace danlu::weights::torch_file
