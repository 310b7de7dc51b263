// plan/layer_time.h: what a layer, an embedding and a head take on a device, from the shapes of
// their products, the bytes that the rest moves, and the figures of a machine.
//
// A product takes its operations at the reachable share of the peak, a last wave of tiles that is
// half empty on average, and the writing of the result, which nothing hides; never less than the
// bytes it reads, nor than it takes to issue. All other operations take the bytes they move.
#pragma once
#include "plan/machine.h"
#include "plan/memory.h"

namespace danlu::plan {

/// What of a program shows in its times and not in a Request. The defaults are Danlu's.
struct ProgramTraits {
  bool keeps_scores = false;  ///< no fused attention: scores go through memory, masked ones too
  bool drops = false;         ///< dropout after attention, MLP and on scores
  /// Several operations, each of which goes through memory, in place of one.
  bool gates_in_steps = false, rotates_in_steps = false;
  bool wide_loss = false;   ///< logits as f32 through every operation of the loss
  bool adds_apart = false;  ///< weights' gradients are made, then added to the step's sum
  /// In a layer's backward, exchanges of the tensor axis go beside the weights' gradients.
  bool hides_exchanges = false;
  bool repeats_attention_alone = false;  ///< selective recompute: not the gated product
};

/// Seconds of one micro-batch on a rank of one layer; exchanges apart.
struct LayerTimes {
  double attention = 0;  ///< of `forward`: the core
  double gated = 0;      ///< of `forward`: the gated activation, and the product after it
  double products = 0;   ///< of `forward`: matrix products
  double activation = 0, norms = 0;  ///< of `forward`
  double forward = 0;
  double backward_input = 0, backward_weight = 0;
  double attention_back = 0, products_back = 0;  ///< of `backward_input`
};
/// `keys`: that a token sees at most (its window, or all before it). sparse: of a layer with
/// experts, on the rank that is given the most rows.
LayerTimes layer_times(const Request& request, const Machine& machine, const ProgramTraits& program,
                       int64_t keys, bool sparse = false);

/// The times of a layer of its own kind: its products alone, at the share of the peak that large
/// ones reach.
LayerTimes own_layer_times(const Request& request, const Machine& machine,
                           const arch::LayerKind& kind);

/// What a part of a vision tower has to do in a backward.
struct TowerBackward {
  bool goes_through = false;  ///< something in or before it is trained
  bool trains = false;        ///< its own weights are
};
/// A block of the vision tower; `keys`: patches that a patch sees.
LayerTimes block_times(const Request& request, const Machine& machine, int64_t keys,
                       const TowerBackward& backward);
/// The patches' product, and the merger's two with what stands between them.
LayerTimes patches_times(const Request& request, const Machine& machine,
                         const TowerBackward& backward);
LayerTimes merger_times(const Request& request, const Machine& machine,
                        const TowerBackward& backward);

struct EndTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double products = 0;  ///< of all of them
};
EndTimes embedding_times(const Request& request, const Machine& machine);
/// The times of making the input of a layer that predicts further ahead, without the table's rows.
EndTimes joining_times(const Request& request, const Machine& machine,
                       const ProgramTraits& program);
/// The times of the head, with the final norm and the loss.
EndTimes head_times(const Request& request, const Machine& machine, const ProgramTraits& program);

/// A product of [rows, inner] with [inner, columns], `batch` times.
struct Product {
  double rows = 0, columns = 0, inner = 0;
  double batch = 1;
  double result_bytes = 2;  ///< an element
};
double product_seconds(const Product& product, const Machine& machine, double peak, double width);

}  // namespace danlu::plan
