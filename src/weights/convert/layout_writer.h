// weights/convert/layout_writer.h: writing the files of a layout as a stream: bounded memory,
// several threads, each file under its name only when it is complete.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "weights/convert/planned_file.h"
#include "weights/layout.h"

namespace danlu::weights {

struct WriteOptions {
  size_t num_threads = 2;
  /// Whether the caller leaves finished files for the same command given again: errors say so.
  bool keeps_finished = true;
  bool ends_on_signal = true;  ///< else who called decides what a signal ends
  /// Called by the writing threads with the bytes written since the last call.
  std::function<void(uint64_t bytes)> on_written = {};
};

/// Writes every file of `layout` into the existing `directory` from the global tensors that
/// `globals` holds under the names in layout.globals; floating types are cast to the stored ones,
/// rounding to nearest even. `plans[i]` is the plan of layout.files[i], whose tensors are those of
/// layout.tensors in their order. A file that is there already is taken to be finished. Warns of
/// tensors written that hold an infinity or a NaN.
/// Errors: IoError (disk full: the finished files remain), ModelError (source), as
/// throw_interrupted between two bands, so that the process ends within a moment.
void write_layout(const TensorSource& globals, const Layout& layout,
                  const std::vector<PlannedFile>& plans, const std::filesystem::path& directory,
                  const WriteOptions& options = {});

/// Indices into layout.tensors of each file's tensors, in order.
std::vector<std::vector<size_t>> tensors_by_file(const Layout& layout);

}  // namespace danlu::weights
