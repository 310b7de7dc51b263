// weights/torch/torch_writer.h: plans a `.pt` file that torch.load reads.
#pragma once
#include <string>
#include <vector>

#include "weights/convert/planned_file.h"
#include "weights/tensor_source.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::torch_file {

/// The zip container of torch ≥ 1.6, pickle protocol 2. Every PyValue::tensor(i) in `root` becomes
/// a contiguous CPU tensor of tensors[i]'s dtype and shape, whose bytes the caller puts at
/// tensor_offsets[i] (a multiple of 64); names are for messages only, the tree names the tensors.
/// `seal` fills in the checksums and adds the central directory.
///
/// `top_folder` is the folder inside the zip: the file's name without its last extension, as torch
/// has it ("model_optim_rng").
/// Errors: ModelError for a kOmitted value, a Python name or string that cannot be written, a key
/// that Python cannot hash, nesting deeper than the reader takes, an impossible shape;
/// InternalError for a tensor that `root` does not mention, an index without tensor, a bad folder
/// name. Dtypes U16, U32 and U64 need torch ≥ 2.3 to read; everything else torch ≥ 1.6.
PlannedFile plan_torch_file(const PyValue& root, const std::vector<TensorInfo>& tensors,
                            const std::string& top_folder);

}  // namespace danlu::weights::torch_file
