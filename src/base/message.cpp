#include "base/message.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/in_english.h"
#include "base/json.h"

namespace danlu {
namespace base {
extern const char* const kChineseMessages;
extern const char* const kChineseLibraries;
}  // namespace base

namespace {

using Catalogue = std::map<std::string, std::string, std::less<>>;

thread_local int english_scopes = 0;

const Catalogue& catalogue() {
  // Never freed: messages are written while the process ends, too.
  static const Catalogue& all = *[] {
    auto* read =
        new Catalogue(parse_json(base::kChineseMessages, "messages/zh.json").get<Catalogue>());
    read->merge(parse_json(base::kChineseLibraries, "zh_libraries.json").get<Catalogue>());
    return read;
  }();
  return all;
}

/// A format cut at its places: {"a ", " b"} and {0} of "a {} b".
struct Format {
  std::vector<std::string> pieces{""};
  std::vector<size_t> places;

  size_t letters() const {
    size_t sum = 0;
    for (const std::string& piece : pieces) sum += piece.size();
    return sum;
  }
};

Format format_of(std::string_view text) {
  Format format;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c != '{' || next == '{') {
      i += (c == '{' || c == '}') && next == c;  // "{{" is a "{"
      format.pieces.back() += c;
      continue;
    }
    const bool is_numbered = next >= '0' && next <= '9';
    format.places.push_back(is_numbered ? static_cast<size_t>(next - '0') : format.places.size());
    format.pieces.emplace_back();
    i = std::min(text.find('}', i), text.size());
  }
  return format;
}

/// What stands at the places of `text` if it is `format` filled in.
std::optional<std::vector<std::string_view>> words_at_places(const Format& format,
                                                             std::string_view text) {
  const std::string &first = format.pieces.front(), &last = format.pieces.back();
  if (!text.starts_with(first)) return std::nullopt;
  text.remove_prefix(first.size());
  if (!text.ends_with(last)) return std::nullopt;
  text.remove_suffix(last.size());
  std::vector<std::string_view> words(format.places.size());
  for (size_t i = 0; i + 1 < format.places.size(); ++i) {
    const std::string& next = format.pieces[i + 1];
    const size_t at = text.find(next);
    if (at == text.npos) return std::nullopt;
    words[format.places[i]] = text.substr(0, at);
    text.remove_prefix(at + next.size());
  }
  words[format.places.back()] = text;
  return words;
}

struct Pair {
  Format english, chinese;

  /// Texts of the help hold braces that are no places.
  bool fit() const {
    const auto numbers = [](const Format& f) {
      return std::set<size_t>(f.places.begin(), f.places.end());
    };
    return numbers(english) == numbers(chinese) &&
           numbers(english).size() == english.places.size() &&
           *numbers(english).rbegin() + 1 == english.places.size();
  }
};

const std::vector<Pair>& formats() {
  static const std::vector<Pair>& all = *[] {
    auto* pairs = new std::vector<Pair>;
    for (const auto& [english, chinese] : catalogue()) {
      Pair pair{format_of(english), format_of(chinese)};
      if (!pair.english.places.empty() && pair.english.letters() > 0 && pair.fit())
        pairs->push_back(std::move(pair));
    }
    return pairs;
  }();
  return all;
}

std::string filled_in_chinese(std::string_view english) {
  if (const std::string_view exact = in_chinese(english); exact != english)
    return std::string(exact);
  const Pair* best = nullptr;
  std::vector<std::string_view> words;
  for (const Pair& pair : formats()) {
    if (best && pair.english.letters() <= best->english.letters()) continue;
    if (auto found = words_at_places(pair.english, english)) {
      best = &pair;
      words = *std::move(found);
    }
  }
  if (!best) return std::string(english);
  const Format& format = best->chinese;
  std::string text = format.pieces.front();
  for (size_t i = 0; i < format.places.size(); ++i) {
    const std::string_view word = words.at(format.places[i]);
    // One word may be a name, as with tr().
    text += word.find(' ') == word.npos ? std::string(word) : filled_in_chinese(word);
    text += format.pieces[i + 1];
  }
  return text;
}

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
  const auto found = catalogue().find(english);
  return found == catalogue().end() ? english : std::string_view(found->second);
}

std::string translated_filled(std::string_view english) {
  return english_scopes == 0 && speaks_chinese() ? filled_in_chinese(english)
                                                 : std::string(english);
}

}  // namespace danlu
