// base/message.h: what the program says, in the language of the terminal. The sources hold the
// English text, which is also its key; base/messages/zh.json is the catalogue: {"English":
// "Chinese"}, sorted. zh_libraries.json beside it holds what libc and the JSON library say.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace danlu {

/// True if the person at the terminal reads Chinese: DANLU_LANG=zh, else LC_ALL / LC_MESSAGES /
/// LANG begin with zh.
bool speaks_chinese();

/// A text of the catalogue in the language of the terminal; any other text is returned as it is.
std::string_view translated(std::string_view english);

/// The same in Chinese, whatever the terminal's language is.
std::string_view in_chinese(std::string_view english);

/// A text whose places are filled in already (stored in English, or a library's) in the language of
/// the terminal: the text of the catalogue that explains most of it, filled with the same words.
/// One that no text of the catalogue explains is returned as it is.
std::string translated_filled(std::string_view english);

namespace message_detail {

template <typename T>
decltype(auto) in_language(const T& argument) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    const std::string_view text = argument;
    return text.find(' ') == text.npos ? text : translated(text);
  } else {
    return (argument);
  }
}

template <typename... Args>
std::string fill(std::string_view format, const Args&... args) {
  return fmt::vformat(format, fmt::make_format_args(args...));
}

}  // namespace message_detail

/// `english`, a literal, translated and then filled in as fmt::format does. An argument that is
/// itself a text of the catalogue (a rule, a reason) is translated too, unless it is one word: that
/// may be a name. A translation may number its places ({1}) to change their order; tests/house
/// compares the places of every pair.
template <typename... Args>
std::string tr(fmt::format_string<Args...> english, Args&&... args) {
  const fmt::string_view text = english;
  return message_detail::fill(translated({text.data(), text.size()}),
                              message_detail::in_language(args)...);
}

}  // namespace danlu
