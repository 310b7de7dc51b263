#include "grammar/mask_walk.h"

namespace danlu::grammar {

MaskWalk::MaskWalk(const Vocabulary& vocabulary, Runs::Set set, size_t node)
    : vocabulary_(vocabulary),
      sets_on_way_(vocabulary.max_depth() + 1),
      next_(node + 1),
      behind_(vocabulary.nodes()[node].behind) {
  sets_on_way_[vocabulary.nodes()[node].depth] = set;
}

}  // namespace danlu::grammar
