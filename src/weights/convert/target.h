// weights/convert/target.h: a checkpoint that is about to be written, in any format.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "weights/convert/planned_file.h"
#include "weights/layout.h"

namespace danlu::weights {

struct Target {
  Layout layout;
  std::vector<PlannedFile> plans;  ///< beside layout.files
  /// Small files written as they are: path below the checkpoint's directory, content.
  std::vector<std::pair<std::string, std::string>> texts;
  /// For people and for telling an interrupted conversion from another one: "Megatron-core, TP2
  /// PP2".
  std::string description;

  uint64_t size_bytes() const;
};

/// Adds another layout's globals, files and tensors. Files of one name are one file: its plan must
/// hold the tensors of both, `a`'s first.
void append_layout(Layout& a, const Layout& b);

}  // namespace danlu::weights
