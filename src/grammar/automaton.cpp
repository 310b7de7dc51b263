#include "grammar/automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

#include "text/tokenizer/utf8.h"

namespace danlu::grammar {
namespace {

constexpr uint32_t kUnreachable = UINT32_MAX;

/// Counting sort of edges by where they begin.
template <typename Edge, typename Kept, typename Make>
void sort_edges(const std::vector<Edge>& edges, size_t num_states, std::vector<uint32_t>& begins,
                std::vector<Kept>& kept, const Make& make) {
  begins.assign(num_states + 1, 0);
  for (const Edge& edge : edges) ++begins[edge.from + 1];
  for (size_t s = 0; s < num_states; ++s) begins[s + 1] += begins[s];
  std::vector<uint32_t> next(begins.begin(), begins.end() - 1);
  kept.resize(edges.size());
  for (const Edge& edge : edges) kept[next[edge.from]++] = make(edge);
}

}  // namespace

State AutomatonBuilder::add_state() {
  if (is_end_.size() >= kMaxStates) {
    throw GrammarError(tr("the constraint is too large: it needs more than {} states", kMaxStates),
                       tr("lower counts such as maxItems, maxLength or {{n,m}}"));
  }
  is_end_.push_back(false);
  return static_cast<State>(is_end_.size() - 1);
}

Rule AutomatonBuilder::add_rule() {
  const Rule rule{add_state(), add_state()};
  is_end_[rule.end] = true;
  rules_.push_back(rule);
  return rule;
}

void AutomatonBuilder::check_edges() const {
  if (bytes_.size() + epsilons_.size() + calls_.size() < kMaxEdges) return;
  throw GrammarError(tr("the constraint is too large: it needs more than {} edges", kMaxEdges));
}

void AutomatonBuilder::epsilon(State from, State to) {
  check_edges();
  epsilons_.push_back({from, to});
}

void AutomatonBuilder::bytes(State from, State to, uint8_t first, uint8_t last) {
  check_edges();
  bytes_.push_back({from, to, first, last});
}

void AutomatonBuilder::call(State from, State to, const Rule& rule) {
  check_edges();
  calls_.push_back({from, to, rule.begin});
}

void AutomatonBuilder::literal(State from, State to, std::string_view text) {
  if (text.empty()) return epsilon(from, to);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const State next = i + 1 == text.size() ? to : add_state();
    bytes(from, next, byte, byte);
    from = next;
  }
}

void AutomatonBuilder::words(State from, State to, std::span<const std::string> texts) {
  std::map<std::pair<State, uint8_t>, State> next;
  for (const std::string& text : texts) {
    State at = from;
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      const auto [place, is_new] = next.try_emplace({at, byte}, 0);
      if (is_new) {
        place->second = add_state();
        bytes(at, place->second, byte, byte);
      }
      at = place->second;
    }
    epsilon(at, to);
  }
}

void AutomatonBuilder::byte_ranges(State from, State to,
                                   std::span<const std::pair<uint8_t, uint8_t>> ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const State next = i + 1 == ranges.size() ? to : add_state();
    bytes(from, next, ranges[i].first, ranges[i].second);
    from = next;
  }
}

/// Splits until each byte of the spellings is a range of its own.
void AutomatonBuilder::utf8_range(State from, State to, char32_t first, char32_t last) {
  for (const char32_t border : {U'\x7F', U'\x7FF', char32_t(0xFFFF)}) {
    if (first <= border && last > border) {
      utf8_range(from, to, first, border);
      return utf8_range(from, to, border + 1, last);
    }
  }
  for (const char32_t low : {char32_t(0x3F), char32_t(0xFFF), char32_t(0x3FFFF)}) {
    if (last < 0x80 || (first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      utf8_range(from, to, first, first | low);
      return utf8_range(from, to, (first | low) + 1, last);
    }
    if ((last & low) != low) {
      utf8_range(from, to, first, (last & ~low) - 1);
      return utf8_range(from, to, last & ~low, last);
    }
  }
  std::string low, high;
  text::append_utf8(first, low);
  text::append_utf8(last, high);
  std::vector<std::pair<uint8_t, uint8_t>> ranges;
  for (size_t i = 0; i < low.size(); ++i)
    ranges.emplace_back(static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i]));
  byte_ranges(from, to, ranges);
}

void AutomatonBuilder::characters(State from, State to, const CharSet& set, Spelling spelling) {
  static const CharSet kTag = {{'<', '<'}};
  static const CharSet kEscaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  static const CharSet kEscapedInTags = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {'<', '<'}};
  const CharSet& special = spelling == Spelling::kTaggedJson ? kEscapedInTags : kEscaped;
  const CharSet plain = is_json(spelling)               ? set.without(special)
                        : spelling == Spelling::kTagged ? set.without(kTag)
                                                        : set;
  for (const CharSet::Range& range : plain.ranges()) utf8_range(from, to, range.first, range.last);
  if (!is_json(spelling)) return;
  std::vector<std::string> escapes;
  const CharSet escaped = set.common(special);
  for (const CharSet::Range& range : escaped.ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      static constexpr std::string_view kNamed = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
      const size_t named = kNamed.find(static_cast<char>(c));
      if (named != std::string_view::npos) {
        escapes.push_back(std::string("\\") + kNames[named]);
      } else {
        escapes.push_back(fmt::format("\\u{:04x}", static_cast<uint32_t>(c)));
      }
    }
  }
  if (!escapes.empty()) words(from, to, escapes);
}

