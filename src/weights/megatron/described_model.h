// weights/megatron/described_model.h: the model that Megatron's settings describe.
#pragma once
#include <string>

#include "base/json.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::megatron {

/// config.json of the model that `args` (Megatron's Namespace, or flags under its names) describe:
/// its family by what tells families apart (biases, norms of queries and keys, experts), its sizes,
/// its rotary embedding. What args do not hold (ids of special tokens) is left out.
/// `padded_rows`: of the embedding, taken where args name no vocab_size; 0: not known.
/// Errors: ModelError that begins with `where` and names the key that is missing, or that no family
/// of Danlu computes.
Json described_model(const torch_file::PyValue& args, int64_t padded_rows,
                     const std::string& where);

}  // namespace danlu::weights::megatron
