// weights/torch/pickle_value.h: the objects a pickle describes, as data. Nothing is ever called.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace danlu::weights::torch_file {

using ValueId = uint32_t;
inline constexpr ValueId kNoValue = UINT32_MAX;

enum class Kind : uint8_t {
  kNone,
  kBool,
  kInt,     ///< fits 64 bits
  kBigInt,  ///< text: two's complement, little-endian
  kFloat,
  kString,      ///< text: UTF-8
  kBytes,       ///< text
  kTuple,       ///< items
  kList,        ///< items
  kSet,         ///< items
  kFrozenSet,   ///< items
  kDict,        ///< items: key, value, key, value, …
  kGlobal,      ///< text: module, name: a name, never resolved
  kCall,        ///< items: callable, arguments tuple: REDUCE or NEWOBJ, never carried out
  kPersistent,  ///< items: one tuple that names a storage
};

struct Value {
  Kind kind = Kind::kNone;
  bool truth = false;
  bool by_new = false;      ///< kCall: NEWOBJ
  bool is_ordered = false;  ///< kDict: an OrderedDict
  int64_t integer = 0;
  double real = 0;
  std::string_view text = {}, name = {};  ///< views into the pickle
  std::vector<ValueId> items = {};
  ValueId state = kNoValue;  ///< kCall: what BUILD handed over
};

/// What a kCall was given by APPENDS and SETITEMS: an instance of a subclass of list or dict.
struct CallItems {
  std::vector<ValueId> appended;
  std::vector<ValueId> set;  ///< key, value, key, value, …
};

/// A parsed pickle. Values refer to each other by id; the graph may share nodes and have cycles.
struct Pickle {
  std::vector<Value> values;
  std::unordered_map<ValueId, CallItems> call_items;
  ValueId root = kNoValue;
  size_t consumed_bytes = 0;

  const Value& at(ValueId id) const { return values[id]; }
  bool is_global(ValueId id, std::string_view module, std::string_view name) const {
    return id != kNoValue && values[id].kind == Kind::kGlobal && values[id].text == module &&
           values[id].name == name;
  }
};

/// Whether a call is getattr(class, "member"): the one form of getattr that read_pickle lets pass.
bool is_member(const Pickle& pickle, ValueId call);

/// The value stored in a dict under a string key; kNoValue if absent or not a dict.
ValueId dict_get(const Pickle& pickle, ValueId dict, std::string_view key);

}  // namespace danlu::weights::torch_file
