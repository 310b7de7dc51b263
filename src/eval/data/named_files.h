// eval/data/named_files.h: the files that a task file itself names (lm-eval's data_files).
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "eval/data/data_tree.h"

namespace danlu::eval {

struct NamedFiles {
  Layout layout;  ///< its paths are those that were found
  DataTree tree;  ///< reads them from where they are
};

/// The files of `splits`. A path that is not absolute is looked for in each of `folders`, in order.
/// REQUIRES: layout.are_named. Errors: DataError beginning with `origin`: a split without files, a
/// file that is not there (where it was looked for), an address of the network.
NamedFiles find_named_files(const Layout& layout, const std::vector<std::string>& splits,
                            const std::vector<std::filesystem::path>& folders,
                            const std::string& origin);

}  // namespace danlu::eval
