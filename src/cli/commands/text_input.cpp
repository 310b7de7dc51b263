#include "cli/commands/text_input.h"

#include <iostream>
#include <iterator>

#include "base/file.h"

namespace danlu::cli {
namespace {

bool is_standard_input(const std::string& input) { return input == "-"; }

}  // namespace

std::string whole_input(const std::string& input) {
  if (!is_standard_input(input)) return read_file(input);
  return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
}

void each_input_line(const std::string& input,
                     const std::function<void(std::string_view line, size_t number)>& on_line) {
  size_t number = 0;
  if (is_standard_input(input)) {
    for (std::string line; std::getline(std::cin, line);) on_line(line, ++number);
    return;
  }
  MappedFile file;
  std::string content;
  // A pipe, such as <(command), cannot be mapped.
  const bool can_be_mapped = fs::is_regular_file(input);
  if (can_be_mapped) {
    file = MappedFile(input);
  } else {
    content = read_file(input);
  }
  for (std::string_view rest = can_be_mapped ? file.text() : content; !rest.empty();) {
    const size_t end = rest.find('\n');
    on_line(rest.substr(0, end), ++number);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
}

std::string input_name(const std::string& input) {
  return is_standard_input(input) ? "standard input" : input;
}

}  // namespace danlu::cli
