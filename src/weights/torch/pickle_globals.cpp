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

constexpr std::array<Global, 41> kPlainObjects = {{
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
    {"__builtin__", "bytes"},
    {"__builtin__", "bool"},
    {"__builtin__", "long"},
    {"__builtin__", "unicode"},
    {"__builtin__", "str"},
    {"__builtin__", "tuple"},
    {"__builtin__", "xrange"},
    {"__builtin__", "object"},
    {"builtins", "bytes"},
    {"builtins", "bool"},
    {"builtins", "str"},
    {"builtins", "tuple"},
    {"builtins", "range"},
    {"builtins", "object"},
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

struct DTypeNames {
  DType dtype;
  std::string_view name, alias, storage;  ///< torch.<name>, torch.<alias>, torch.<storage>
};
constexpr std::array<DTypeNames, 13> kDTypes = {{
    {DType::kF32, "float32", "float", "FloatStorage"},
    {DType::kF64, "float64", "double", "DoubleStorage"},
    {DType::kF16, "float16", "half", "HalfStorage"},
    {DType::kBF16, "bfloat16", "", "BFloat16Storage"},
    {DType::kI8, "int8", "", "CharStorage"},
    {DType::kU8, "uint8", "", "ByteStorage"},
    {DType::kI16, "int16", "short", "ShortStorage"},
    {DType::kI32, "int32", "int", "IntStorage"},
    {DType::kI64, "int64", "long", "LongStorage"},
    {DType::kBool, "bool", "", "BoolStorage"},
    {DType::kU16, "uint16", "", ""},
    {DType::kU32, "uint32", "", ""},
    {DType::kU64, "uint64", "", ""},
}};

const DTypeNames& names_of(DType dtype) {
  return *std::find_if(kDTypes.begin(), kDTypes.end(),
                       [dtype](const DTypeNames& names) { return names.dtype == dtype; });
}

std::string_view top_module(std::string_view module) { return module.substr(0, module.find('.')); }

}  // namespace

bool is_plain_object(std::string_view module, std::string_view name) {
  return listed(kPlainObjects, module, name);
}

bool is_getattr(std::string_view module, std::string_view name) {
  return name == "getattr" && (module == "builtins" || module == "__builtin__");
}

bool is_member_name(std::string_view name) {
  const auto is_letter = [](unsigned char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
  };
  const auto fits = [&](unsigned char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && is_letter(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), fits) && !name.starts_with("__");
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
  const bool torch_module =
      module == "torch" || module == "torch.cuda" || module == "torch.storage";
  if (!torch_module || name.empty()) return std::nullopt;
  if (name == "UntypedStorage" || name == "_UntypedStorage") return DType::kU8;
  for (const DTypeNames& names : kDTypes) {
    if (names.storage == name) return names.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_global(std::string_view module, std::string_view name) {
  if (module != "torch" || name.empty()) return std::nullopt;
  for (const DTypeNames& names : kDTypes) {
    if (names.name == name || names.alias == name) return names.dtype;
  }
  return std::nullopt;
}

std::string_view torch_dtype_name(DType dtype) { return names_of(dtype).name; }

std::string_view storage_class_name(DType dtype) { return names_of(dtype).storage; }

}  // namespace danlu::weights::torch_file
