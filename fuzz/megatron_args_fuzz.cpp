// fuzz/megatron_args_fuzz.cpp: any values in the `args` of a Megatron checkpoint must give a split
// or a clear error; what args of ours are put over them says our split again. The args are written
// as JSON: an object becomes a Namespace, an object inside it a dict, {"tuple": [...]} a tuple.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "arch/model_config.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "weights/megatron/arguments.h"

namespace {

using namespace danlu;
using namespace danlu::weights::megatron;

PyValue value_of(const Json& json) {
  if (json.is_null()) return PyValue::none();
  if (json.is_boolean()) return PyValue::boolean(json);
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)
    return PyValue::big_integer(std::string(9, '\x7f'));
  if (json.is_number_integer()) return PyValue::integer(json);
  if (json.is_number()) return PyValue::real(json);
  if (json.is_string()) return PyValue::string(json);
  const bool is_tuple = json.is_object() && json.size() == 1 && json.contains("tuple");
  if (json.is_array() || is_tuple) {
    PyValue items = is_tuple ? PyValue::tuple() : PyValue::list();
    for (const Json& item : is_tuple ? json["tuple"] : json) items.append(value_of(item));
    return items;
  }
  PyValue entries = PyValue::dict();
  for (const auto& [key, item] : json.items()) entries.put(key, value_of(item));
  return entries;
}

const arch::ModelConfig& config() {
  static const arch::ModelConfig kConfig = [] {
    log::set_level(log::Level::kOff);
    const Json json = Json::parse(
        R"({"model_type": "llama", "vocab_size": 97, "hidden_size": 32, "intermediate_size": 56,
            "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2})");
    return arch::family_of(json).parse(json);
  }();
  return kConfig;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  PyValue args = PyValue::name_space();
  try {
    const Json json = parse_json({reinterpret_cast<const char*>(data), size}, "input");
    if (!json.is_object()) return 0;
    for (const auto& [key, item] : json.items()) args.put(key, value_of(item));
  } catch (const DataError&) {
    return 0;
  }
  try {
    const Split split = split_of_arguments(args, "input");
    check_split(config(), split);
    place_layers(split, config().num_layers);
  } catch (const ModelError&) {
  } catch (const UsageError&) {
  }
  try {
    disagreements(args, config());
    doubts(args, config(), 128);
  } catch (const ModelError&) {
  }
  const Split ours{.tp = 2, .pp = 2};
  try {
    const PyValue updated = update_arguments(args, config(), ours, {}, DType::kBF16);
    if (!disagreements(updated, config()).empty()) std::abort();
    const Split again = split_of_arguments(updated, "updated");
    if (again.tp != 2 || again.pp != 2 || again.ep != 1) std::abort();
  } catch (const ModelError&) {
  } catch (const UsageError&) {
  }
  return 0;
}
