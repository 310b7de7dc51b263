#include "grammar/runs.h"

#include <algorithm>
#include <unordered_set>

#include "base/rng.h"

namespace danlu::grammar {
namespace {

/// Depths that rebased sets are told apart by: one set serves all within such a step.
constexpr uint32_t kDepthStep = 16;

}  // namespace

Runs::Runs(const Automaton& automaton) : automaton_(automaton) { clear(); }

void Runs::clear() {
  frames_.clear();
  frame_of_.clear();
  outermost_.clear();
  sets_.clear();
  set_of_hash_.clear();
  frames_.push_back({0, 0, 0});
  Reached first;
  std::vector<Place> todo = {{automaton_.begin(), 0}};
  follow(todo, first);
  start_ = number_of(std::move(first));
}

uint32_t Runs::frame(State back, uint32_t around, uint32_t depth) {
  const uint64_t key = static_cast<uint64_t>(around) << 32 | back;
  const auto [place, is_new] = frame_of_.try_emplace(key, static_cast<uint32_t>(frames_.size()));
  if (is_new) frames_.push_back({back, around, depth});
  return place->second;
}

uint32_t Runs::outermost_at(uint32_t depth) {
  const auto [place, is_new] = outermost_.try_emplace(depth, static_cast<uint32_t>(frames_.size()));
  if (is_new) frames_.push_back({0, place->second, depth});
  return place->second;
}

/// Everything that can be reached from `todo` without a byte.
void Runs::follow(std::vector<Place>& todo, Reached& out) {
  std::unordered_set<uint64_t> seen;
  const auto go = [&](State state, uint32_t stack) {
    if (automaton_.calls_needed(state) > kMaxCalls - std::min(kMaxCalls, frames_[stack].depth))
      return;
    if (seen.insert(static_cast<uint64_t>(stack) << 32 | state).second)
      todo.push_back({state, stack});
  };
  for (const Place& place : std::exchange(todo, {})) go(place.state, place.stack);
  // The last of the list first, so that ways are gone in the order in which they were written.
  std::reverse(todo.begin(), todo.end());
  for (size_t followed = 0; !todo.empty(); ++followed) {
    const Place place = todo.back();
    todo.pop_back();
    if (followed == kMaxFollowed) break;
    ++work_;
    if (automaton_.is_end(place.state)) {
      if (!is_outermost(place.stack)) {
        go(frames_[place.stack].back, frames_[place.stack].around);
      } else if (place.stack == 0) {
        out.may_end = true;
      } else {
        out.returns = true;
      }
      continue;
    }
    if (!automaton_.bytes(place.state).empty() && out.places.size() < kMaxPlaces)
      out.places.push_back(place);
    const auto epsilons = automaton_.epsilons(place.state);
    for (size_t i = epsilons.size(); i-- > 0;) go(epsilons[i], place.stack);
    const uint32_t depth = frames_[place.stack].depth;
    const auto calls = automaton_.calls(place.state);
    for (size_t i = calls.size(); i-- > 0;) {
      const auto& call = calls[i];
      const uint32_t needed = std::max(automaton_.calls_needed(call.begin) == UINT32_MAX
                                           ? UINT32_MAX
                                           : automaton_.calls_needed(call.begin) + 1,
                                       automaton_.calls_needed(call.back));
      if (depth < kMaxCalls && needed <= kMaxCalls - depth)
        go(call.begin, frame(call.back, place.stack, depth + 1));
    }
  }
  std::sort(out.places.begin(), out.places.end());
}

Runs::Set Runs::number_of(Reached reached) {
  if (reached.places.empty() && !reached.may_end && !reached.returns) return kNothing;
  uint64_t hash = mix64(reached.may_end * 2 + reached.returns, reached.places.size());
  for (const Place& place : reached.places)
    hash = mix64(hash, static_cast<uint64_t>(place.stack) << 32 | place.state);
  const auto [first, last] = set_of_hash_.equal_range(hash);
  for (auto known = first; known != last; ++known) {
    const Reached& other = sets_[known->second];
    if (other.places == reached.places && other.may_end == reached.may_end &&
        other.returns == reached.returns) {
      return known->second;
    }
  }
  sets_.push_back(std::move(reached));
  const Set number = static_cast<Set>(sets_.size() - 1);
  set_of_hash_.emplace(hash, number);
  return number;
}

Runs::Set Runs::step(Set set, uint8_t byte) {
  if (set == kNothing) return kNothing;
  if (!sets_[set].next) {
    sets_[set].next = std::make_unique<std::array<Set, 256>>();
    sets_[set].next->fill(kUnknown);
  }
  const Set known = (*sets_[set].next)[byte];
  if (known != kUnknown) return known;
  std::vector<Place> todo;
  for (const Place& place : sets_[set].places) {
    for (const auto& edge : automaton_.bytes(place.state)) {
      if (edge.first <= byte && byte <= edge.last) todo.push_back({edge.to, place.stack});
    }
  }
  work_ += sets_[set].places.size();
  Reached reached;
  if (!todo.empty()) follow(todo, reached);
  const Set result = number_of(std::move(reached));
  (*sets_[set].next)[byte] = result;
  return result;
}

std::shared_ptr<const Runs::Written> Runs::written(Set set) {
  Reached& reached = sets_[set];
  if (reached.written) return reached.written;
  auto result = std::make_shared<Written>();
  result->may_end = reached.may_end;
  for (const Place& place : reached.places) {
    Written::Place& out = result->places.emplace_back();
    out.state = place.state;
    for (uint32_t stack = place.stack; !is_outermost(stack); stack = frames_[stack].around)
      out.backs.push_back(frames_[stack].back);
    work_ += 1 + out.backs.size();
  }
  reached.written = result;
  return result;
}

Runs::Set Runs::read(const Written& written) {
  Reached reached;
  reached.may_end = written.may_end;
  for (const Written::Place& place : written.places) {
    uint32_t stack = 0;
    for (size_t i = place.backs.size(); i-- > 0;)
      stack = frame(place.backs[i], stack, frames_[stack].depth + 1);
    reached.places.push_back({place.state, stack});
  }
  std::sort(reached.places.begin(), reached.places.end());
  work_ += reached.places.size();
  return number_of(std::move(reached));
}

/// The innermost call that all places are inside of, or that they stand in.
uint32_t Runs::shared_frame(std::span<const Place> places) const {
  uint32_t shared = places.front().stack;
  for (const Place& place : places) {
    uint32_t other = place.stack;
    while (shared != other) {
      uint32_t& deeper = frames_[shared].depth > frames_[other].depth ? shared : other;
      if (is_outermost(deeper)) return 0;
      deeper = frames_[deeper].around;
    }
  }
  return shared;
}

uint32_t Runs::moved(uint32_t stack, uint32_t from, uint32_t to) {
  std::vector<State> backs;
  for (; stack != from; stack = frames_[stack].around) backs.push_back(frames_[stack].back);
  for (size_t i = backs.size(); i-- > 0;) to = frame(backs[i], to, frames_[to].depth + 1);
  return to;
}

Runs::Set Runs::rebased(Set set) {
  const Reached& reached = sets_[set];
  if (reached.may_end || reached.returns || reached.places.empty()) return kNothing;
  const uint32_t shared = shared_frame(reached.places);
  if (is_outermost(shared)) return kNothing;
  const uint32_t depth = (frames_[shared].depth + kDepthStep - 1) / kDepthStep * kDepthStep;
  uint32_t above = 0;
  for (const Place& place : reached.places)
    above = std::max(above, frames_[place.stack].depth - frames_[shared].depth);
  // Rounding must not shut a way that is open.
  if (depth + above + automaton_.most_calls_needed() > kMaxCalls) return kNothing;
  const uint32_t to = outermost_at(depth);
  Reached moved_set;
  for (const Place& place : std::vector<Place>(reached.places))
    moved_set.places.push_back({place.state, moved(place.stack, shared, to)});
  std::sort(moved_set.places.begin(), moved_set.places.end());
  work_ += (above + 1) * moved_set.places.size();
  return number_of(std::move(moved_set));
}

}  // namespace danlu::grammar
