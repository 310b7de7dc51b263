// Passes through a vision tower, and how its output gets to its tokens.
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <utility>

#include "arch/vision_order.h"
#include "base/error.h"
#include "device/sent.h"
#include "models/causal_lm_impl.h"
#include "ops/pointwise.h"
#include "ops/rotary.h"

namespace danlu::models {
namespace {

at::Tensor int64s(const std::vector<int64_t>& values) {
  return at::tensor(values, at::TensorOptions(at::kLong));
}

/// Segments in which every patch sees every other.
ops::Segments frames_at(const std::vector<int64_t>& starts) {
  return {starts, starts, std::vector<bool>(starts.size() - 1, false)};
}

/// The first half of a head's pairs turns by a patch's row, the second by its column.
ops::RotaryTable tower_table(const arch::VisionConfig& vision, const arch::VisionOrder& order,
                             const at::Device& device) {
  const int64_t pairs = vision.width / vision.num_heads / 4;  // of each half
  std::vector<float> frequencies;
  for (int64_t j = 0; j < pairs; ++j) {
    frequencies.push_back(static_cast<float>(
        std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(pairs))));
  }
  const at::Tensor inv_freq =
      device::sent(at::tensor(frequencies, at::TensorOptions(at::kFloat)), device);
  const ops::RotaryTable rows = ops::rotary_table(device::sent(int64s(order.rows), device),
                                                  inv_freq, 1.0),
                         columns = ops::rotary_table(device::sent(int64s(order.columns), device),
                                                     inv_freq, 1.0);
  return {ops::joined({rows.cos_NE, columns.cos_NE}, 1),
          ops::joined({rows.sin_NE, columns.sin_NE}, 1)};
}

/// For each patch as it goes through the tower, its row in pixels.
at::Tensor patch_rows(const arch::VisionOrder& order, int64_t patches_of_token) {
  std::vector<int64_t> rows;
  rows.reserve(order.rows.size());
  for (const int64_t token : order.order) {
    for (int64_t i = 0; i < patches_of_token; ++i) rows.push_back(token * patches_of_token + i);
  }
  return int64s(rows);
}

}  // namespace

at::Tensor CausalLM::Impl::through_tower(const Visuals& visuals, at::Tensor given_PD, int64_t chunk,
                                         const ForwardInput& input) const {
  const arch::VisionConfig& vision = *config.vision;
  const arch::Chain& chain = stage().chain;
  const arch::PlaceRange& range = stage().chunk(chunk);
  const arch::VisionOrder order = arch::vision_order(vision, visuals.grids);
  const int64_t of_token = vision.merge_size * vision.merge_size;
  const auto as_they_go = [&](const at::Tensor& rows) {
    return order.order.empty() ? rows : rows.index_select(0, patch_rows(order, of_token));
  };
  auto pass = std::make_shared<layers::Pass>();
  pass->segments = frames_at(order.frame_starts);
  pass->windows = frames_at(order.window_starts);
  pass->rotary = tower_table(vision, order, device);
  pass->num_rows = order.patches();
  pass->adapters = input.adapters;
  // Adapters that have a part here share their passes with no other.
  if (input.adapter_runs.size() == 1) pass->adapter_runs = input.adapter_runs;
  if (visuals.dropout_keys_P.defined())
    pass->dropout_keys_N = device::sent(as_they_go(visuals.dropout_keys_P), device);
  if (range.has(chain.patches())) {
    const at::Tensor pixels =
        visuals.pixels_PX.defined() ? visuals.pixels_PX : at::empty({0, vision.patch_columns()});
    if (pixels.size(0) != order.patches() || pixels.size(1) != vision.patch_columns()) {
      throw InternalError("[model] " + std::to_string(pixels.size(0)) + " patches of " +
                          std::to_string(pixels.size(1)) + " columns for grids of " +
                          std::to_string(order.patches()));
    }
    given_PD = memory.pass_place(chain.patches(), {}, [&] {
      return network.patches.forward(device::sent(as_they_go(pixels), device));
    });
  }
  const Through through{.blocks = network.blocks,
                        .groups = memory.tower_groups(chunk),
                        .first_place = chain.block(0),
                        .pass = pass,
                        .done = [](int64_t, const at::Tensor&) {},
                        .begin = [](const at::Tensor&) {}};
  given_PD = through_blocks(through, std::move(given_PD), chunk);
  if (!range.has(chain.merger())) return given_PD;
  auto merging = std::make_shared<layers::Pass>(*pass);
  if (pass->dropout_keys_N.defined()) {  // a visual token's are its first patch's
    merging->dropout_keys_N = pass->dropout_keys_N.view({-1, of_token}).select(1, 0).contiguous();
  }
  return memory.pass_place(chain.merger(), given_PD,
                           [&] { return network.merger.forward(given_PD, merging); });
}

at::Tensor CausalLM::Impl::embedded(const ForwardInput& input, const at::Tensor& visual_MH) const {
  const at::Tensor ids_N = config.encoder ? layers::tokens_without_type(input.ids_N) : input.ids_N;
  at::Tensor tokens_NH =
      network.positions.added_to(network.embedding.forward(ids_N, input.noise), input.positions_N);
  if (config.encoder) tokens_NH = network.token_types.added_to(tokens_NH, input.ids_N);
  if (config.norms_embedding) tokens_NH = network.embedding_norm.forward(tokens_NH);
  if (!config.vision) return tokens_NH;
  static const Visuals none;
  const Visuals& visuals = input.visuals ? *input.visuals : none;
  // Where each visual token came out of the tower.
  const arch::VisionOrder order = arch::vision_order(*config.vision, visuals.grids);
  std::vector<int64_t> row_of_token(static_cast<size_t>(visual_MH.size(0)));
  for (size_t i = 0; i < row_of_token.size(); ++i) {
    const auto token = order.order.empty() ? i : static_cast<size_t>(order.order[i]);
    row_of_token[token] = static_cast<int64_t>(i);
  }
  // Under sequence parallelism this rank has a run of the tokens, and its gradient of what the
  // tower gave is a part of it.
  const parallel::Region region = mesh.region();
  const bool is_cut = region.is_sequence();
  const int64_t rows = tokens_NH.size(0), first = is_cut ? region.group().rank() * rows : 0;
  std::vector<int64_t> from, to;
  for (size_t i = 0; i < visuals.token_rows.size(); ++i) {
    const int64_t token = visuals.token_rows[i] - first;
    if (token < 0 || token >= rows) continue;
    from.push_back(row_of_token.at(static_cast<size_t>(visuals.visual_rows[i])));
    to.push_back(token);
  }
  const at::Tensor entered_MH =
      is_cut ? parallel::Region(region.group(), /*sequence=*/false).enter(visual_MH) : visual_MH;
  return ops::with_rows(tokens_NH, device::sent(int64s(to), device),
                        ops::take_rows(entered_MH, device::sent(int64s(from), device)));
}

at::Tensor CausalLM::visual_tokens(const Visuals& visuals) const {
  Impl& impl = *impl_;
  if (!impl.config.vision || !impl.stage().has(0) || !impl.stage().has(impl.stage().chain.merger()))
    throw InternalError("[model] the vision tower is not this stage's");
  const at::Tensor given_MH = impl.through_tower(visuals, {}, 0, {});
  const std::vector<int64_t> order = arch::vision_order(*impl.config.vision, visuals.grids).order;
  if (order.empty()) return given_MH;
  return ops::with_rows(given_MH, device::sent(int64s(order), given_MH.device()), given_MH);
}

}  // namespace danlu::models
