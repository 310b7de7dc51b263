// weights/layout_source.h: global tensors read out of a checkpoint's files through its layout.
#pragma once
#include <memory>
#include <vector>

#include "weights/layout.h"

namespace danlu::weights {

/// `files[i]` holds the tensors of layout.files[i]. The dtypes of layout.globals are taken from the
/// files. Replicas are not read. Errors: ModelError naming file and tensor where one is missing or
/// of another shape, or where the parts of one global tensor have different dtypes.
std::shared_ptr<const TensorSource> open_layout(
    Layout layout, std::vector<std::shared_ptr<const TensorSource>> files);

/// Names of copies (replicas of whole pieces, other than padding) that differ from what they are
/// copies of, one line each with both files; at most `limit`.
std::vector<std::string> differing_replicas(
    const Layout& layout, const std::vector<std::shared_ptr<const TensorSource>>& files,
    const TensorSource& globals, size_t limit = 10);

}  // namespace danlu::weights
