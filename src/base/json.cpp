#include "base/json.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"

namespace danlu {

Json parse_json(std::string_view text, const std::string& origin) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& e) {
    size_t line = 1, column = 1;
    const size_t end = std::min<size_t>(e.byte > 0 ? e.byte - 1 : 0, text.size());
    for (size_t i = 0; i < end; ++i) {
      if (text[i] == '\n') {
        ++line;
        column = 1;
      } else {
        ++column;
      }
    }
    // The library's text repeats position and id; keep the part that says what is wrong.
    std::string what = e.what();
    if (auto at = what.find(": ", what.find("column")); at != std::string::npos)
      what = what.substr(at + 2);
    if (text.find_first_not_of(" \t\r\n") == text.npos) what = "the text is empty";
    throw DataError(fmt::format("{}:{}:{}: not valid JSON: {}", origin, line, column, what));
  } catch (const nlohmann::json::exception& e) {
    // A number that no double holds (1e400) is not a syntax error to the library.
    throw DataError(fmt::format("{}: not valid JSON: {}", origin, e.what()));
  }
}

Json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

void write_json_file(const std::filesystem::path& path, const Json& value) {
  write_file_atomic(path, value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void throw_wrong_type(std::string_view key, const char* wanted, const Json& found) {
  std::string shown = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kShown = 40;
  if (shown.size() > kShown) shown = std::string(found.type_name());
  throw DataError(fmt::format("\"{}\" must be {}, got {}", key, wanted, shown));
}

}  // namespace danlu
