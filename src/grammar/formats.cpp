#include "grammar/formats.h"

#include <fmt/format.h>

#include <map>

namespace danlu::grammar {
namespace {

std::string date_pattern() {
  const std::string two = "(0[48]|[2468][048]|[13579][26])";
  return fmt::format(
      "(\\d{{4}}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
      "02-(0[1-9]|1\\d|2[0-8]))|(\\d\\d{0}|{0}00|0000)-02-29)",
      two);
}

std::string time_pattern() {
  return "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
}

std::string ipv6_pattern() {
  const std::string part = "[0-9a-fA-F]{1,4}";
  std::string all = fmt::format("({}:){{7}}{}|::", part, part);
  // "::" stands for what is missing, between so many parts on the left and on the right.
  for (int left = 0; left <= 7; ++left) {
    const int right = 7 - left;
    const std::string before =
        left == 0 ? "::" : fmt::format("{}(:{}){{{}}}::", part, part, left - 1);
    all +=
        "|" + before + (right == 0 ? "" : fmt::format("({}(:{}){{0,{}}})?", part, part, right - 1));
  }
  return "(" + all + ")";
}

const std::map<std::string, std::string, std::less<>>& format_patterns() {
  static const std::map<std::string, std::string, std::less<>> kPatterns = {
      {"date", date_pattern()},
      {"time", time_pattern()},
      {"date-time", date_pattern() + "T" + time_pattern()},
      {"duration",
       "P(\\d+W|(\\d+D|\\d+M(\\d+D)?|\\d+Y(\\d+M(\\d+D)?)?)(T(\\d+S|\\d+M(\\d+S)?|\\d+H(\\d+M(\\d+"
       "S)?)?))?|T(\\d+S|\\d+M(\\d+S)?|\\d+H(\\d+M(\\d+S)?)?))"},
      {"email",
       "[A-Za-z0-9_%+-]{1,32}(\\.[A-Za-z0-9_%+-]{1,16}){0,1}@([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-"
       "z0-9])?\\.){1,4}[A-Za-z]{2,24}"},
      {"hostname",
       "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)"
       "{0,3}"},
      {"ipv4",
       "((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"},
      {"ipv6", ipv6_pattern()},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
      {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(//)?[A-Za-z0-9._~:/?#@!$&'()*+,;=%-]+"},
  };
  return kPatterns;
}

}  // namespace

std::optional<std::string> pattern_of_format(std::string_view format) {
  const auto found = format_patterns().find(format);
  return found == format_patterns().end() ? std::nullopt : std::optional(found->second);
}

std::string format_names() {
  std::string names;
  for (const auto& [name, pattern] : format_patterns()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace danlu::grammar
