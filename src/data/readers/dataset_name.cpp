#include "data/readers/dataset_name.h"

#include <fmt/format.h>
#include <glob.h>

#include <charconv>

#include "base/error.h"
#include "base/file.h"

namespace danlu::data {
namespace {

bool names_something(const std::string& path) {
  if (dataset_path_exists(path)) return true;
  if (path.find_first_of("*?[") == std::string::npos) return false;
  ::glob_t found{};
  const bool matches = ::glob(path.c_str(), GLOB_TILDE | GLOB_NOSORT, nullptr, &found) == 0;
  ::globfree(&found);
  return matches;
}

}  // namespace

bool dataset_path_exists(const std::string& path) {
  std::error_code error;
  const bool found = fs::exists(path, error);
  if (!error) return found;
  constexpr size_t kShownBytes = 200;
  throw DataError(
      tr("[dataset] {}: cannot be read: {}", path.substr(0, kShownBytes), error.message()));
}

DatasetName parse_dataset_name(const std::string& text) {
  DatasetName name{text, "", -1};
  if (names_something(text)) return name;
  const auto take_split = [&name](size_t colon) {
    name.split = name.path.substr(colon + 1);
    name.path.resize(colon);
  };
  size_t colon = text.rfind(':');
  const size_t hash = text.rfind('#');
  if (colon != std::string::npos && colon > hash && names_something(text.substr(0, colon))) {
    take_split(colon);
    return name;
  }
  if (hash != std::string::npos) {
    const char* begin = text.data() + hash + 1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, name.max_rows);
    if (error != std::errc() || stop != end || name.max_rows < 1) {
      throw UsageError(tr("[dataset] {}: what follows # must be a number of rows >= 1, got \"{}\"",
                          text, text.substr(hash + 1)));
    }
    name.path.resize(hash);
    if (names_something(name.path)) return name;
    colon = name.path.rfind(':');
  }
  if (colon != std::string::npos && colon > 0) take_split(colon);
  return name;
}

}  // namespace danlu::data
