#include "data/readers/row_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "data/readers/json_walk.h"
#include "data/readers/record_limits.h"

namespace danlu::data {
namespace {

/// A key that `object` has twice; null if none.
const std::string* key_twice(const Json::object_t& object) {
  constexpr size_t kFew = 16;
  if (object.size() <= kFew) {
    for (auto at = object.begin(); at != object.end(); ++at) {
      const auto same = [&](const auto& earlier) { return earlier.first == at->first; };
      if (std::any_of(object.begin(), at, same)) return &at->first;
    }
    return nullptr;
  }
  std::vector<const std::string*> keys;
  keys.reserve(object.size());
  for (const auto& [key, value] : object) keys.push_back(&key);
  std::sort(keys.begin(), keys.end(), [](const auto* a, const auto* b) { return *a < *b; });
  const auto twice = std::adjacent_find(keys.begin(), keys.end(),
                                        [](const auto* a, const auto* b) { return *a == *b; });
  return twice == keys.end() ? nullptr : *twice;
}

/// Builds the value from the events of a walk; stops at the first thing that is refused.
class RowBuilder {
 public:
  Json value;
  std::string why, hint;

  bool string(std::string_view raw, bool has_escapes) {
    return add(has_escapes ? unescaped_json(raw) : std::string(raw));
  }
  bool key(std::string_view raw, bool has_escapes) {
    key_ = has_escapes ? unescaped_json(raw) : std::string(raw);
    return true;
  }
  bool number(std::string_view text) {
    const char* const end = text.data() + text.size();
    if (text[0] == '-') {
      if (int64_t whole = 0; is_all(std::from_chars(text.data(), end, whole), end))
        return add(whole);
    } else if (uint64_t whole = 0; is_all(std::from_chars(text.data(), end, whole), end)) {
      return add(whole);
    }
    const bool is_whole = text.find_first_of(".eE") == text.npos;
    if (is_whole && tools_depth_ > 0)
      return refuse(tr("an integer of tools or their calls does not fit 64 bits: {}", text),
                    tr("write it as a string"));
    std::optional<Json> other = try_parse_json(text);
    return other && add(std::move(*other));
  }
  bool literal(char first) { return first == 'n' ? add(nullptr) : add(first == 't'); }
  bool open(char bracket) {
    return open_container(bracket == '{' ? Json::object() : Json::array());
  }
  bool close(char bracket) {
    if (bracket == '}') {
      const std::string* twice = key_twice(open_.back()->get_ref<Json::object_t&>());
      if (twice)
        return refuse(tr("an object has \"{}\" twice", *twice), tr("keep the value that is meant"));
    }
    if (open_.size() == tools_depth_) tools_depth_ = 0;
    open_.pop_back();
    return true;
  }

 private:
  static bool is_all(std::from_chars_result result, const char* end) {
    return result.ec == std::errc() && result.ptr == end;
  }

  bool refuse(std::string what, std::string what_to_do) {
    why = std::move(what);
    hint = std::move(what_to_do);
    return false;
  }

  bool add(Json item) {
    if (++num_values_ > kMaxRowValues) {
      return refuse(tr("more than {} values in one row", kMaxRowValues), fewer_columns());
    }
    if (open_.empty()) {
      value = std::move(item);
      added_ = &value;
    } else if (open_.back()->is_array()) {
      added_ = &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(item));
    } else {
      Json::object_t& object = open_.back()->get_ref<Json::object_t&>();
      if (object.size() == kMaxColumns) {
        return refuse(tr("an object has more than {} keys", kMaxColumns), fewer_columns());
      }
      if (object.empty()) object.reserve(kFewKeys);
      // Not through the map, which would look for the key among all others.
      added_ = &object.emplace_back(std::move(key_), std::move(item)).second;
    }
    return true;
  }

  /// What is open does not move before it is closed: nothing is added beside it meanwhile.
  bool open_container(Json container) {
    if (open_.size() == kMaxJsonDepth)
      return refuse(tr("nested more than {} deep", kMaxJsonDepth), fewer_columns());
    const bool is_tools = tools_depth_ == 0 && !open_.empty() && open_.back()->is_object() &&
                          (key_ == "tools" || key_ == "tool_calls" || key_ == "function_call");
    if (!add(std::move(container))) return false;
    open_.push_back(added_);
    if (is_tools) tools_depth_ = open_.size();
    return true;
  }

  static std::string fewer_columns() { return tr("keep the columns that hold text"); }

  static constexpr size_t kFewKeys = 4;
  std::vector<Json*> open_;
  Json* added_ = nullptr;
  std::string key_;
  size_t num_values_ = 0;
  size_t tools_depth_ = 0;  ///< open brackets up to the tools or calls we are in; 0: in none
};

}  // namespace

std::optional<Json> parse_row_text(const std::string& text, RowRefusal* refusal) {
  constexpr std::string_view kSpace = " \t\n\r";
  RowBuilder builder;
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  JsonWalker walker(text, begin, /*is_all=*/true, builder);
  const bool is_good =
      walker.walk() == JsonWalk::kWhole && text.find_first_not_of(kSpace, walker.at()) == text.npos;
  *refusal = {std::move(builder.why), std::move(builder.hint)};
  if (!is_good) return std::nullopt;
  return std::move(builder.value);
}

Json parse_row(const Dataset& dataset, const RawRow& row) {
  RowRefusal refusal;
  std::optional<Json> value = parse_row_text(row.text, &refusal);
  if (value) return std::move(*value);
  if (refusal.why.empty()) refuse_malformed_row(dataset, row);
  throw DataError(tr("{}: {}", row_place(dataset, row.file, row.index), refusal.why), refusal.hint);
}

}  // namespace danlu::data
