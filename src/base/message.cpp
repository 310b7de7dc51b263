#include "base/message.h"

#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "base/in_english.h"
#include "base/json.h"

namespace danlu {
namespace base {
extern const char* const kChineseMessages;
}

namespace {

using Catalogue = std::map<std::string, std::string, std::less<>>;

thread_local int english_scopes = 0;

}  // namespace

bool speaks_chinese() {
  if (const char* own = std::getenv("DANLU_LANG"); own && *own)
    return std::string_view(own).substr(0, 2) == "zh";
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    // What is written is UTF-8: a terminal of another encoding gets ASCII.
    const std::string_view locale = value;
    const bool utf8 = locale.find('.') == locale.npos || locale.find("UTF") != locale.npos ||
                      locale.find("utf") != locale.npos;
    return utf8 && locale.substr(0, 2) == "zh";
  }
  return false;
}

InEnglish::InEnglish() { ++english_scopes; }
InEnglish::~InEnglish() { --english_scopes; }

std::string_view translated(std::string_view english) {
  return english_scopes == 0 && speaks_chinese() ? in_chinese(english) : english;
}

std::string_view in_chinese(std::string_view english) {
  // Never freed: messages are written while the process ends, too.
  static const Catalogue& catalogue =
      *new Catalogue(parse_json(base::kChineseMessages, "messages/zh.json").get<Catalogue>());
  const auto found = catalogue.find(english);
  return found == catalogue.end() ? english : std::string_view(found->second);
}

}  // namespace danlu
