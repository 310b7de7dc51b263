#include "grammar/pattern_text.h"

#include <set>
#include <utility>
#include <vector>

#include "grammar/regex.h"
#include "grammar/runs.h"

namespace danlu::grammar {
namespace {

Automaton automaton_of(const std::string& pattern) {
  AutomatonBuilder builder;
  const Rule root = builder.add_rule();
  add_regex(builder, root.begin, root.end, pattern, RegexUse::kSearch, Spelling::kPlain);
  return std::move(builder).finish(root);
}

}  // namespace

bool matches(const std::string& pattern, const std::string& text) {
  const Automaton automaton = automaton_of(pattern);
  Runs runs(automaton);
  Runs::Set at = runs.start();
  for (const char c : text) {
    at = runs.step(at, static_cast<uint8_t>(c));
    if (at == Runs::kNothing) return false;
  }
  return runs.may_end(at);
}

bool have_common_text(const std::string& a, const std::string& b) {
  constexpr size_t kMostPairs = 2000;
  const Automaton of_a = automaton_of(a), of_b = automaton_of(b);
  Runs runs_a(of_a), runs_b(of_b);
  std::set<std::pair<Runs::Set, Runs::Set>> known = {{runs_a.start(), runs_b.start()}};
  std::vector<std::pair<Runs::Set, Runs::Set>> todo(known.begin(), known.end());
  while (!todo.empty()) {
    const auto [at_a, at_b] = todo.back();
    todo.pop_back();
    if (runs_a.may_end(at_a) && runs_b.may_end(at_b)) return true;
    for (int byte = 0; byte < 256; ++byte) {
      const Runs::Set next_a = runs_a.step(at_a, static_cast<uint8_t>(byte));
      if (next_a == Runs::kNothing) continue;
      const Runs::Set next_b = runs_b.step(at_b, static_cast<uint8_t>(byte));
      if (next_b == Runs::kNothing || !known.emplace(next_a, next_b).second) continue;
      if (known.size() > kMostPairs) return true;
      todo.emplace_back(next_a, next_b);
    }
  }
  return false;
}

}  // namespace danlu::grammar
