// base/lower_case.h: names compared without regard to case.
#pragma once
#include <string>
#include <string_view>

namespace danlu {

/// ASCII letters in lower case, every other byte as it is, whatever the locale.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace danlu
