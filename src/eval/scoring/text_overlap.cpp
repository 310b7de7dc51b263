#include "eval/scoring/text_overlap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

namespace py = text::jinja;

using Words = std::vector<std::string>;

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool is_digit_char(char c) { return c >= '0' && c <= '9'; }
/// What may stand in a block of Latin words without being of one.
bool is_joining_sign(char c) {
  return std::string_view("+#&._%-").find(c) != std::string_view::npos;
}

/// The end of a run of letters and digits at `at`, with a fraction and a percent sign.
size_t end_of_latin_word(std::string_view text, size_t at) {
  while (at < text.size() && is_alphanumeric(text[at])) ++at;
  if (at + 1 < text.size() && text[at] == '.' && is_digit_char(text[at + 1])) {
    ++at;
    while (at < text.size() && is_digit_char(text[at])) ++at;
  }
  return at < text.size() && text[at] == '%' ? at + 1 : at;
}

/// How often each run of `order` units is there.
std::map<Words, int64_t> runs_of(const Words& units, size_t order) {
  std::map<Words, int64_t> counts;
  for (size_t i = 0; i + order <= units.size(); ++i)
    ++counts[Words(units.begin() + static_cast<std::ptrdiff_t>(i),
                   units.begin() + static_cast<std::ptrdiff_t>(i + order))];
  return counts;
}

/// The packages add 1e-8 against a division by 0.
double f_measure(double common, double found, double wanted) {
  const double precision = found > 0 ? common / found : 0,
               recall = wanted > 0 ? common / wanted : 0;
  return 2 * (precision * recall) / (precision + recall + 1e-8);
}

double rouge_n(const Words& found, const Words& wanted, size_t order) {
  const std::map<Words, int64_t> own = runs_of(found, order), other = runs_of(wanted, order);
  const auto common = std::count_if(own.begin(), own.end(),
                                    [&](const auto& run) { return other.contains(run.first); });
  return f_measure(static_cast<double>(common), static_cast<double>(own.size()),
                   static_cast<double>(other.size()));
}

/// Lengths of the longest common subsequences of beginnings of both.
class CommonLengths {
 public:
  CommonLengths(const Words& one, const Words& other) : columns_(other.size() + 1) {
    constexpr size_t kMost = size_t{1} << 29;
    if ((one.size() + 1) > kMost / columns_)
      throw DataError(
          tr("texts of {} and {} words are too long to be compared", one.size(), other.size()));
    lengths_.assign((one.size() + 1) * columns_, 0);
    for (size_t i = 1; i <= one.size(); ++i) {
      for (size_t j = 1; j <= other.size(); ++j) {
        lengths_[i * columns_ + j] = one[i - 1] == other[j - 1]
                                         ? at(i - 1, j - 1) + 1
                                         : std::max(at(i - 1, j), at(i, j - 1));
      }
    }
  }
  uint32_t at(size_t i, size_t j) const { return lengths_[i * columns_ + j]; }

 private:
  size_t columns_;
  std::vector<uint32_t> lengths_;
};

/// The words of one longest common subsequence; of equally long ones that which skips words of
/// `other` first, from the end.
void add_common_words(const Words& one, const Words& other, std::set<std::string>* words) {
  const CommonLengths lengths(one, other);
  size_t i = one.size(), j = other.size();
  while (i > 0 && j > 0) {
    if (one[i - 1] == other[j - 1]) {
      words->insert(one[--i]);
      --j;
    } else if (lengths.at(i - 1, j) > lengths.at(i, j - 1)) {
      --i;
    } else {
      --j;
    }
  }
}

bool is_space_word(std::string_view word) {
  size_t at = 0;
  while (at < word.size())
    if (!py::is_python_space(py::next_code_point(word, at))) return false;
  return true;
}

/// A sentence of blanks alone has one word there, the empty one.
void add_sentence(Words& sentence, std::vector<Words>& sentences) {
  if (sentence.empty()) return;
  std::erase_if(sentence, is_space_word);
  sentences.push_back(sentence.empty() ? Words{""} : std::move(sentence));
  sentence = {};
}

/// What "." ends. The words were joined by blanks before, so that what is between two full stops,
/// or before the first, is a sentence of blanks at least.
std::vector<Words> sentences_by_full_stop(const Words& words) {
  std::vector<Words> sentences;
  Words sentence;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) sentence.push_back(" ");
    std::string part;
    for (const char c : words[i]) {
      if (c != '.') {
        part += c;
        continue;
      }
      if (!part.empty()) sentence.push_back(std::exchange(part, {}));
      add_sentence(sentence, sentences);
    }
    if (!part.empty()) sentence.push_back(part);
  }
  add_sentence(sentence, sentences);
  return sentences;
}

bool ends_chinese_sentence(std::string_view c) {
  return c == "。" || c == "！" || c == "？" || c == "?";
}
bool is_closing_quote(std::string_view c) { return c == "”" || c == "’"; }

