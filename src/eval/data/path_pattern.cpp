#include "eval/data/path_pattern.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace danlu::eval {
namespace {
namespace {

constexpr std::string_view kSubject = "{subject}";
// Wildcards of a pattern; those that a subject's own name may hold are letters.
constexpr char kAny = '\1', kOne = '\2';

std::string compiled_pattern(const std::string& pattern,
                             const std::optional<std::string>& subject) {
  std::string out;
  for (size_t at = 0; at < pattern.size();) {
    if (pattern.compare(at, kSubject.size(), kSubject) == 0) {
      out += subject ? *subject : std::string(1, kAny);
      at += kSubject.size();
    } else {
      const char c = pattern[at++];
      out += c == '*' ? kAny : c == '?' ? kOne : c;
    }
  }
  return out;
}

bool has_wildcard(std::string_view pattern) {
  return pattern.find_first_of(std::string_view("\1\2")) != pattern.npos;
}

/// In time of their lengths' product: after a mismatch only the last kAny is tried again.
bool matches_name(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = pattern.npos, star_n = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == kAny) {
      star = p++;
      star_n = n;
    } else if (p < pattern.size() && (pattern[p] == kOne || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++star_n;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == kAny) ++p;
  return p == pattern.size();
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void find_below(const fs::path& directory, fs::path::iterator part, const fs::path::iterator end,
                std::vector<fs::path>* found) {
  const std::string pattern = part->string();
  const bool is_last = ++part == end;
  std::vector<std::string> names = {pattern};
  if (has_wildcard(pattern)) {
    names = names_in(directory);
    std::erase_if(names, [&](const std::string& name) {
      const bool is_hidden = name.starts_with('.') && !pattern.starts_with('.');
      return is_hidden || !matches_name(pattern, name);
    });
  }
  for (const std::string& name : names) {
    const fs::path path = directory / name;
    std::error_code error;
    if (is_last && fs::is_regular_file(path, error)) found->push_back(path);
    if (!is_last && fs::is_directory(path, error)) find_below(path, part, end, found);
  }
}

}  // namespace
}  // namespace

void require_inside(const fs::path& path) {
  const bool leads_out = std::find(path.begin(), path.end(), "..") != path.end();
  if (path.is_absolute() || leads_out || path.empty()) {
    throw DataError(tr("'{}' must be a path within the benchmark's data", path.string()),
                    tr("write it relative to the data's directory, without '..'"));
  }
}

std::vector<fs::path> files_matching(const fs::path& root, const std::string& pattern,
                                     const std::optional<std::string>& subject) {
  const fs::path compiled(compiled_pattern(pattern, subject));
  require_inside(compiled);
  std::vector<fs::path> found;
  find_below(root, compiled.begin(), compiled.end(), &found);
  return found;
}

bool ends_in_pattern(const fs::path& name, const std::string& pattern) {
  const fs::path compiled(compiled_pattern(pattern, std::nullopt));
  const auto parts = std::distance(compiled.begin(), compiled.end());
  const auto given = std::distance(name.begin(), name.end());
  if (given < parts) return false;
  return std::equal(compiled.begin(), compiled.end(), std::next(name.begin(), given - parts),
                    [](const fs::path& wanted, const fs::path& part) {
                      return matches_name(wanted.native(), part.native());
                    });
}

std::string with_subject(std::string pattern, const std::string& subject) {
  constexpr std::string_view kName = kSubject;
  for (size_t at = 0; (at = pattern.find(kName, at)) != pattern.npos; at += subject.size())
    pattern.replace(at, kName.size(), subject);
  return pattern;
}

}  // namespace danlu::eval