Automaton AutomatonBuilder::finish(const Rule& root) && {
  Automaton result;
  const size_t size = is_end_.size();
  sort_edges(bytes_, size, result.byte_begin_, result.bytes_,
             [](const Edge& e) { return Automaton::ByteEdge{e.first, e.last, e.to}; });
  sort_edges(epsilons_, size, result.epsilon_begin_, result.epsilons_,
             [](const Edge& e) { return e.to; });
  sort_edges(calls_, size, result.call_begin_, result.calls_,
             [](const CallEdge& e) { return Automaton::Call{e.begin, e.to}; });
  result.is_end_ = std::move(is_end_);
  result.begin_ = root.begin;
  refuse_left_recursion(result, rules_);
  find_calls_needed(result);
  const uint32_t needed = result.calls_needed(root.begin);
  if (needed == kUnreachable) throw GrammarError(tr("no text satisfies the constraint"));
  if (needed > kMaxCalls) {
    throw GrammarError(tr("the constraint needs parts nested {} deep; at most {} are followed",
                          needed, kMaxCalls));
  }
  return result;
}

/// Dijkstra's order: of all states the one that needs least is settled next. A call is settled when
/// both what it calls and what follows it are (Knuth's generalisation).
void AutomatonBuilder::find_calls_needed(Automaton& automaton) {
  const size_t size = automaton.size();
  std::vector<uint32_t>& needed = automaton.calls_needed_;
  needed.assign(size, kUnreachable);
  struct Back {
    State from, to;
  };
  struct BackCall {
    State from, to, begin, back;
  };
  std::vector<Back> edges;
  std::vector<BackCall> calls;
  for (State s = 0; s < size; ++s) {
    for (const auto& edge : automaton.bytes(s)) edges.push_back({edge.to, s});
    for (const State to : automaton.epsilons(s)) edges.push_back({to, s});
    for (const auto& call : automaton.calls(s)) {
      calls.push_back({call.begin, s, call.begin, call.back});
      calls.push_back({call.back, s, call.begin, call.back});
    }
  }
  std::vector<uint32_t> edge_begin, call_begin;
  std::vector<Back> sorted_edges;
  std::vector<BackCall> sorted_calls;
  sort_edges(edges, size, edge_begin, sorted_edges, [](const Back& e) { return e; });
  sort_edges(calls, size, call_begin, sorted_calls, [](const BackCall& e) { return e; });

  using Entry = std::pair<uint32_t, State>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const auto offer = [&](State s, uint32_t value) {
    if (value >= needed[s]) return;
    needed[s] = value;
    queue.emplace(value, s);
  };
  for (State s = 0; s < size; ++s) {
    if (automaton.is_end(s)) offer(s, 0);
  }
  std::vector<bool> settled(size, false);
  while (!queue.empty()) {
    const auto [value, s] = queue.top();
    queue.pop();
    if (settled[s]) continue;
    settled[s] = true;
    automaton.most_calls_needed_ = std::max(automaton.most_calls_needed_, value);
    for (uint32_t i = edge_begin[s]; i < edge_begin[s + 1]; ++i) offer(sorted_edges[i].to, value);
    for (uint32_t i = call_begin[s]; i < call_begin[s + 1]; ++i) {
      const BackCall& call = sorted_calls[i];
      if (settled[call.begin] && settled[call.back])
        offer(call.to, std::max(needed[call.begin] + 1, needed[call.back]));
    }
  }
}

/// A rule that calls itself before a byte was read would be called for ever.
void AutomatonBuilder::refuse_left_recursion(const Automaton& automaton,
                                             const std::vector<Rule>& rules) {
  std::unordered_map<State, size_t> index;
  for (size_t r = 0; r < rules.size(); ++r) index[rules[r].begin] = r;
  std::vector<bool> may_be_empty(rules.size(), false);
  std::vector<std::vector<size_t>> first_calls(rules.size());
  const auto walk = [&](size_t r) {
    bool empty = false;
    first_calls[r].clear();
    std::vector<State> todo = {rules[r].begin};
    std::unordered_map<State, bool> seen = {{rules[r].begin, true}};
    const auto go = [&](State s) {
      if (seen.try_emplace(s, true).second) todo.push_back(s);
    };
    while (!todo.empty()) {
      const State s = todo.back();
      todo.pop_back();
      empty = empty || s == rules[r].end;
      for (const State to : automaton.epsilons(s)) go(to);
      for (const auto& call : automaton.calls(s)) {
        const size_t callee = index.at(call.begin);
        first_calls[r].push_back(callee);
        if (may_be_empty[callee]) go(call.back);
      }
    }
    return empty;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t r = 0; r < rules.size(); ++r) {
      if (!walk(r) || may_be_empty[r]) continue;
      may_be_empty[r] = true;
      changed = true;
    }
  }
  // Depth first without recursion: 1 is on the way, 2 is done.
  std::vector<uint8_t> mark(rules.size(), 0);
  for (size_t root = 0; root < rules.size(); ++root) {
    std::vector<std::pair<size_t, size_t>> way;
    if (mark[root] == 0) way.emplace_back(root, 0);
    while (!way.empty()) {
      auto& [rule, next] = way.back();
      mark[rule] = 1;
      if (next == first_calls[rule].size()) {
        mark[rule] = 2;
        way.pop_back();
        continue;
      }
      const size_t callee = first_calls[rule][next++];
      if (mark[callee] == 1) {
        throw GrammarError(
            tr("the constraint refers to itself without anything in between, for ever"));
      }
      if (mark[callee] == 0) way.emplace_back(callee, 0);
    }
  }
}

}  // namespace danlu::grammar
