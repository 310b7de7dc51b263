#include "models/golden_pictures.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace danlu::models {
namespace {

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.reshape({-1});
  std::vector<int64_t> result;
  for (int64_t i = 0; i < flat.numel(); ++i) result.push_back(flat[i].item<int64_t>());
  return result;
}

media::Grid grid_of(const at::Tensor& thw) {
  const std::vector<int64_t> values = numbers(thw);
  return {values.at(0), values.at(1), values.at(2)};
}

/// The pictures of a row that its ids have not met yet.
struct Waiting {
  std::vector<GoldenPictures::Picture> pictures, videos;
  size_t next_picture = 0, next_video = 0;

  const GoldenPictures::Picture& next(bool is_video) {
    auto& list = is_video ? videos : pictures;
    size_t& index = is_video ? next_video : next_picture;
    if (index >= list.size())
      throw ModelError(tr("[golden] input_ids have more placeholders than there are pictures"));
    return list[index++];
  }
};

}  // namespace

GoldenPictures::GoldenPictures(const arch::VisionConfig& vision, const Take& take)
    : vision_(vision) {
  if (const at::Tensor all = take("pixel_values"), grids = take("image_grid_thw");
      all.defined() && grids.defined()) {
    int64_t row = 0;
    for (int64_t i = 0; i < grids.size(0); ++i) {
      Picture picture{grid_of(grids[i]), {}, false, 1};
      picture.pixels_PX = all.narrow(0, row, picture.grid.patches());
      row += picture.grid.patches();
      in_order_.push_back(picture);
    }
  }
  const at::Tensor seconds = take("second_per_grid_ts");
  const auto named = [&](const std::string& name, bool is_video) {
    Picture picture{{}, take(name + ".pixel_values"), is_video, 1};
    if (!picture.pixels_PX.defined()) return false;
    picture.grid = grid_of(take(name + ".grid_thw"));
    if (is_video && seconds.defined())
      picture.second_per_grid =
          seconds[static_cast<int64_t>(std::stoi(name.substr(5)))].item<double>();
    by_name_.emplace_back(name, picture);
    return true;
  };
  for (int i = 0; named("image" + std::to_string(i), false); ++i) {
  }
  for (int i = 0; named("video" + std::to_string(i), true); ++i) {
  }
  const auto find = [&](const std::string& name) -> const Picture& {
    for (const auto& [known, picture] : by_name_) {
      if (known == name) return picture;
    }
    throw ModelError(tr("[golden] {} is missing in the file", name + ".pixel_values"));
  };
  if (const at::Tensor rows = take("image_row"); rows.defined()) {
    const std::vector<int64_t> files = numbers(take("image_file")), of = numbers(rows);
    for (size_t k = 0; k < of.size(); ++k)
      by_row_.emplace_back(of[k], find("image" + std::to_string(files[k])));
  }
  if (const at::Tensor rows = take("video_row"); rows.defined()) {
    const std::vector<int64_t> of = numbers(rows);
    for (size_t k = 0; k < of.size(); ++k)
      by_row_.emplace_back(of[k], find("video" + std::to_string(k)));
  }
}

std::vector<GoldenPictures::Picture> GoldenPictures::of_row(int64_t row, bool is_video) const {
  std::vector<Picture> result;
  for (const auto& [of, picture] : by_row_) {
    if (of == row && picture.is_video == is_video) result.push_back(picture);
  }
  return result;
}

std::vector<int64_t> GoldenPictures::attach(PaddedBatch& batch, const at::Tensor& ids_BT,
                                            const at::Tensor& mask_BT,
                                            const std::vector<int64_t>& rows) const {
  auto visuals = std::make_shared<Visuals>();
  std::vector<at::Tensor> pixels;
  std::array<std::vector<int64_t>, 3> positions;
  std::vector<int64_t> behind;
  int64_t token = 0, visual = 0;
  Waiting all{in_order_, {}};
  for (int64_t b = 0; b < ids_BT.size(0); ++b) {
    Waiting own{of_row(rows[static_cast<size_t>(b)], false),
                of_row(rows[static_cast<size_t>(b)], true)};
    Waiting& waiting = in_order_.empty() ? own : all;
    std::vector<int64_t> ids = numbers(ids_BT[b]);
    if (mask_BT.defined()) {
      const std::vector<int64_t> mask = numbers(mask_BT[b]);
      size_t kept = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (mask[i] != 0) ids[kept++] = ids[i];
      }
      ids.resize(kept);
    }
    std::vector<arch::VisualSpan> spans;
    for (size_t i = 0; i < ids.size();) {
      const bool is_video = ids[i] == vision_.video_token;
      if (!is_video && ids[i] != vision_.image_token) {
        ++i;
        continue;
      }
      const Picture& picture = waiting.next(is_video);
      const int64_t count = picture.grid.visual_tokens(vision_.merge_size);
      spans.push_back({static_cast<int64_t>(i), picture.grid, is_video, picture.second_per_grid});
      visuals->grids.push_back(picture.grid);
      pixels.push_back(picture.pixels_PX);
      for (int64_t k = 0; k < count; ++k) {
        visuals->visual_rows.push_back(visual++);
        visuals->token_rows.push_back(token + static_cast<int64_t>(i) + k);
      }
      i += static_cast<size_t>(count);
    }
    const auto found = arch::visual_positions(vision_, static_cast<int64_t>(ids.size()), spans);
    for (size_t axis = 0; axis < 3; ++axis)
      positions[axis].insert(positions[axis].end(), found.axes[axis].begin(),
                             found.axes[axis].end());
    behind.push_back(found.next);
    token += static_cast<int64_t>(ids.size());
  }
  if (pixels.empty()) return behind;
  visuals->pixels_PX = at::cat(pixels);
  batch.input.visuals = visuals;
  std::vector<at::Tensor> axes;
  for (const auto& axis : positions)
    axes.push_back(at::tensor(axis, at::TensorOptions(at::kLong)).unsqueeze(0));
  batch.input.positions_N = at::cat(axes);
  return behind;
}

}  // namespace danlu::models
