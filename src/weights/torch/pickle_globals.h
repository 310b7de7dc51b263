// weights/torch/pickle_globals.h: which Python names a weight file may mention, and what each
// stands for.
#pragma once
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace danlu::weights::torch_file {

/// Names that only a file built to run something would hold: any of os, subprocess, builtins' eval,
/// … Refused wherever they stand, even unused.
bool is_dangerous_global(std::string_view module, std::string_view name);

/// dict and its ordered and counting kin: calls of these become plain dicts.
bool is_dict_class(std::string_view module, std::string_view name);

/// Harmless objects that are no tensors (sizes, dtypes, sets, numpy scalars, argparse.Namespace,
/// …): allowed anywhere, their content is passed over.
bool is_plain_object(std::string_view module, std::string_view name);

/// Element type of torch.FloatStorage and kin; UntypedStorage counts bytes (kU8).
/// nullopt: not a storage class, or one of an element type Danlu does not read.
std::optional<DType> storage_dtype(std::string_view module, std::string_view name);

/// Element type that a torch.<name> global stands for.
std::optional<DType> dtype_global(std::string_view module, std::string_view name);

}  // namespace danlu::weights::torch_file
