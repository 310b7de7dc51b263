#include "data/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/rng.h"

namespace danlu::data {
namespace {

/// Packs one window: longest first, each into the fullest group that still takes it.
void pack_window(std::span<int64_t> window, std::span<const int32_t> lengths, int64_t capacity,
                 Packs* packs) {
  std::stable_sort(window.begin(), window.end(), [&](int64_t a, int64_t b) {
    return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
  });
  std::vector<std::vector<int64_t>> groups;
  std::multimap<int64_t, size_t> room;  // tokens left -> group
  for (const int64_t sample : window) {
    const int64_t length = lengths[static_cast<size_t>(sample)];
    const auto fit = room.lower_bound(length);
    size_t group = groups.size();
    int64_t left = capacity - length;
    if (fit == room.end()) {
      groups.emplace_back();
    } else {
      group = fit->second;
      left = fit->first - length;
      room.erase(fit);
    }
    groups[group].push_back(sample);
    if (left > 0) room.emplace(left, group);
  }
  for (const auto& group : groups) {
    packs->samples.insert(packs->samples.end(), group.begin(), group.end());
    packs->starts.push_back(static_cast<int64_t>(packs->samples.size()));
  }
}

}  // namespace

Packs pack_greedy(std::span<const int32_t> lengths, int64_t capacity) {
  std::map<int64_t, std::vector<int64_t>> by_length;
  for (size_t i = 0; i < lengths.size(); ++i) {
    by_length[lengths[i]].push_back(static_cast<int64_t>(i));
  }
  Packs packs;
  packs.samples.reserve(lengths.size());
  while (!by_length.empty()) {
    for (int64_t room = capacity;;) {
      auto fit = by_length.upper_bound(room);
      if (fit == by_length.begin()) break;
      --fit;
      room -= fit->first;
      packs.samples.push_back(fit->second.back());
      fit->second.pop_back();
      if (fit->second.empty()) by_length.erase(fit);
    }
    packs.starts.push_back(static_cast<int64_t>(packs.samples.size()));
  }
  return packs;
}

Packs pack_best_fit(std::span<const int32_t> lengths, int64_t capacity, uint64_t seed,
                    int64_t window) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  NumpyRandomState random(static_cast<uint32_t>(mix64(seed, 0)));
  random.shuffle(std::span(order));
  Packs packs;
  packs.samples.reserve(lengths.size());
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(window)) {
    const size_t count = std::min(static_cast<size_t>(window), order.size() - begin);
    pack_window(std::span(order).subspan(begin, count), lengths, capacity, &packs);
  }
  return packs;
}

}  // namespace danlu::data
