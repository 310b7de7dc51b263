// Python values as text and as JSON, for messages and names.
#include <fmt/format.h>

#include <cmath>

#include "weights/torch/pickle_globals.h"
#include "weights/torch/py_value.h"

namespace danlu::weights::torch_file {
namespace {

/// Long enough for any real key; a repr beyond it ends in "…".
constexpr size_t kMaxReprBytes = 2000;

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\\' || c == '\'') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
    if (out.size() > kMaxReprBytes) break;
  }
  return out + "'";
}

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string hexadecimal(const std::string& digits) {
  std::string text = "0x";
  for (size_t i = digits.size(); i-- > 0;)
    text += fmt::format("{:02x}", static_cast<uint8_t>(digits[i]));
  return text;
}

class Printer {
 public:
  void print(const PyValue& value);
  std::string out;

 private:
  static std::string scalar(const PyValue& value);
  void instance(const PyObject& object);
  bool full() const { return out.size() > kMaxReprBytes; }
  void sequence(const PyValue::Items& items, const char* open, const char* close) {
    out += open;
    for (size_t i = 0; i < items.size() && !full(); ++i) {
      if (i > 0) out += ", ";
      print(items[i]);
    }
    out += close;
  }
  void mapping(const PyValue::Entries& entries, const char* open, const char* close) {
    out += open;
    for (size_t i = 0; i < entries.size() && !full(); ++i) {
      if (i > 0) out += ", ";
      print(entries[i].key);
      out += ": ";
      print(entries[i].value);
    }
    out += close;
  }
};

void Printer::print(const PyValue& value) {
  switch (value.kind()) {
    case PyKind::kTuple:
      return sequence(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
    case PyKind::kList:
      return sequence(value.items(), "[", "]");
    case PyKind::kSet:
      return sequence(value.items(), "{", "}");
    case PyKind::kFrozenSet:
      return sequence(value.items(), "frozenset({", "})");
    case PyKind::kSize:
      return sequence(value.items(), "torch.Size([", "])");
    case PyKind::kDict:
      return mapping(value.entries(), "{", "}");
    case PyKind::kOrderedDict:
      return mapping(value.entries(), "OrderedDict({", "})");
    case PyKind::kNamespace:
      return mapping(value.entries(), "Namespace({", "})");
    case PyKind::kObject:
      return instance(value.object());
    default:
      out += scalar(value);
  }
}

void Printer::instance(const PyObject& object) {
  if (is_member(object)) {
    print(object.arguments[0]);
    out += "." + object.arguments[1].text();
  } else {
    out += object.module + "." + object.name;
    sequence(object.arguments, "(", ")");
  }
}

std::string Printer::scalar(const PyValue& value) {
  switch (value.kind()) {
    case PyKind::kBool:
      return value.as_bool("") ? "True" : "False";
    case PyKind::kInt:
      return std::to_string(value.as_int(""));
    case PyKind::kBigInt:
      return hexadecimal(value.text());
    case PyKind::kFloat:
      return float_text(value.as_float(""));
    case PyKind::kString:
      return quoted(value.text());
    case PyKind::kBytes:
      return fmt::format("<{} bytes>", value.text().size());
    case PyKind::kDType:
      return fmt::format("torch.{}", torch_dtype_name(value.as_dtype("")));
    case PyKind::kGlobal:
      return value.object().module + "." + value.object().name;
    case PyKind::kTensor:
      return fmt::format("<tensor {}>", value.as_tensor(""));
    case PyKind::kOmitted:
      return "<" + value.text() + ">";
    default:
      return "None";
  }
}

/// JSON text must be UTF-8; Python strings may hold lone surrogates, old files anything.
Json json_string(const std::string& text) {
  const std::string dumped = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return parse_json(dumped, "a text");
}

Json json_array(const PyValue::Items& items) {
  Json array = Json::array();
  for (const PyValue& item : items) array.push_back(to_json(item));
  return array;
}

}  // namespace

std::string PyValue::repr() const {
  Printer printer;
  printer.print(*this);
  if (printer.out.size() > kMaxReprBytes) {
    printer.out.resize(kMaxReprBytes);
    printer.out += "…";
  }
  return std::move(printer.out);
}

std::string PyValue::key_text() const { return kind_ == PyKind::kString ? text() : repr(); }

Json to_json(const PyValue& value) {
  switch (value.kind()) {
    case PyKind::kNone:
      return nullptr;
    case PyKind::kBool:
      return value.as_bool("");
    case PyKind::kInt:
      return value.as_int("");
    case PyKind::kFloat:
      if (std::isfinite(value.as_float(""))) return value.as_float("");
      return value.repr();
    case PyKind::kString:
      return json_string(value.text());
    case PyKind::kTuple:
    case PyKind::kList:
    case PyKind::kSet:
    case PyKind::kFrozenSet:
    case PyKind::kSize:
      return json_array(value.items());
    case PyKind::kDict:
    case PyKind::kOrderedDict:
    case PyKind::kNamespace: {
      Json object = Json::object();
      for (const PyItem& entry : value.entries()) {
        object[json_string(entry.key.key_text()).get<std::string>()] = to_json(entry.value);
      }
      return object;
    }
    default:
      return json_string(value.repr());
  }
}

}  // namespace danlu::weights::torch_file
