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

/// builtins' getattr: Python 3.11.0 to 3.11.3 write members of an Enum as getattr(class, "member"),
/// protocol 2 classes within classes. That form alone is read.
bool is_getattr(std::string_view module, std::string_view name);
/// An identifier that does not begin with "__".
bool is_member_name(std::string_view name);

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

/// "bfloat16": what dtype_global takes, of an element type.
std::string_view torch_dtype_name(DType dtype);
/// "BFloat16Storage"; empty for the element types that have no storage class (U16, U32, U64).
std::string_view storage_class_name(DType dtype);

}  // namespace danlu::weights::torch_file
