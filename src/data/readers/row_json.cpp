#include "data/readers/row_json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "data/readers/json_events.h"

namespace danlu::data {
namespace {

/// Members that the text writes down: a colon outside of strings each.
size_t count_written_members(const std::string& text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ':') {
      ++count;
    } else if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
    }
  }
  return count;
}

size_t count_kept_members(const Json& value) {
  if (!value.is_structured()) return 0;
  size_t count = value.is_object() ? value.size() : 0;
  for (const Json& item : value) count += count_kept_members(item);
  return count;
}

/// Stops at the first key that its object has already.
struct DuplicateFinder : AcceptEvents<Json> {
  std::vector<std::set<std::string>> open_objects;
  std::string found;
  bool start_object(size_t) override {
    open_objects.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    if (open_objects.back().insert(name).second) return true;
    found = name;
    return false;
  }
  bool end_object() override {
    open_objects.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }
};

}  // namespace

std::string find_duplicate_key(const std::string& text, const Json& parsed) {
  // Counting costs far less than a set of keys for every object of every row.
  if (count_written_members(text) == count_kept_members(parsed)) return "";
  DuplicateFinder finder;
  Json::sax_parse(text, &finder);
  return finder.found;
}

Json parse_row(const Dataset& dataset, const RawRow& row) {
  std::optional<Json> value = try_parse_json(row.text);
  if (!value) refuse_malformed_row(dataset, row);
  const std::string twice = find_duplicate_key(row.text, *value);
  if (twice.empty()) return std::move(*value);
  throw DataError(
      fmt::format("{}: an object has \"{}\" twice", row_place(dataset, row.file, row.index), twice),
      {"keep the value that is meant", "请只保留其中一个值"});
}

}  // namespace danlu::data
