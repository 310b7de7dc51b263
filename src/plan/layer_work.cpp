#include "plan/layer_work.h"

#include <algorithm>

#include "arch/attention_size.h"
#include "arch/gated_delta.h"

namespace danlu::plan {

double LayerWork::of(settings::LayerRecompute kind) const {
  using settings::LayerRecompute;
  switch (kind) {
    case LayerRecompute::kNone:
      return 0;
    case LayerRecompute::kNorm:
      return norms;
    case LayerRecompute::kActivationFunction:
      return activation;
    case LayerRecompute::kNormAndActivation:
      return norms + activation;
    case LayerRecompute::kSelective:
      return core + activation + down;
    case LayerRecompute::kFull:
      return products + core + norms + activation;
  }
  return 0;
}

int64_t patches_seen(const Request& request, int64_t block) {
  const arch::VisionConfig& vision = *request.model.vision;
  const int64_t frame = request.frame_patches > 0 ? request.frame_patches : request.patches;
  const int64_t side = vision.window_size / vision.patch_size;
  return vision.sees_frame(block) ? frame : std::min(frame, side * side);
}

LayerWork block_work(const Request& request, int64_t block) {
  const arch::VisionConfig& vision = *request.model.vision;
  const auto patches = static_cast<double>(request.pass_patches()),
             tensor = static_cast<double>(request.mesh.tensor),
             width = static_cast<double>(vision.width), ffn = static_cast<double>(vision.ffn_size);
  LayerWork work;
  work.down = 2 * patches * width * ffn / tensor;
  work.products = (vision.is_gated ? 3 : 2) * work.down + 2 * patches * width * 4 * width / tensor;
  work.core = 4 * patches * static_cast<double>(patches_seen(request, block)) * width / tensor;
  work.norms = 2 * 4 * patches * width;
  work.activation = 5 * patches * ffn / tensor;
  return work;
}

double around_blocks(const Request& request) {
  const arch::VisionConfig& vision = *request.model.vision;
  const auto patches = static_cast<double>(request.pass_patches()),
             merged = static_cast<double>(vision.merged_width()),
             tokens = patches / static_cast<double>(vision.merge_size * vision.merge_size);
  const double pixels =
      static_cast<double>(vision.patch_columns()) * static_cast<double>(vision.width);
  const double merger = merged * (merged + static_cast<double>(request.model.hidden_size));
  return 2 * (patches * pixels + tokens * merger / static_cast<double>(request.mesh.tensor));
}

LayerWork work_of(const Request& request, int64_t layer) {
  const arch::ModelConfig& model = request.model;
  if (const arch::LayerKind* own = model.own_kind(layer)) {
    LayerWork work;
    work.products = own->cost(model, pass_of(request)).operations;
    return work;
  }
  const auto tokens = static_cast<double>(request.pass_tokens()),
             tensor = static_cast<double>(request.mesh.tensor);
  const auto real = [](int64_t number) { return static_cast<double>(number); };
  const size_t at = model.last_like(layer);
  const int64_t window = at < model.sliding_window.size() ? model.sliding_window[at] : 0;
  const bool is_cut = window > 0 && window < request.tokens;
  const double keys = is_cut ? real(window) : real(request.tokens) / 2;
  const double queries = real(model.num_heads * model.head_dim),
               seen = real(model.num_heads * arch::value_dim(model)),
               keys_and_values =
                   real(model.num_kv_heads * (model.head_dim + arch::value_dim(model)));
  const double hidden = real(model.hidden_size), ffn = real(model.ffn_size);
  LayerWork work;
  double width = ffn;  // of the feed-forward parts that a token passes, together
  if (model.is_sparse(layer)) {
    const arch::ExpertConfig& experts = model.experts;
    width = real(experts.per_token * experts.ffn_size + experts.shared_ffn_size);
    // Each rank of the tensor axis routes.
    work.products = 2 * tokens * hidden * real(experts.count + (experts.shared_gate ? 1 : 0));
  }
  work.down = 2 * tokens * hidden * width / tensor;
  work.products += (model.is_gated ? 3 : 2) * work.down;
  if (const auto delta = arch::gated_delta_of(model, layer)) {
    work.products += 2 * tokens * hidden *
                     real(delta->channels() + 2 * delta->values() + 2 * delta->value_heads);
    work.core = 8 * tokens * real(delta->values() * delta->key_dim);
    work.norms = 2 * 4 * tokens * hidden;
    work.activation = 5 * tokens * width / tensor;
    return work;
  }
  if (const auto& latent = model.latent) {
    // Each rank of the tensor axis makes the short vectors.
    const double q_rank = real(latent->q_rank), kv_rank = real(latent->kv_rank);
    const double made = real(model.num_heads * (latent->nope_dim + latent->v_dim));
    work.products +=
        2 * tokens * hidden * (q_rank + kv_rank + real(latent->rope_dim)) +
        2 * tokens * ((q_rank > 0 ? q_rank : hidden) * queries + kv_rank * made + hidden * seen) /
            tensor;
  } else {
    const double gates = arch::gates_attention(model) ? queries : 0;
    work.products += 2 * tokens * hidden * (queries + gates + keys_and_values + seen) / tensor;
  }
  work.core = 2 * tokens * keys * (queries + seen) / tensor;
  // A square, a sum and two products; an exponential, a quotient and three products.
  work.norms = 2 * 4 * tokens * hidden;
  work.activation = 5 * tokens * width / tensor;
  return work;
}

}  // namespace danlu::plan
