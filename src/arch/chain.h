// arch/chain.h: the order in which a pass goes through a model. A place says where in that chain a
// pass is, and so which parameters it needs.
#pragma once
#include <cstdint>

#include "arch/model_config.h"

namespace danlu::arch {

/// A vision tower has the first places: the patches, each block, the merger. Then comes the
/// embedding, which also puts the pictures in, then each layer, and last the final norm with the
/// head. Without a tower the embedding is place 0.
struct Chain {
  int64_t blocks = -1;  ///< of the tower; -1: there is none
  int64_t layers = 0;   ///< of the decoder

  bool has_tower() const { return blocks >= 0; }
  int64_t patches() const { return 0; }
  int64_t block(int64_t number) const { return 1 + number; }
  int64_t merger() const { return 1 + blocks; }
  int64_t embedding() const { return has_tower() ? merger() + 1 : 0; }
  int64_t layer(int64_t number) const { return embedding() + 1 + number; }
  int64_t head() const { return layer(layers); }
  int64_t size() const { return head() + 1; }
  bool is_in_tower(int64_t place) const { return place < embedding(); }
};

inline Chain chain_of(const ModelConfig& config) {
  return {config.vision ? config.vision->depth : -1, config.num_layers};
}

}  // namespace danlu::arch
