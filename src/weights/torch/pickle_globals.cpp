#include "weights/torch/pickle_globals.h"

#include <algorithm>
#include <array>
#include <utility>

namespace danlu::weights::torch_file {
namespace {

using Global = std::pair<std::string_view, std::string_view>;

template <size_t kSize>
bool listed(const std::array<Global, kSize>& list, std::string_view module, std::string_view name) {
  return std::find(list.begin(), list.end(), Global{module, name}) != list.end();
}

constexpr std::array<Global, 4> kDictClasses = {{
    {"collections", "OrderedDict"},
    {"collections", "defaultdict"},
    {"collections", "Counter"},
    {"builtins", "dict"},
}};

constexpr std::array<Global, 27> kPlainObjects = {{
    {"torch", "Size"},
    {"torch", "device"},
    {"argparse", "Namespace"},
    {"__builtin__", "set"},
    {"__builtin__", "frozenset"},
    {"__builtin__", "slice"},
    {"__builtin__", "complex"},
    {"__builtin__", "bytearray"},
    {"__builtin__", "list"},
    {"__builtin__", "int"},
    {"__builtin__", "float"},
    {"__builtin__", "dict"},
    {"builtins", "set"},
    {"builtins", "frozenset"},
    {"builtins", "slice"},
    {"builtins", "complex"},
    {"builtins", "bytearray"},
    {"builtins", "list"},
    {"builtins", "int"},
    {"builtins", "float"},
    {"_codecs", "encode"},
    {"_io", "BytesIO"},
    {"numpy.core.multiarray", "scalar"},
    {"numpy.core.multiarray", "_reconstruct"},
    {"numpy._core.multiarray", "scalar"},
    {"numpy._core.multiarray", "_reconstruct"},
    {"numpy", "dtype"},
}};

/// Modules from which a weight file has no business to name anything.
constexpr std::array<std::string_view, 24> kDangerousModules = {
    "os",        "posix",      "nt",     "sys",     "subprocess", "commands",
    "pty",       "socket",     "shutil", "runpy",   "code",       "codeop",
    "importlib", "imp",        "pickle", "_pickle", "cPickle",    "marshal",
    "ctypes",    "webbrowser", "urllib", "http",    "requests",   "multiprocessing"};

std::string_view top_module(std::string_view module) { return module.substr(0, module.find('.')); }

}  // namespace

bool is_plain_object(std::string_view module, std::string_view name) {
  return listed(kPlainObjects, module, name);
}

bool is_dict_class(std::string_view module, std::string_view name) {
  return listed(kDictClasses, module, name) ||
         Global{module, name} == Global{"__builtin__", "dict"};
}

bool is_dangerous_global(std::string_view module, std::string_view name) {
  const std::string_view top = top_module(module);
  if (std::find(kDangerousModules.begin(), kDangerousModules.end(), top) != kDangerousModules.end())
    return true;
  const bool built_in = top == "builtins" || top == "__builtin__";
  return built_in && !is_plain_object(module, name) && !is_dict_class(module, name);
}

std::optional<DType> storage_dtype(std::string_view module, std::string_view name) {
  constexpr std::array<std::pair<std::string_view, DType>, 10> kStorages = {{
      {"FloatStorage", DType::kF32},
      {"DoubleStorage", DType::kF64},
      {"HalfStorage", DType::kF16},
      {"BFloat16Storage", DType::kBF16},
      {"LongStorage", DType::kI64},
      {"IntStorage", DType::kI32},
      {"ShortStorage", DType::kI16},
      {"CharStorage", DType::kI8},
      {"ByteStorage", DType::kU8},
      {"BoolStorage", DType::kBool},
  }};
  const bool torch_module =
      module == "torch" || module == "torch.cuda" || module == "torch.storage";
  if (!torch_module) return std::nullopt;
  if (name == "UntypedStorage" || name == "_UntypedStorage") return DType::kU8;
  for (const auto& [storage, dtype] : kStorages) {
    if (storage == name) return dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_global(std::string_view module, std::string_view name) {
  if (module != "torch") return std::nullopt;
  constexpr std::array<std::pair<std::string_view, DType>, 18> kNames = {{
      {"float32", DType::kF32},
      {"float", DType::kF32},
      {"float64", DType::kF64},
      {"double", DType::kF64},
      {"float16", DType::kF16},
      {"half", DType::kF16},
      {"bfloat16", DType::kBF16},
      {"int8", DType::kI8},
      {"uint8", DType::kU8},
      {"int16", DType::kI16},
      {"int32", DType::kI32},
      {"int", DType::kI32},
      {"int64", DType::kI64},
      {"long", DType::kI64},
      {"bool", DType::kBool},
      {"uint16", DType::kU16},
      {"uint32", DType::kU32},
      {"uint64", DType::kU64},
  }};
  for (const auto& [known, dtype] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace danlu::weights::torch_file
