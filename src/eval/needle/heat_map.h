// eval/needle/heat_map.h: a table of scores as a field of colours, such as NeedleBench's over
// length and depth.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "pictures/painter.h"

namespace danlu::eval {

/// Scores by row and column. Texts stand in the picture as they are.
struct HeatMap {
  std::string title;
  std::string column_title, row_title, value_title;
  std::vector<std::string> columns = {}, rows = {};
  /// values[row][column]; NaN: nothing is known there, which is shown as such.
  std::vector<std::vector<double>> values = {};
  double low = 0, high = 100;  ///< ends of the scale; what lies beyond has the colour of its end
};

/// The colour of a value's place between the ends, 0 to 1: dark blue to yellow, ever lighter, so
/// that the order is seen in grey and by the colour-blind too.
pictures::Color heat_color(double part);

/// Each cell has its value written in it where there is room; beside the field stand the means of
/// rows, below those of columns and of all (of the cells that have a value), and the scale.
/// `chinese`: of words that are not in the map ("mean"). Errors: InternalError if values do not fit
/// rows and columns, or there are none.
std::string heat_map_picture(const HeatMap& map, pictures::PictureFormat format, bool chinese);

/// `english` (a text of the catalogue) in the language of a picture.
std::string picture_word(std::string_view english, bool chinese);

/// Whether pictures are to have Chinese words: the terminal has, and there are fonts for them.
bool eval_pictures_speak_chinese();

}  // namespace danlu::eval
