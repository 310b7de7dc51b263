#include "weights/lora/trained_base.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/nf4.h"
#include "weights/hf/nf4_tensors.h"

namespace danlu::weights {
namespace {

namespace fs = std::filesystem;

/// An empty object where there is none that can be read: whoever reads it for its own sake says so.
Json record_in(const fs::path& file) {
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return Json::object();
  try {
    Json record = read_json_file(file);
    return record.is_object() ? record : Json::object();
  } catch (const Error&) {
    return Json::object();
  }
}

bool is_on(const Json& record, const char* key) {
  const auto at = record.find(key);
  return at != record.end() && at->is_boolean() && at->get<bool>();
}

bool is_four(const Json& record, const char* key) {
  const auto at = record.find(key);
  return at != record.end() && at->is_number() && at->get<double>() == 4;
}

std::string text_of(const Json& record, const char* key) {
  const auto at = record.find(key);
  return at != record.end() && at->is_string() ? at->get<std::string>() : "";
}

std::optional<MadeNf4> made_by(const Json& record) {
  const bool in_4_bits = is_four(record, "quantization_bit") || is_four(record, "quant_bits") ||
                         is_on(record, "load_in_4bit") || is_on(record, "qlora") ||
                         text_of(record, "tuner") == "qlora";
  if (!in_4_bits || text_of(record, "bnb_4bit_quant_type") == "fp4") return std::nullopt;
  const std::string method = text_of(record, "quant_method");
  if (!method.empty() && method != "bnb" && method != "bitsandbytes") return std::nullopt;
  MadeNf4 made;
  for (const char* key : {"double_quantization", "bnb_4bit_use_double_quant"}) {
    const auto at = record.find(key);
    if (at != record.end() && at->is_boolean()) made.doubly = at->get<bool>();
  }
  return made;
}

}  // namespace

std::optional<MadeNf4> recorded_nf4(const fs::path& adapter) {
  for (const char* file : {"args.json", "sft_args.json"}) {
    if (const auto made = made_by(record_in(adapter / file))) return made;
  }
  return std::nullopt;
}

bool is_other_base(const std::optional<MadeNf4>& made, const TensorSource& base) {
  return made && count_nf4(base) == 0;
}

std::shared_ptr<const TensorSource> through_nf4(std::shared_ptr<const TensorSource> base,
                                                const arch::ModelConfig& config,
                                                const MadeNf4& made) {
  const std::vector<std::string> names = names_in_nf4(config);
  if (names.empty() || count_nf4(*base) > 0) return base;
  const TensorInfo* first = base->find(names.front());
  if (!first) return base;  // the loader says what is missing
  const DType dtype = nf4_dtype(first->dtype);
  return with_nf4(as_nf4(std::move(base), names, {kNf4Block, made.doubly, dtype}));
}

}  // namespace danlu::weights
