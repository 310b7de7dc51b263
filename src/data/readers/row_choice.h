// data/readers/row_choice.h: which rows a data set is made of.
#pragma once

namespace danlu::data {

/// What n rows of a data set are.
enum class RowChoice {
  kFirst,     ///< the first n, or all where there are fewer
  kRepeated,  ///< all as often as they go into n, then the first ones
  kDrawn,     ///< the same, but the rest is drawn without replacement
};

/// Which side of a split that is made before rows are chosen.
enum class RowPart { kAll, kTraining, kHeldOut };

}  // namespace danlu::data
