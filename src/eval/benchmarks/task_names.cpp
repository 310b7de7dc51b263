#include "eval/benchmarks/task_names.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>
#include <set>

#include "base/lower_case.h"
#include "base/nearest_name.h"

namespace danlu::eval {
namespace {

constexpr size_t kMostNames = 3;

bool is_mark(char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }

/// "ceval-valid_law" -> ceval, valid, law.
std::vector<std::string> words_of_name(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : lower_case(name)) {
    if (!is_mark(c)) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::string without_marks(const std::string& name) {
  std::string out;
  for (const std::string& word : words_of_name(name)) out += word;
  return out;
}

bool has_all_words(const std::string& name, const std::vector<std::string>& wanted) {
  const std::vector<std::string> words = words_of_name(name);
  return std::ranges::all_of(wanted, [&](const std::string& word) {
    return std::ranges::find(words, word) != words.end();
  });
}

/// The known names for which `is_meant` holds, the shortest first, each once.
std::vector<std::string> those(const std::vector<std::string>& known,
                               const std::function<bool(const std::string&)>& is_meant) {
  std::vector<std::string> found;
  std::set<std::string> seen;
  for (const std::string& name : known) {
    if (is_meant(name) && seen.insert(name).second) found.push_back(name);
  }
  std::ranges::stable_sort(found, {}, &std::string::size);
  found.resize(std::min(found.size(), kMostNames));
  return found;
}

/// The longest that is the beginning of `words`: "mmlu" of "mmlu_flan_n_shot".
std::vector<std::string> beginning_of(const std::vector<std::string>& words,
                                      const std::vector<std::string>& known) {
  for (size_t count = words.size(); count-- > 1;) {
    const std::vector<std::string> first(words.begin(), words.begin() + std::ptrdiff_t(count));
    const auto found =
        std::ranges::find_if(known, [&](const auto& one) { return words_of_name(one) == first; });
    if (found != known.end()) return {*found};
  }
  return {};
}

}  // namespace

std::vector<std::string> likely_names(const std::string& name,
                                      const std::vector<std::string>& known) {
  const std::vector<std::string> words = words_of_name(name);
  if (words.empty()) return {};
  const std::string plain = without_marks(name);
  if (auto same = those(known, [&](const auto& one) { return without_marks(one) == plain; });
      !same.empty())
    return same;
  if (words.size() > 1) {
    if (auto longer = those(known, [&](const auto& one) { return has_all_words(one, words); });
        !longer.empty())
      return longer;
  }
  if (const std::optional<std::string> nearest = nearest_name(name, known)) return {*nearest};
  if (plain.size() >= 3) {
    if (auto begun =
            those(known, [&](const auto& one) { return without_marks(one).starts_with(plain); });
        !begun.empty())
      return begun;
  }
  return beginning_of(words, known);
}

}  // namespace danlu::eval
