#include "data/formats/self_names.h"

#include <string_view>

namespace danlu::data {
namespace {

void replace_all(std::string& text, std::string_view placeholder, const std::string& name) {
  if (name.empty()) return;
  for (size_t at = text.find(placeholder); at != text.npos;
       at = text.find(placeholder, at + name.size()))
    text.replace(at, placeholder.size(), name);
}

/// Whether there is a character of U+4E00 to U+9FFF, whose UTF-8 begins with E4 B8 to E9 BF.
bool has_chinese(std::string_view text) {
  for (size_t i = 0; i + 2 < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]),
               next = static_cast<unsigned char>(text[i + 1]);
    if ((lead > 0xE4 && lead <= 0xE9) || (lead == 0xE4 && next >= 0xB8)) return true;
  }
  return false;
}

bool is_chinese(const Json& row, const std::string& answer) {
  if (const auto tag = row.find("tag"); tag != row.end() && tag->is_string()) return *tag == "zh";
  return has_chinese(answer);
}

}  // namespace

void put_names(const SelfNames& names, const Json& row, text::Conversation& conversation) {
  for (text::Message& message : conversation.messages) {
    if (message.role != "assistant" || message.content.find("{{") == std::string::npos) continue;
    const bool chinese = is_chinese(row, message.content);
    replace_all(message.content, "{{NAME}}", chinese ? names.chinese_name : names.english_name);
    replace_all(message.content, "{{AUTHOR}}",
                chinese ? names.chinese_author : names.english_author);
  }
}

}  // namespace danlu::data
