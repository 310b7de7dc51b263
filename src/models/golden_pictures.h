// models/golden_pictures.h: the pictures and videos of a file of tensors that another
// implementation dumped. Internal to models/golden.cpp.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "arch/visual_positions.h"
#include "models/batch.h"

namespace danlu::models {

/// Names in the file: picture k belongs to row image_row[k] and is
/// image{image_file[k]}.pixel_values and .grid_thw; video k belongs to row video_row[k] and is
/// video{k}; second_per_grid_ts. Or, where these are missing, pixel_values and image_grid_thw of
/// all pictures, in the order of their tokens.
class GoldenPictures {
 public:
  /// take: gives a tensor of the file, undefined where it has none of that name.
  using Take = std::function<at::Tensor(const std::string& name)>;
  GoldenPictures(const arch::VisionConfig& vision, const Take& take);

  struct Picture {
    media::Grid grid;
    at::Tensor pixels_PX;
    bool is_video = false;
    double second_per_grid = 1;
  };
  /// Gives a batch its pictures and positions, as its ids name them. rows: the file's row of each
  /// row of ids_BT. Gives the position after each row's tokens. Errors: ModelError where the ids
  /// have more placeholders than pictures.
  std::vector<int64_t> attach(PaddedBatch& batch, const at::Tensor& ids_BT,
                              const at::Tensor& mask_BT, const std::vector<int64_t>& rows) const;
  /// The pictures by their files' names, for what the tower makes of each alone.
  const std::vector<std::pair<std::string, Picture>>& by_name() const { return by_name_; }

 private:
  std::vector<Picture> of_row(int64_t row, bool is_video) const;

  arch::VisionConfig vision_;
  std::vector<std::pair<std::string, Picture>> by_name_;
  std::vector<std::pair<int64_t, Picture>> by_row_;  ///< in order
  std::vector<Picture> in_order_;                    ///< where rows are not said
};

}  // namespace danlu::models
