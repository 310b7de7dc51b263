#include "train/visual_input.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <utility>
#include <vector>

#include "arch/visual_positions.h"
#include "base/error.h"
#include "base/rng.h"

namespace danlu::train {
namespace {

using data::MediaSpan;

/// The tokens of the whole batch that are here, in order.
std::vector<RowRange> rows_here(const data::Batch& batch) {
  if (!batch.rows.empty()) return batch.rows;
  return {{0, static_cast<int64_t>(batch.ids.size())}};
}

/// Calls see(token of the whole, token of the part) for every placeholder of a span that is here.
template <typename See>
void for_placeholders(const MediaSpan& span, const std::vector<RowRange>& rows, const See& see) {
  int64_t before = 0;
  for (const RowRange& range : rows) {
    const int64_t begin = std::max(span.begin, range.begin), end = std::min(span.end(), range.end);
    for (int64_t token = begin; token < end; ++token) see(token, before + token - range.begin);
    before += range.end - range.begin;
  }
}

/// The numbers of the batch's pictures of which a placeholder is here.
std::vector<size_t> pictures_here(const data::Batch& batch) {
  const std::vector<RowRange> rows = rows_here(batch);
  std::vector<size_t> numbers;
  for (size_t i = 0; i < batch.media.size(); ++i) {
    bool is_here = false;
    for_placeholders(batch.media[i], rows, [&](int64_t, int64_t) { is_here = true; });
    if (is_here) numbers.push_back(i);
  }
  return numbers;
}

/// Positions of the whole batch; each segment begins anew.
std::array<std::vector<int64_t>, 3> whole_positions(const arch::VisionConfig& vision,
                                                    const data::Batch& batch) {
  std::array<std::vector<int64_t>, 3> all;
  size_t next = 0;
  for (size_t s = 0; s + 1 < batch.segment_starts.size(); ++s) {
    const int64_t begin = batch.segment_starts[s], end = batch.segment_starts[s + 1];
    std::vector<arch::VisualSpan> spans;
    for (; next < batch.media.size() && batch.media[next].begin < end; ++next) {
      const MediaSpan& span = batch.media[next];
      spans.push_back({span.begin - begin, span.grid, span.kind == text::MediaKind::kVideo,
                       span.second_per_grid > 0 ? span.second_per_grid : 1.0});
    }
    const arch::VisualPositions found = arch::visual_positions(vision, end - begin, spans);
    for (size_t axis = 0; axis < 3; ++axis)
      all[axis].insert(all[axis].end(), found.axes[axis].begin(), found.axes[axis].end());
  }
  return all;
}

at::Tensor positions_3N(const arch::VisionConfig& vision, const data::Batch& batch) {
  std::vector<at::Tensor> axes;
  for (const std::vector<int64_t>& whole : whole_positions(vision, batch)) {
    std::vector<int64_t> own;
    for (const RowRange& range : rows_here(batch))
      own.insert(own.end(), whole.begin() + range.begin, whole.begin() + range.end);
    axes.push_back(at::tensor(own, at::TensorOptions(at::kLong)).unsqueeze(0));
  }
  return at::cat(axes);
}

/// The pixels of some pictures of the batch, of which all are made.
at::Tensor pixels_of(const data::Batch& batch, const std::vector<size_t>& numbers,
                     const PixelUse& use) {
  if (!batch.pixels) throw InternalError("[train] nobody has asked for the batch's pixels");
  double wait_s = 0;
  const at::Tensor all = tensor_of(batch.pixels->take(&wait_s, use.again));
  if (use.waited_s) *use.waited_s += wait_s;
  if (numbers.size() == batch.media.size()) return all;
  std::vector<at::Tensor> parts;
  int64_t row = 0;
  for (size_t i = 0, next = 0; i < batch.media.size() && next < numbers.size(); ++i) {
    const int64_t patches = batch.media[i].grid.patches();
    if (numbers[next] == i) {
      parts.push_back(all.narrow(0, row, patches));
      ++next;
    }
    row += patches;
  }
  return parts.empty() ? all.narrow(0, 0, 0) : at::cat(parts);
}

/// A patch's key follows from that of its picture, so that it is the same in every cut of a step
/// and on every rank of a context axis.
at::Tensor patch_keys(const data::Batch& batch, const std::vector<size_t>& numbers,
                      uint64_t dropout_seed) {
  std::vector<int64_t> keys;
  for (const size_t number : numbers) {
    const MediaSpan& span = batch.media[number];
    const uint64_t picture = mix64(dropout_seed, span.key);
    for (int64_t patch = 0; patch < span.grid.patches(); ++patch)
      keys.push_back(static_cast<int64_t>(mix64(picture, static_cast<uint64_t>(patch) + 1)));
  }
  return at::tensor(keys, at::TensorOptions(at::kLong));
}

}  // namespace

at::Tensor tensor_of(data::MediaPixels made) {
  const at::Tensor all = at::from_blob(
      made.values.get(), {made.patches, made.patch_values},
      [memory = made.values.get()](void*) { delete[] memory; }, at::TensorOptions(at::kFloat));
  (void)made.values.release();
  return all;
}

void require_fitting_processor(const arch::VisionConfig& vision,
                               const media::ImageProcessor& processor) {
  const auto require = [](const char* key, int64_t read, int64_t seen) {
    if (read == seen) return;
    throw ModelError(tr("[preprocessor_config.json] {} is {}, and the model's vision tower has {}",
                        key, read, seen),
                     tr("take the file that came with the model"));
  };
  require("patch_size", processor.patch_size, vision.patch_size);
  require("temporal_patch_size", processor.temporal_patch_size, vision.temporal_patch_size);
  require("merge_size", processor.merge_size, vision.merge_size);
}

models::PassSize size_of(const data::Batch& batch) {
  models::PassSize size{.tokens = static_cast<int64_t>(batch.ids.size())};
  for (const size_t number : pictures_here(batch))
    size.patches += batch.media[number].grid.patches();
  return size;
}

void add_visuals(const models::CausalLM& model, const data::Batch& batch, uint64_t dropout_seed,
                 int64_t chunk, models::ForwardInput& input, const PixelUse& use) {
  if (batch.media.empty()) return;
  if (!model.config().vision) {
    throw ModelError(
        tr("[train] {}: the row has a picture, and the model sees none", batch.media.front().row));
  }
  const arch::VisionConfig& vision = *model.config().vision;
  input.positions_N = positions_3N(vision, batch);
  const std::vector<size_t> numbers = pictures_here(batch);
  auto visuals = std::make_shared<models::Visuals>();
  const std::vector<RowRange> rows = rows_here(batch);
  int64_t visual = 0;
  for (const size_t number : numbers) {
    const MediaSpan& span = batch.media[number];
    visuals->grids.push_back(span.grid);
    for_placeholders(span, rows, [&](int64_t whole, int64_t part) {
      visuals->visual_rows.push_back(visual + whole - span.begin);
      visuals->token_rows.push_back(part);
    });
    visual += span.count;
  }
  if (model.stage().begins_at(chunk)) visuals->pixels_PX = pixels_of(batch, numbers, use);
  if (input.dropout_keys_N.defined())
    visuals->dropout_keys_P = patch_keys(batch, numbers, dropout_seed);
  input.visuals = visuals;
}

}  // namespace danlu::train
