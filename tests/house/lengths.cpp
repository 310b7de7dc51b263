#include <regex>

#include "house/source_tree.h"

namespace danlu::house {
namespace {

/// Finds function bodies in code laid out by clang-format: a statement that begins at column 0 (or
/// at column 2, a member in a class) and ends in `{` runs until `}` at the same column.
class FunctionFinder {
 public:
  explicit FunctionFinder(const std::vector<std::string>& lines) : lines_(lines) {}

  template <typename Visit>
  void find(Visit visit) {
    for (size_t i = 0; i < lines_.size(); ++i) {
      const size_t column = lines_[i].find_first_not_of(' ');
      if (column != 0 && column != 2) continue;
      std::string statement;
      const size_t end_of_statement = end_of(i, column, statement);
      if (!is_function(statement)) continue;
      const size_t last = closing_line(end_of_statement, column);
      if (last == 0) continue;
      if (!is_table(end_of_statement, last, column)) {
        visit(name_of(statement), static_cast<int>(last - i + 1));
      }
      i = last;
    }
  }

 private:
  size_t end_of(size_t first, size_t column, std::string& statement) const {
    size_t at = first;
    for (; at < lines_.size(); ++at) {
      if (at > first && lines_[at].find_first_not_of(' ') <= column) break;
      statement += lines_[at] + " ";
      const char last = lines_[at].empty() ? ' ' : lines_[at].back();
      if (last == ';' || last == '{' || last == '}') break;
    }
    return at;
  }

  static bool is_function(const std::string& statement) {
    static const std::regex not_function(
        R"(^\s*(#|\}|namespace\b|class\b|struct\b|enum\b|union\b|extern\b|using\b|typedef\b|public:|private:|if\b|for\b|while\b|switch\b|return\b|else\b|do\b|try\b))");
    // A table's initialiser has `= {`; operator= and default arguments have their own parentheses.
    static const std::regex table(R"(=\s*\{\s*$)");
    return statement.find('(') != statement.npos && statement.ends_with("{ ") &&
           !std::regex_search(statement, not_function) && !std::regex_search(statement, table);
  }

  size_t closing_line(size_t from, size_t column) const {
    const std::string closing = std::string(column, ' ') + "}";
    for (size_t at = from + 1; at < lines_.size(); ++at) {
      if (lines_[at].starts_with(closing)) return at;
    }
    return 0;
  }

  /// Data in the form of a function (an option table): a few statements, no control flow.
  bool is_table(size_t open, size_t last, size_t column) const {
    static const std::regex control(R"(^\s*(if|for|while|switch|do|try)\b)");
    int num_statements = 0;
    for (size_t at = open + 1; at < last; ++at) {
      if (std::regex_search(lines_[at], control)) return false;
      const bool top_level = lines_[at].find_first_not_of(' ') == column + 2;
      num_statements += top_level && lines_[at][column + 2] != '}';
    }
    return num_statements <= 3;
  }

  static std::string name_of(const std::string& statement) {
    static const std::regex name(R"(([A-Za-z_~][A-Za-z0-9_]*)\s*\()");
    std::smatch match;
    return std::regex_search(statement, match, name) ? match[1].str() : "?";
  }

  const std::vector<std::string>& lines_;
};

}  // namespace

std::map<std::string, int> long_files(const fs::path& root, int max_lines) {
  std::map<std::string, int> found;
  for (const char* folder : {"src", "tests", "bench", "fuzz"}) {
    for (const SourceFile& file : source_files(root, folder)) {
      const int length = static_cast<int>(file.lines.size());
      if (length > max_lines) found[file.path] = length;
    }
  }
  return found;
}

std::map<std::string, int> long_functions(const fs::path& root, int max_function_lines) {
  std::map<std::string, int> found;
  for (const SourceFile& file : source_files(root, "src")) {
    const std::vector<std::string> code = code_only(file.lines);
    FunctionFinder(code).find([&](const std::string& name, int length) {
      if (length > max_function_lines) found[file.path + ":" + name] = length;
    });
  }
  return found;
}

}  // namespace danlu::house
