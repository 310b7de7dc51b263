#include "settings/options/system_message.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace danlu::settings {
namespace {

/// A message is longer than any path may be, and then it names no file.
bool names_file(const std::string& text) {
  std::error_code problem;
  return std::filesystem::is_regular_file(text, problem);
}

bool is_one_word(const std::string& text) {
  return text.find_first_of(" \t\r\n") == std::string::npos;
}

}  // namespace

std::string system_message_from(const Options& options) {
  std::string text = options.get_string_or("system", "");
  if (text.empty()) return text;
  const std::string flag = options.given_as("system");
  if (names_file(text)) {
    std::string message = read_file(text);
    log::notice("[{}] {}: the system message is the text of this file", flag, text);
    return message;
  }
  if (text.ends_with(".txt") && is_one_word(text)) {
    throw UsageError(tr("[{}] {}: no such file", flag, text),
                     tr("give the system message itself, or a file that holds it"));
  }
  return text;
}

}  // namespace danlu::settings
