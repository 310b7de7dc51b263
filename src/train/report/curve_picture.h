// train/report/curve_picture.h: a scalar over the steps of a run as a picture, and all of a run's
// pictures.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/report/canvas.h"

namespace danlu::train {

/// Exponential mean as ms-swift and TensorBoard draw it: weights that fade by `smoothing` a step,
/// divided by their sum, so that the first values are not pulled to zero. NaN where a value is not
/// finite.
std::vector<double> smoothed(std::span<const double> values, double smoothing);

/// Round numbers that cover [low, high], about `count` of them.
std::vector<double> axis_ticks(double low, double high, int count);

/// 800 x 500 pixels (8 x 5 inches at 100 dots): the values in #FFE2D9, their exponential mean (0.9)
/// in #FF7043, axes with ticks and numbers, `title` above. Points that are not finite are gaps.
/// smooth false: the values alone, in #FF7043.
Canvas draw_curve(const std::string& title, std::span<const std::pair<int64_t, double>> points,
                  bool smooth = true);

/// Writes images/train_<key>.png (eval_<key>.png) for every number series of two or more points in
/// a logging.jsonl. Returns the paths; train_loss.png first if there is one. Errors: IoError.
std::vector<std::filesystem::path> draw_run_pictures(const std::filesystem::path& logging_jsonl,
                                                     const std::filesystem::path& images_dir);

}  // namespace danlu::train
