// grammar/mask_walk.h: the way through a vocabulary's tree that finds the tokens which may come.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/runs.h"
#include "grammar/vocabulary.h"

namespace danlu::grammar {

/// A bit for each id, as text::TokenConstraint::allowed gives them.
using Mask = std::vector<uint64_t>;

inline void allow(text::TokenId id, Mask& mask) { mask[id / 64] |= uint64_t{1} << (id % 64); }
inline void allow(std::span<const text::TokenId> ids, Mask& mask) {
  for (const text::TokenId id : ids) allow(id, mask);
}

/// Allows the tokens at and below a node, at which a set was reached, as far as the set goes on.
/// May pause at any node.
class MaskWalk {
 public:
  MaskWalk(const Vocabulary& vocabulary, Runs::Set set, size_t node);

  /// Visits nodes until all were, or is_enough(), which is asked before each, says so. True: all
  /// were. Where a call out of sight returns, `open` takes the node instead of its tokens.
  template <typename IsEnough>
  bool go_on(Runs& runs, Mask& mask, std::vector<uint32_t>* open, const IsEnough& is_enough) {
    const auto& nodes = vocabulary_.nodes();
    while (next_ < behind_) {
      if (is_enough()) return false;
      const Vocabulary::Node& at = nodes[next_];
      const Runs::Set reached = runs.step(sets_on_way_[at.depth - 1], at.byte);
      if (reached == Runs::kNothing) {
        next_ = at.behind;
      } else if (open && runs.returns(reached)) {
        open->push_back(static_cast<uint32_t>(next_));
        next_ = at.behind;
      } else {
        sets_on_way_[at.depth] = reached;
        allow(vocabulary_.tokens_at(next_), mask);
        ++next_;
      }
    }
    return true;
  }

 private:
  const Vocabulary& vocabulary_;
  std::vector<Runs::Set> sets_on_way_;  ///< by depth
  size_t next_, behind_;
};

}  // namespace danlu::grammar
