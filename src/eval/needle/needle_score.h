// eval/needle/needle_score.h: what an answer is worth that was to hold what stood in a long text.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "eval/needle/heat_map.h"

namespace danlu::eval {

/// Levenshtein's: the least insertions, deletions and replacements of characters (Unicode code
/// points) that make one text of the other. Time |a| x |b|, memory min(|a|, |b|).
size_t edit_distance(std::string_view a, std::string_view b);

/// NeedleBench's rule, 0 to 100: 100 if `answer` holds `keyword`, else 20 x (1 - distance / length
/// of the longer) between answer and reference, both without white space (Python's \s); 20 if both
/// are then empty.
double needle_score(std::string_view answer, std::string_view keyword, std::string_view reference);

/// What was found of one needle.
struct NeedleCell {
  int64_t length = 0;
  double depth = 0;  ///< percent
  double score = 0;
};

/// NeedleBench's rule of answers that follow from several needles: the share of the words of
/// `wanted` that stand in `answer`, whatever their case, times 100; 0 without words.
double needle_words_score(std::string_view answer, std::string_view wanted);

/// The scores of the answer to an item of a NeedleSource, from its `doc`: one for each keyword, by
/// needle_score where the doc has a "reference", needle_words_score where its kind is "m_rs", else
/// 100 or 0.
std::vector<NeedleCell> needle_cells(const Json& doc, std::string_view answer);
/// Their mean: the item's value of the metric "needle_score".
double needle_item_score(const Json& doc, std::string_view answer);

/// Means by length and depth: a row for each depth, a column for each length, both ascending.
HeatMap needle_heat_map(std::string title, const std::vector<NeedleCell>& cells, bool chinese);

}  // namespace danlu::eval
