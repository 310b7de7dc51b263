// plan/data_pictures.h: what the rows of a line's data hold of pictures and videos.
#pragma once
#include <cstdint>
#include <optional>

#include "settings/config.h"

namespace danlu::plan {

/// What samples hold that a training keeps, because they fit into its length. most_frame_patches:
/// patches of the largest frame, where patches see each other.
struct DataPictures {
  int64_t samples = 0, visual_tokens = 0;
  int64_t most_patches = 0, most_frame_patches = 0;
  double mean_visual_tokens() const {
    return static_cast<double>(visual_tokens) / static_cast<double>(samples);
  }
};

/// Counts pictures by the headers of the files that the first rows of each data set name (1000 in
/// all); nothing is tokenised or fetched. Nothing if the model has no processor of pictures, or a
/// data set is not there, was tokenised before, or cannot be read, which a notice says.
std::optional<DataPictures> pictures_in_data(const settings::TrainConfig& config);

}  // namespace danlu::plan
