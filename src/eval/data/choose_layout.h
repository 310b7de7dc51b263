// eval/data/choose_layout.h: which of a benchmark's layouts a user's files have, and what they
// lack.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "eval/data/data_tree.h"

namespace danlu::eval {

/// What is asked of a tree.
struct WantedData {
  std::string benchmark;              ///< "mmlu"
  std::vector<std::string> subjects;  ///< that will be asked; empty: it has none
  std::vector<std::string> splits;    ///< that must be there: the one asked, that of the shots
  std::string source;                 ///< hint of errors: where the data come from
  /// Subjects without their files may be left out, if one has all of its own.
  bool takes_part = false;
};

struct ChosenLayout {
  size_t index = 0;  ///< into `layouts`
  DataTree tree;     ///< reads from where the layout begins, and from nowhere else
  std::vector<std::string> left_out = {};  ///< subjects that lack a file
  /// Subjects that have a part of their splits, with those that they lack: "virology (dev)".
  std::vector<std::string> in_part = {};
};

/// The layout, and the place in the tree, that has every split of every subject: the nearest to
/// what the user named, then the first of `layouts`, then one below a directory of the benchmark's
/// name. Archives below the tree are opened if nothing outside of them is whole.
/// Errors: DataError: nothing of the benchmark is there (which files each layout would have);
/// subjects or splits are missing (which) and not to be left out; no subject has all of its files;
/// two places are equally good (both); an archive below that is broken, if something is missing;
/// those of DataTree::files.
ChosenLayout choose_layout(const DataTree& tree, const std::vector<Layout>& layouts,
                           const WantedData& wanted);

}  // namespace danlu::eval
