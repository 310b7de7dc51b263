#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/lfs_pointer.h"

namespace danlu {

namespace {

std::string place_in_text(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 == 0
  return fmt::format("{}:{}", std::count(before.begin(), before.end(), '\n') + 1,
                     before.size() - line_start + 1);
}

bool has_more_than(size_t count, std::string_view text, char c) {
  size_t found = 0;
  for (size_t at = text.find(c); at != text.npos; at = text.find(c, at + 1)) {
    if (++found > count) return true;
  }
  return false;
}

/// Where `text` opens one bracket too many, or npos. Its syntax is not looked at.
size_t find_too_deep(std::string_view text) {
  // Most texts have too few brackets to nest them; searching for a byte costs next to nothing.
  constexpr size_t kHalf = kMaxJsonDepth / 2;
  if (!has_more_than(kHalf, text, '{') && !has_more_than(kHalf, text, '[')) return text.npos;
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxJsonDepth) return i;
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return text.npos;
}

}  // namespace

bool nests_too_deep(std::string_view text) { return find_too_deep(text) != text.npos; }

bool has_wider_object(std::string_view text, size_t most) {
  if (!has_more_than(most, text, ':')) return false;
  std::vector<size_t> members = {0};  // of what is open; brackets of lists count none
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
    } else if (c == '{' || c == '[') {
      members.push_back(0);
    } else if ((c == '}' || c == ']') && members.size() > 1) {
      members.pop_back();
    } else if (c == ':' && ++members.back() > most) {
      return true;
    }
  }
  return false;
}

Json parse_json(std::string_view text, const std::string& origin) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  if (const size_t at = find_too_deep(text); at != text.npos) {
    throw DataError(tr("{}:{}: not valid JSON: nested more than {} deep", origin,
                       place_in_text(text, at), kMaxJsonDepth));
  }
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& e) {
    // The library's text repeats position and id; keep the part that says what is wrong.
    std::string what = e.what();
    if (auto at = what.find(": ", what.find("column")); at != std::string::npos)
      what = what.substr(at + 2);
    if (text.find_first_not_of(" \t\r\n") == text.npos) what = "the text is empty";
    throw DataError(tr("{}:{}: not valid JSON: {}", origin,
                       place_in_text(text, e.byte > 0 ? e.byte - 1 : 0), translated_filled(what)));
  } catch (const nlohmann::json::out_of_range& e) {
    // A number that no double holds is not a syntax error to the library, which quotes it.
    const std::string_view what = e.what();
    const size_t begin = what.find('\''), end = what.rfind('\'');
    if (begin >= end)
      throw DataError(tr("{}: not valid JSON: {}", origin, translated_filled(e.what())));
    const std::string_view number = what.substr(begin + 1, end - begin - 1);
    throw DataError(tr("{}:{}: not valid JSON: the number {} is too large", origin,
                       place_in_text(text, text.find(number)), std::string(number)));
  } catch (const nlohmann::json::exception& e) {
    throw DataError(tr("{}: not valid JSON: {}", origin, translated_filled(e.what())));
  }
}

std::optional<Json> try_parse_json(std::string_view text) {
  if (nests_too_deep(text)) return std::nullopt;
  Json value = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return std::nullopt;
  return value;
}

bool is_json(std::string_view text) {
  return !nests_too_deep(text) && Json::accept(text.begin(), text.end());
}

std::string_view wide_integer_in(std::string_view text) {
  constexpr size_t kFewestDigits = 19;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
      continue;
    }
    if (!is_digit(text[i])) continue;
    size_t end = i;
    while (end < text.size() && is_digit(text[end])) ++end;
    const bool is_negative = i > 0 && text[i - 1] == '-';
    const bool is_whole =
        (end == text.size() || std::string_view(".eE").find(text[end]) == text.npos) &&
        (i == 0 || std::string_view(".eE+").find(text[i - 1]) == text.npos) &&
        !(is_negative && i > 1 && (text[i - 2] == 'e' || text[i - 2] == 'E'));
    const size_t begin = is_negative ? i - 1 : i;
    if (is_whole && end - i >= kFewestDigits) {
      const char *first = text.data() + begin, *last = text.data() + end;
      int64_t negative = 0;
      uint64_t positive = 0;
      const std::errc error = is_negative ? std::from_chars(first, last, negative).ec
                                          : std::from_chars(first, last, positive).ec;
      if (error != std::errc()) return text.substr(begin, end - begin);
    }
    i = end - 1;
  }
  return {};
}

Json read_json_file(const std::filesystem::path& path) {
  refuse_lfs_pointer_as_data(path);
  return parse_json(read_file(path), path.string());
}

std::string dump_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void write_json_file(const std::filesystem::path& path, const Json& value) {
  write_file_atomic(path, value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void throw_wrong_type(std::string_view key, const char* wanted, const Json& found) {
  std::string shown = dump_text(found);
  constexpr size_t kShown = 40;
  if (shown.size() > kShown) shown = std::string(found.type_name());
  throw DataError(tr("\"{}\" must be {}, got {}", key, wanted, shown));
}

}  // namespace danlu