/// The words of rows that blanks stand between, as rouge-chinese has them: where one sentence after
/// another begins a row of its own, a row of blanks alone has one word, the empty one.
Words words_by_row(const Words& words) {
  Words characters;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) characters.emplace_back(" ");
    for (std::string& c : characters_of(words[i])) characters.push_back(std::move(c));
  }
  Words rows;
  constexpr size_t kDots = 6;
  for (size_t i = 0, dots = 0; i < characters.size(); ++i) {
    rows.push_back(characters[i]);
    dots = characters[i] == "." ? dots + 1 : 0;
    const bool is_end = ends_chinese_sentence(characters[i]) || dots == kDots;
    if (!is_end || i + 1 == characters.size() || is_closing_quote(characters[i + 1])) continue;
    rows.emplace_back("\n");
    rows.push_back(characters[++i]);
    dots = 0;
  }
  while (!rows.empty() && is_space_word(rows.back())) rows.pop_back();
  rows.emplace_back("\n");
  Words found;
  std::string word;
  bool has_characters = false, has_words = false;
  for (const std::string& c : rows) {
    if (is_space_word(c) && !word.empty()) {
      found.push_back(std::exchange(word, {}));
      has_words = true;
    }
    if (c == "\n") {
      if (has_characters && !has_words) found.emplace_back();
      has_characters = has_words = false;
      continue;
    }
    has_characters = true;
    if (!is_space_word(c)) word += c;
  }
  return found;
}

Words joined_words(const std::vector<Words>& sentences) {
  Words all;
  for (const Words& sentence : sentences) all.insert(all.end(), sentence.begin(), sentence.end());
  return all;
}

double rouge_l_of_sentences(const std::vector<Words>& found, const std::vector<Words>& wanted) {
  std::set<std::string> common, own, other;
  for (const Words& sentence : wanted) {
    other.insert(sentence.begin(), sentence.end());
    for (const Words& of_found : found) add_common_words(sentence, of_found, &common);
  }
  for (const Words& sentence : found) own.insert(sentence.begin(), sentence.end());
  return f_measure(static_cast<double>(common.size()), static_cast<double>(own.size()),
                   static_cast<double>(other.size()));
}

}  // namespace

Words characters_of(std::string_view text) {
  Words characters;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    py::next_code_point(text, at);
    characters.emplace_back(text.substr(begin, at - begin));
  }
  return characters;
}

Words words_for_overlap(std::string_view text) {
  Words words;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (is_alphanumeric(text[at])) {
      at = end_of_latin_word(text, at);
    } else if (is_joining_sign(text[at])) {
      while (at < text.size() && is_joining_sign(text[at])) ++at;
    } else if (text.substr(at, 2) == "\r\n") {
      at += 2;
    } else {
      py::next_code_point(text, at);
    }
    words.emplace_back(text.substr(begin, at - begin));
  }
  return words;
}

double bleu4(const Words& found, const Words& wanted) {
  constexpr size_t kOrders = 4;
  std::array<double, kOrders> agree{}, all{};
  for (size_t order = 1; order <= kOrders; ++order) {
    const std::map<Words, int64_t> own = runs_of(found, order), other = runs_of(wanted, order);
    for (const auto& [run, count] : own) {
      const auto at = other.find(run);
      all[order - 1] += static_cast<double>(count);
      if (at != other.end()) agree[order - 1] += static_cast<double>(std::min(count, at->second));
    }
    all[order - 1] = std::max(1.0, all[order - 1]);
  }
  if (agree[0] == 0) return 0;
  double sum = 0, part = 1;
  for (size_t i = 0; i < kOrders; ++i) {
    if (agree[i] == 0) agree[i] = part /= 2;
    sum += std::log(agree[i] / all[i]) / kOrders;
  }
  const auto own = static_cast<double>(found.size()), other = static_cast<double>(wanted.size());
  return std::exp(sum) * (own > other ? 1.0 : std::exp(1 - other / own));
}

Rouge rouge_of(const Words& found, const Words& wanted, RougeKind kind) {
  if (kind == RougeKind::kSentences) {
    const std::vector<Words> own = sentences_by_full_stop(found),
                             other = sentences_by_full_stop(wanted);
    if (own.empty() || other.empty()) return {};
    const Words all = joined_words(own), all_other = joined_words(other);
    return {rouge_n(all, all_other, 1), rouge_n(all, all_other, 2),
            rouge_l_of_sentences(own, other)};
  }
  if (std::all_of(found.begin(), found.end(), is_space_word) ||
      std::all_of(wanted.begin(), wanted.end(), is_space_word))
    return {};
  const Words own = words_by_row(found), other = words_by_row(wanted);
  const double common = CommonLengths(own, other).at(own.size(), other.size());
  return {rouge_n(own, other, 1), rouge_n(own, other, 2),
          f_measure(common, static_cast<double>(own.size()), static_cast<double>(other.size()))};
}

Overlap overlap_of(const std::vector<ComparedTexts>& rows, OverlapStyle style) {
  Overlap sum;
  double count = 0;
  const bool by_swift = style == OverlapStyle::kSwift;
  for (const ComparedTexts& row : rows) {
    Words found = words_for_overlap(row.found), wanted = words_for_overlap(row.wanted);
    if (by_swift) {
      std::erase(found, " ");
      std::erase(wanted, " ");
      if (found.empty() || wanted.empty()) continue;
    }
    const Rouge rouge =
        rouge_of(found, wanted, by_swift ? RougeKind::kSentences : RougeKind::kWhole);
    const double bleu = by_swift ? bleu4(found, wanted)
                                 : bleu4(characters_of(row.found), characters_of(row.wanted));
    // LLaMA-Factory rounds each row's.
    const auto figure = [&](double value) {
      return by_swift ? 100 * value : std::round(1e6 * value) / 1e4;
    };
    sum.bleu4 += figure(bleu);
    sum.rouge1 += figure(rouge.one);
    sum.rouge2 += figure(rouge.two);
    sum.rougeL += figure(rouge.longest);
    ++count;
  }
  if (count == 0) return {};
  return {sum.bleu4 / count, sum.rouge1 / count, sum.rouge2 / count, sum.rougeL / count};
}

}  // namespace danlu::eval
