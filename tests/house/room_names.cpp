#include <regex>

#include "house/source_tree.h"

namespace danlu::house {
namespace {

/// The name that a statement at column 0 introduces; empty if it introduces none.
std::string introduced_name(const std::string& statement) {
  static const std::regex is_template(R"(^template <[^()]*?>+\s+(?=\w))");
  const std::string code = std::regex_replace(statement, is_template, "");
  static const std::regex type(R"(^(?:struct|class|union|enum(?: class)?) (\w+))");
  static const std::regex no_name(R"(^(?:using\b|namespace\b|static_assert\b|public:|private:))");
  static const std::regex constant(
      R"(^(?:inline |static |constexpr |const |thread_local )[^(={]*?(\w+)(?:\[\w*\])* ?[={;])");
  static const std::regex function(R"(^[^(]*?(?:^|[^\w:])(\w+)\()");
  std::smatch match;
  if (std::regex_search(code, match, type)) return match[1];
  if (code.empty() || std::regex_search(code, no_name)) return "";
  if (std::regex_search(code, match, constant)) return match[1];
  if (std::regex_search(code, match, function)) return match[1];
  return "";
}

/// What stands in the anonymous namespaces of a file laid out by clang-format, which ends them with
/// "}  // namespace": "danlu::train: count".
std::set<std::string> anonymous_names(const SourceFile& file) {
  static const std::regex named_namespace(R"(^namespace ([\w:]+) \{)");
  const std::vector<std::string> code = code_only(file.lines);
  std::set<std::string> names;
  std::string outer;
  bool is_inside = false;
  for (size_t i = 0; i < code.size(); ++i) {
    const std::string& line = file.lines[i];
    std::smatch match;
    if (std::regex_search(line, match, named_namespace)) outer = match[1];
    if (line == "namespace {" || line == "}  // namespace") {
      is_inside = line == "namespace {";
      continue;
    }
    if (!is_inside || code[i].empty() ||
        std::string(" }#").find(code[i].front()) != std::string::npos)
      continue;
    std::string statement = code[i];
    while (statement.find_first_of("({;=") == statement.npos && i + 1 < code.size())
      statement += " " + code[++i];
    if (const std::string name = introduced_name(statement); !name.empty())
      names.insert(outer + ": " + name);
  }
  return names;
}

}  // namespace

std::vector<std::string> names_met_twice(const fs::path& root) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> places;
  for (const SourceFile& file : source_files(root, "src")) {
    if (!file.path.ends_with(".cpp")) continue;
    const std::string room = file.path.substr(4, file.path.find('/', 4) - 4);
    for (const std::string& name : anonymous_names(file)) places[{room, name}].push_back(file.path);
  }
  std::vector<std::string> twice;
  for (const auto& [name, files] : places) {
    if (files.size() < 2) continue;
    std::string line = name.second;
    for (const std::string& file : files) line += (&file == &files.front() ? " in " : ", ") + file;
    twice.push_back(line);
  }
  return twice;
}

}  // namespace danlu::house
