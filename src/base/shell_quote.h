// base/shell_quote.h: words of command lines that a person is to copy.
#pragma once
#include <string>

namespace danlu {

/// `word` as it must be written in a POSIX shell: unchanged where nothing in it is special, else in
/// single quotes.
inline std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace danlu
