#include "house/messages.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <string_view>

namespace danlu::house {
namespace {

/// Walks one file, keeping the open brackets and the name before each.
class LiteralScanner {
 public:
  explicit LiteralScanner(const SourceFile& file) : path_(file.path) {
    for (const std::string& line : file.lines) text_ += line + "\n";
  }

  std::vector<Literal> scan() {
    while (at_ < text_.size()) step();
    return std::move(found_);
  }

 private:
  bool sees(std::string_view word) const {
    return std::string_view(text_).substr(at_, word.size()) == word;
  }

  void step() {
    const char c = text_[at_];
    if (sees("//")) {
      at_ = text_.find('\n', at_);
    } else if (sees("R\"")) {
      const size_t open = text_.find('(', at_);
      const std::string close = ")" + text_.substr(at_ + 2, open - at_ - 2) + "\"";
      at_ = text_.find(close, open) + close.size();
      before_ = "R";
    } else if (c == '\'' && !std::isalnum(static_cast<unsigned char>(last_))) {
      for (++at_; text_[at_] != '\''; ++at_) at_ += text_[at_] == '\\';
      ++at_;
      before_ = "'";
    } else if (c == '"') {
      literal();
    } else if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      const size_t begin = at_;
      while (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_') ++at_;
      before_ = text_.substr(begin, at_ - begin);
    } else if (!std::isspace(static_cast<unsigned char>(c))) {
      if (c == '(' || c == '[' || c == '{') calls_.push_back(before_);
      if ((c == ')' || c == ']' || c == '}') && !calls_.empty()) calls_.pop_back();
      before_ = c;
      ++at_;
    } else {
      ++at_;
    }
    last_ = at_ > 0 ? text_[at_ - 1] : ' ';
  }

  void literal() {
    const int line = 1 + static_cast<int>(std::count(text_.begin(),
                                                     text_.begin() + static_cast<long>(at_), '\n'));
    const bool joined = before_ == "\"";
    std::string value;
    for (++at_; text_[at_] != '"'; ++at_) {
      if (text_[at_] != '\\') {
        value += text_[at_];
        continue;
      }
      const char escaped = text_[++at_];
      value += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
    }
    ++at_;
    if (joined) {
      found_.back().text += value;
    } else {
      found_.push_back({path_, line, value, calls_, before_ == "("});
    }
    before_ = "\"";
  }

  std::string path_, text_, before_;
  char last_ = ' ';
  size_t at_ = 0;
  std::vector<std::string> calls_;
  std::vector<Literal> found_;
};

}  // namespace

std::vector<Literal> literals_of(const SourceFile& file) { return LiteralScanner(file).scan(); }

bool is_message(const Literal& literal) {
  static const std::set<std::string> says = {"tr", "info", "warning", "notice", "translated"};
  static const std::regex no_words("\\{[^}]*\\}|\\[[^\\]]*\\]|--[a-z_-]+"), word("[A-Za-z]{2}"),
      words("[A-Za-z]+ [a-z]{2,}");
  for (const std::string& call : literal.calls) {
    if (call == "InternalError" || call == "static_assert") return false;
  }
  const bool said =
      !literal.calls.empty() && says.count(literal.calls.back()) && literal.is_first_argument;
  return said ? std::regex_search(std::regex_replace(literal.text, no_words, ""), word)
              : std::regex_search(literal.text, words);
}

std::multiset<std::string> places_of(const std::string& format) {
  std::multiset<std::string> places;
  int next = 0;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '{') continue;
    if (at + 1 < format.size() && format[at + 1] == '{') {
      ++at;
      continue;
    }
    const size_t end = format.find('}', at);
    if (end == format.npos) break;
    const std::string inside = format.substr(at + 1, end - at - 1);
    const size_t colon = inside.find(':');
    const std::string number = inside.substr(0, colon);
    places.insert((number.empty() ? std::to_string(next++) : number) + ":" +
                  (colon == inside.npos ? "" : inside.substr(colon + 1)));
    at = end;
  }
  return places;
}

bool Untranslated::has(const Literal& literal) const {
  const bool said = !literal.calls.empty() && literal.calls.back() == "tr";
  for (const std::string& path : paths) {
    if (!said && literal.path.starts_with(path)) return true;
  }
  for (const std::string& text : texts) {
    if (literal.text.starts_with(text)) return true;
  }
  return false;
}

Untranslated read_untranslated(const fs::path& file) {
  Untranslated out;
  for (const std::string& line : lines_of(file)) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '"') {
      out.texts.push_back(line.substr(1, line.find("\": ") - 1));
    } else {
      out.paths.push_back(line.substr(0, line.find(':')));
    }
  }
  return out;
}

}  // namespace danlu::house
