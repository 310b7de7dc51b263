#include "house/source_tree.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace danlu::house {

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<SourceFile> source_files(const fs::path& root, const std::string& folder) {
  std::vector<SourceFile> files;
  if (!fs::exists(root / folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu") continue;
    files.push_back({fs::relative(entry.path(), root).string(), lines_of(entry.path())});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

namespace {

/// Blanks comments and string contents, character by character, across lines.
class Blanker {
 public:
  std::string blank(const std::string& line) {
    std::string out = line;
    if (state_ == State::kString || state_ == State::kCharacter) state_ = State::kCode;
    for (size_t i = 0; i < line.size(); ++i) i = step(line, i, out);
    return out;
  }

 private:
  enum class State { kCode, kBlockComment, kString, kCharacter, kRawString };

  size_t step(const std::string& line, size_t i, std::string& out) {
    switch (state_) {
      case State::kCode:
        return step_code(line, i, out);
      case State::kBlockComment:
        out[i] = ' ';
        if (line.compare(i, 2, "*/") == 0) {
          out[i + 1] = ' ';
          state_ = State::kCode;
          return i + 1;
        }
        return i;
      case State::kRawString:
        if (line.compare(i, raw_end_.size(), raw_end_) == 0) {
          state_ = State::kCode;
          return i + raw_end_.size() - 1;
        }
        out[i] = ' ';
        return i;
      default:
        return step_quoted(line, i, out);
    }
  }

  size_t step_code(const std::string& line, size_t i, std::string& out) {
    if (line.compare(i, 2, "//") == 0) {
      out.resize(i);
      return line.size();
    }
    if (line.compare(i, 2, "/*") == 0) {
      state_ = State::kBlockComment;
      out[i] = out[i + 1] = ' ';
      return i + 1;
    }
    const size_t open = line.find('(', i);
    if (line.compare(i, 2, "R\"") == 0 && open != line.npos) {
      raw_end_ = ")" + line.substr(i + 2, open - i - 2) + "\"";
      state_ = State::kRawString;
      return open;
    }
    const bool digit_separator = i > 0 && std::isalnum(static_cast<unsigned char>(line[i - 1]));
    if (line[i] == '"') state_ = State::kString;
    if (line[i] == '\'' && !digit_separator) state_ = State::kCharacter;
    return i;
  }

  size_t step_quoted(const std::string& line, size_t i, std::string& out) {
    const char end = state_ == State::kString ? '"' : '\'';
    if (line[i] == end) {
      state_ = State::kCode;
      return i;
    }
    out[i] = ' ';
    if (line[i] != '\\') return i;
    if (i + 1 < out.size()) out[i + 1] = ' ';
    return i + 1;
  }

  State state_ = State::kCode;
  std::string raw_end_;
};

}  // namespace

std::vector<std::string> code_only(const std::vector<std::string>& lines) {
  Blanker blanker;
  std::vector<std::string> out;
  for (const std::string& line : lines) {
    // An include's path is not prose.
    out.push_back(line.starts_with("#include") ? line : blanker.blank(line));
  }
  return out;
}

}  // namespace danlu::house
