#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/python_text.h"

namespace danlu::text::jinja {

namespace {

/// json.dumps with its two layouts.
class Writer {
 public:
  Writer(int indent, bool ascii, bool sort_keys, std::string_view item_separator,
         std::string_view key_separator, size_t max_bytes)
      : indent_(indent),
        ascii_(ascii),
        sort_keys_(sort_keys),
        item_separator_(item_separator),
        key_separator_(key_separator),
        max_bytes_(max_bytes) {}

  void write(const Value& v, int depth) {
    require_room(0);
    switch (v.kind()) {
      case Kind::kNone:
        out += "null";
        return;
      case Kind::kBool:
        out += v.as_bool() ? "true" : "false";
        return;
      case Kind::kInt:
        fmt::format_to(std::back_inserter(out), "{}", v.as_int());
        return;
      case Kind::kFloat:
        out += number(v.as_double());
        return;
      case Kind::kString:
        quote(v.as_string());
        return;
      case Kind::kList:
      case Kind::kTuple: {
        const auto& items = v.items();
        write_all('[', ']', items.size(), depth, [&](size_t i) { write(items[i], depth + 1); });
        return;
      }
      case Kind::kDict:
        write_dict(v, depth);
        return;
      default:
        throw EvalError(fmt::format("Object of type {} is not JSON serializable", type_name(v)));
    }
  }

  std::string out;

 private:
  void require_room(size_t bytes) const {
    if (out.size() > max_bytes_ || bytes > max_bytes_ - out.size())
      throw LimitError("the template makes too much JSON text; its limit is reached");
  }

  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_repr(d);
  }

  void new_line(int depth) {
    if (indent_ < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent_) * static_cast<size_t>(depth), ' ');
  }

  template <typename WriteItem>
  void write_all(char open, char close, size_t count, int depth, const WriteItem& write_item) {
    out += open;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += item_separator_;
      new_line(depth + 1);
      write_item(i);
    }
    if (count > 0) new_line(depth);
    out += close;
  }

  void write_dict(const Value& v, int depth) {
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : v.entries()) entries.emplace_back(key_text(key), &value);
    if (sort_keys_) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    write_all('{', '}', entries.size(), depth, [&](size_t i) {
      quote(entries[i].first);
      out += key_separator_;
      write(*entries[i].second, depth + 1);
    });
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.as_string();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.as_bool() ? "true" : "false";
      case Kind::kInt:
        return fmt::format("{}", key.as_int());
      case Kind::kFloat:
        return number(key.as_double());
      default:
        throw EvalError(
            fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  void quote(std::string_view text) {
    require_room(text.size() * std::string_view("\\u0001").size());
    out += '"';
    for (size_t i = 0; i < text.size();) {
      const size_t start = i;
      const char32_t c = next_code_point(text, i);
      switch (c) {
        case U'"':
          out += "\\\"";
          break;
        case U'\\':
          out += "\\\\";
          break;
        case U'\n':
          out += "\\n";
          break;
        case U'\r':
          out += "\\r";
          break;
        case U'\t':
          out += "\\t";
          break;
        case U'\b':
          out += "\\b";
          break;
        case U'\f':
          out += "\\f";
          break;
        default:
          if (c < 0x20 || (ascii_ && c >= 0x7f)) {
            escape(c);
          } else {
            out += text.substr(start, i - start);
          }
      }
    }
    out += '"';
  }

  void escape(char32_t c) {
    const auto unit = [&](unsigned u) { fmt::format_to(std::back_inserter(out), "\\u{:04x}", u); };
    if (c == 0x7f) {
      out += '\x7f';  // Python leaves DEL as it is
    } else if (c < 0x10000) {
      unit(c);
    } else {
      unit(0xD800 + ((c - 0x10000) >> 10));
      unit(0xDC00 + ((c - 0x10000) & 0x3FF));
    }
  }

  int indent_;
  bool ascii_, sort_keys_;
  std::string item_separator_, key_separator_;
  size_t max_bytes_;
};

}  // namespace

std::string to_json_text(const Value& value, int indent, bool ascii, bool sort_keys,
                         std::string_view item_separator, std::string_view key_separator,
                         size_t max_bytes) {
  if (item_separator.empty()) item_separator = indent < 0 ? ", " : ",";
  Writer writer(indent, ascii, sort_keys, item_separator, key_separator, max_bytes);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace danlu::text::jinja
