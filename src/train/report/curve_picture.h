// train/report/curve_picture.h: a scalar over the steps of a run as a picture, and all of a run's
// pictures.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pictures/painter.h"

namespace danlu::train {

/// Exponential mean as ms-swift and TensorBoard draw it: weights that fade by `smoothing` a step,
/// divided by their sum, so that the first values are not pulled to zero. NaN where a value is not
/// finite.
std::vector<double> smoothed(std::span<const double> values, double smoothing);

/// (step, value), in the order of steps.
using Series = std::vector<std::pair<int64_t, double>>;

struct Curve {
  std::string key;  ///< of logging.jsonl: name, unit and whether a mean is drawn follow from it
  std::string run;  ///< the run's name
  Series points;
  Series evaluations = {};  ///< the same figure of the validation set; may be empty
};

/// 800 x 500 units (PNG: 1600 x 1000 pixels): title, the values, above them their exponential mean
/// (0.9) if they are noisy, evaluations as dots, axes with round numbers, and a legend where there
/// is more than one curve. Values that are not finite, or beyond ±1e300, are gaps. Of many points
/// those are drawn that can be told apart. `chinese`: the labels are; ask pictures_speak_chinese().
std::string curve_picture(const Curve& curve, pictures::PictureFormat format, bool chinese);

/// True if messages are Chinese and the machine has glyphs for every label.
bool pictures_speak_chinese();

/// Writes images/train_<key>.png and .svg (eval_<key>) for every number series of two or more
/// points in a logging.jsonl, and for the loss however short. Says so where fonts are missing.
/// Returns the paths of the PNGs; train_loss.png first if there is one. Errors: IoError.
std::vector<std::filesystem::path> draw_run_pictures(const std::filesystem::path& logging_jsonl,
                                                     const std::filesystem::path& images_dir,
                                                     const std::string& run);

}  // namespace danlu::train
