// plan/layer_memory.h: bytes of one micro-batch at one place of the chain, on a rank: what it keeps
// for its backward, and what exists beside that while it runs.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "arch/parameter_list.h"
#include "plan/request.h"

namespace danlu::plan {

/// a / b, rounded up.
inline int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// What training does with a parameter of the model.
struct Use {
  bool is_trained = true;
  int64_t adapter_rank = 0;  ///< 0: it has none
  bool learns() const { return is_trained || adapter_rank > 0; }
};
using Uses = std::map<std::string, Use>;
Uses uses_of(const Request& request);

/// The model's parameters. Where all experts of a layer are trained alike, the first of them stands
/// for all: a model of 60 layers and 256 experts has 44,000 parameters.
struct Listing {
  std::vector<arch::ParamSpec> specs;
  int64_t experts_each = 1;  ///< of a rank's experts, how many each listed one stands for
};
Listing listing_of(const Request& request);

/// Whether something of the vision tower is trained, or adapted.
bool tower_learns(const Request& request);

/// Whether hidden states are multiplied by the parameter.
bool is_product(const arch::ParamSpec& spec);

/// Bytes of the tensors of one layer and one micro-batch, on a rank.
struct Sizes {
  int64_t tokens = 0;
  int64_t head_dim = 0, value_dim = 0;  ///< of a query and a key; of a value
  int64_t rows = 0;    ///< a hidden state between regions, where tensor ranks may have a part each
  int64_t inside = 0;  ///< the same inside a region
  int64_t query = 0, key = 0, value = 0, ffn = 0;
  int64_t seen = 0;  ///< what attention gives
  /// Keys and values of the heads that attention meets: at least one for each of the ranks that
  /// exchange heads.
  int64_t met_key = 0, met_value = 0;
  int64_t q_short = 0, kv_short = 0;  ///< the short vectors of latent attention
  /// In f32: what a norm keeps of each row; a number of each row and head; a query, a key and a
  /// value.
  int64_t stats = 0, per_head = 0, wide_qkv = 0;
  /// Keys' and values' gradients of the parts of groups of heads but one.
  int64_t wide_parts = 0;
  int64_t scores = 0;   ///< of one sample in f32, where scores are capped
  int64_t set = 0;      ///< tokens that see each other
  bool is_cut = false;  ///< tensor ranks have a part of the rows each
  bool is_gated = true;
  bool is_fused = false;  ///< one product gives queries, keys and values
  bool norms_heads = false;
  bool is_latent = false;
  bool norms_results = false;  ///< what attention and the MLP give
  bool exchanges_heads = false;
  /// Bytes of linear attention and of gates of attention: what else is kept, and what there is
  /// beside that at once in backward.
  int64_t kept_beside = 0, backward_beside = 0;
};
/// layer: -1: one with attention over keys.
Sizes layer_sizes(const Request& request, int64_t layer = -1);
/// The sizes of the tower's blocks. REQUIRES: the model has one.
Sizes block_sizes(const Request& request, int64_t block = 0);

/// What one place keeps for its backward, and what exists beside that at once while it runs.
struct LayerBytes {
  int64_t kept = 0, backward = 0;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min() / 2;
  int64_t early = kNever;  ///< as `backward`, before experts have gradients
  int64_t experts = 0;     ///< of `gradients`, what is not there then
  int64_t passing = 0;     ///< in a forward that keeps nothing
  int64_t later = 0;       ///< kept for weights' gradients that are made later
  int64_t gone = 0;        ///< of `kept`, elsewhere between forward and backward
  int64_t gradients = 0;
};
/// specs: of listing_of().
LayerBytes layer_bytes(const Request& request, const Uses& uses,
                       const std::vector<arch::ParamSpec>& specs, int64_t layer,
                       settings::LayerRecompute kind);
LayerBytes block_bytes(const Request& request, const Uses& uses,
                       const std::vector<arch::ParamSpec>& specs, int64_t block,
                       settings::LayerRecompute kind);
LayerBytes merger_bytes(const Request& request, const Uses& uses,
                        const std::vector<arch::ParamSpec>& specs);
LayerBytes patches_bytes(const Request& request);
/// The same of places that no gradient goes through.
LayerBytes passing_layer_bytes(const Request& request, int64_t layer);
LayerBytes passing_block_bytes(const Request& request, int64_t block);
LayerBytes passing_merger_bytes(const Request& request);
/// Pixels that are there while a stage that begins with them goes forward, if nobody keeps them.
int64_t pixel_bytes(const Request& request);
/// What the tower gives to the tokens of pictures.
int64_t visual_bytes(const Request& request);

/// What a stage that begins at that place receives, on each rank of the tensor axis.
int64_t bytes_before(const Request& request, const arch::Chain& chain, int64_t place);

/// What there is at once where the loss is made, beside what the layers keep.
int64_t head_bytes(const Request& request);
/// Bytes of a micro-batch under way in a stage: angles of the positions, what ranks are given as
/// integers.
int64_t pass_bytes(const Request& request);
int64_t tower_pass_bytes(const Request& request);

}  // namespace danlu::plan
