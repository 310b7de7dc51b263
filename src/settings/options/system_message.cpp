#include "settings/options/system_message.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "text/tokenizer/utf8.h"

namespace danlu::settings {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

bool has_text_ending(const std::string& text) {
  for (const char* ending : {".txt", ".text", ".md", ".markdown", ".prompt"})
    if (text.ends_with(ending)) return true;
  return false;
}

/// Checkpoints that are named by mistake have a hundred thousand times the length of a message.
std::string beginning_of(const std::filesystem::path& path) {
  const int fd = open_input(path);
  std::string bytes(kMostBytes + 1, '\0');
  const ssize_t got = read_full(fd, bytes.data(), bytes.size());
  const int code = errno;
  ::close(fd);
  if (got < 0) throw IoError(tr("{}: cannot {}: {}", path.string(), "read", std::strerror(code)));
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

std::string with_lines(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') out += text[i];
  return out;
}

std::string message_in(const std::string& path, const std::string& flag) {
  std::string message = beginning_of(path);
  constexpr const char* kMark = "\xEF\xBB\xBF";
  if (message.starts_with(kMark)) message.erase(0, std::strlen(kMark));
  const std::string hint = tr("give the system message itself, or a text file that holds it");
  if (message.size() > kMostBytes)
    throw UsageError(tr("[{}] {}: longer than 1 MiB, which no system message is", flag, path),
                     hint);
  if (!text::is_valid_utf8(message))
    throw UsageError(tr("[{}] {}: no text in UTF-8", flag, path), hint);
  return with_lines(message);
}

}  // namespace

// A message may have a slash, too: "/no_think", and sentences in languages without spaces.
bool names_a_file(const std::string& text) {
  const bool begins_so = text.starts_with("/") || text.starts_with("./") ||
                         text.starts_with("../") || text.starts_with("~/");
  const bool is_one_line = text.find_first_of("\r\n") == std::string::npos;
  if (begins_so && is_one_line && has_text_ending(text)) return true;
  if (text.find_first_of(" \t\r\n") != std::string::npos) return false;
  if (has_text_ending(text)) return true;
  const bool is_ascii =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; });
  return is_ascii && text.find('/', 1) != std::string::npos;
}

std::string system_message_from(const Options& options) {
  const std::string text = options.get_string_or("system", "");
  if (text.empty()) return text;
  const std::string flag = options.given_as("system");
  std::error_code unknown;  // a message longer than any path may be names no file
  const std::filesystem::file_status there = std::filesystem::status(text, unknown);
  if (std::filesystem::is_directory(there)) {
    throw UsageError(tr("[{}] {}: this is a directory", flag, text),
                     tr("give the system message itself, or a text file that holds it"));
  }
  if (std::filesystem::exists(there)) {
    std::string message = message_in(text, flag);
    log::info("[{}] {}: the system message is the text of this file", flag, text);
    return message;
  }
  if (names_a_file(text)) {
    throw UsageError(tr("[{}] {}: no such file", flag, text),
                     tr("give the system message itself, or a text file that holds it"));
  }
  return text;
}

std::string short_form(const std::string& system_message) {
  return tr("{} bytes, hash {:016x}", system_message.size(), hash_bytes(system_message));
}

}  // namespace danlu::settings
