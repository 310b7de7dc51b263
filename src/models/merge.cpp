#include "models/merge.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arch/visual_positions.h"
#include "base/error.h"
#include "base/rng.h"
#include "device/dtype.h"
#include "models/batch.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"

namespace danlu::models {
namespace {

/// Gives the pass a picture of random pixels in its first row, so that what is in the tower counts.
void add_probe_picture(const arch::VisionConfig& vision, int64_t columns, uint64_t seed,
                       ForwardInput& input) {
  const int64_t first = columns / 4, side = 2 * vision.merge_size;
  auto visuals = std::make_shared<Visuals>();
  visuals->grids = {{1, side, side}};
  const int64_t count = visuals->grids[0].visual_tokens(vision.merge_size);
  if (first + count > columns) return;
  for (int64_t i = 0; i < count; ++i) {
    visuals->visual_rows.push_back(i);
    visuals->token_rows.push_back(first + i);
  }
  std::vector<float> pixels;
  for (int64_t i = 0; i < visuals->patches() * vision.patch_columns(); ++i) {
    const uint64_t bits = mix64(seed + 1, static_cast<uint64_t>(i)) >> 40;
    pixels.push_back(static_cast<float>(bits) / static_cast<float>(1 << 22) - 2);
  }
  visuals->pixels_PX = at::tensor(pixels, at::TensorOptions(at::kFloat))
                           .view({visuals->patches(), vision.patch_columns()});
  const auto found =
      arch::visual_positions(vision, columns, {{first, visuals->grids[0], false, 1}});
  const at::Tensor flat_N = input.positions_N;
  std::vector<at::Tensor> axes;
  for (const std::vector<int64_t>& axis : found.axes) {
    const at::Tensor of_row = at::tensor(axis, at::TensorOptions(at::kLong));
    axes.push_back(at::cat({of_row, flat_N.narrow(0, columns, flat_N.size(0) - columns)}));
  }
  input.positions_N = at::stack(axes);
  input.visuals = visuals;
}

}  // namespace

std::unique_ptr<CausalLM> load_merged(const weights::MergedModel& merged,
                                      const parallel::Mesh& mesh, at::ScalarType dtype,
                                      const at::Device& device) {
  auto model = std::make_unique<CausalLM>(merged.config, mesh, dtype, device);
  load(*model, *merged.source);
  return model;
}

at::Tensor probe_logits(const CausalLM& model, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const int64_t limit = model.config().max_positions > 0 ? model.config().max_positions : 32;
  const int64_t rows = 4, columns = std::min<int64_t>(32, limit);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < rows * columns; ++i) {
    ids.push_back(static_cast<int64_t>(mix64(seed, static_cast<uint64_t>(i)) %
                                       static_cast<uint64_t>(model.config().vocab_size)));
  }
  const at::Tensor ids_BT = at::tensor(ids, at::TensorOptions(at::kLong)).view({rows, columns});
  ForwardInput input = pack_padded(ids_BT).input;
  if (model.config().vision) add_probe_picture(*model.config().vision, columns, seed, input);
  const at::Tensor hidden_NH = model.forward_hidden(input);
  if (model.config().encoder && !model.config().score) return hidden_NH;
  if (!model.config().score) return model.logits(hidden_NH);
  return model.scores(hidden_NH, input, at::arange(ids_BT.numel(), at::TensorOptions(at::kLong)));
}

MergeReport check_merged(const CausalLM& merged, const at::Tensor& adapted, const at::Tensor& base,
                         double tolerance) {
  constexpr double kRounding = 1e-5;  // of the largest logit, by two orders of f32 arithmetic
  MergeReport report;
  report.effect = (adapted - base).abs().max().item<double>();
  report.max_abs = (probe_logits(merged) - adapted).abs().max().item<double>();
  report.largest_logit = adapted.abs().max().item<double>();
  // Written this way round so that NaN is refused.
  if (!(report.relative() <= tolerance)) {
    throw ModelError(tr("[merge] merged logits differ from the adapted model's by {:.3g} (largest "
                        "logit {:.3g}): relative "
                        "{:.3g} is above the tolerance {:g}",
                        report.max_abs, report.largest_logit, report.relative(), tolerance),
                     std::isfinite(report.relative())
                         ? tr("nothing was written; raise --tolerance only if you know why they "
                              "differ")
                         : tr("nothing was written; adapter or model are damaged or come from a "
                              "diverged run"));
  }
  if (report.max_abs > report.effect / 2 && report.relative() > kRounding) {
    throw ModelError(tr("[merge] merged logits differ from the adapted model's by {:.3g}, and the "
                        "adapter itself moves them by {:.3g} only",
                        report.max_abs, report.effect),
                     tr("nothing was written; adapter or model are damaged or come from a "
                        "diverged run"));
  }
  return report;
}

LogitsReport compare_logits(const at::Tensor& one, const at::Tensor& other) {
  return {(one - other).abs().max().item<double>(),
          (one.argmax(-1) == other.argmax(-1)).to(at::kDouble).mean().item<double>()};
}

LogitsReport round_parameters(CausalLM& model, DType dtype) {
  const at::NoGradGuard no_grad;
  const at::Tensor exact = probe_logits(model);
  const std::set<std::string> wide = arch::wide_parameters(model.config());
  for (const Parameter& parameter : model.parameters()) {
    if (wide.count(parameter.name())) continue;
    at::Tensor values = parameter.tensor;
    const at::Tensor rounded = values.to(device::scalar_type_of(dtype));
    refuse_overflow(rounded, 0, parameter.name());
    values.copy_(rounded);
  }
  return compare_logits(exact, probe_logits(model));
}

}  // namespace danlu::models
