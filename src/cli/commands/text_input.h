// cli/commands/text_input.h: what --input names: a file, or standard input where it is "-".
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace danlu::cli {

/// Errors: IoError.
std::string whole_input(const std::string& input);

/// Calls on_line for every line without its newline; numbers count from 1. A last line needs no
/// newline. Errors: IoError.
void each_input_line(const std::string& input,
                     const std::function<void(std::string_view line, size_t number)>& on_line);

/// For messages: the path, or "standard input".
std::string input_name(const std::string& input);

}  // namespace danlu::cli
