// checkpoint/checkpoint.h: a training state on disk: written whole or not at all, found again,
// resumed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "optim/adamw.h"
#include "weights/tensor_source.h"

namespace danlu::checkpoint {

/// A complete checkpoint of a run directory.
struct Found {
  std::filesystem::path directory;
  int64_t step = 0;
  bool resumable = false;  ///< holds optimizer state
};

/// Complete checkpoints of `run_dir`, oldest step first; incomplete ones are left out. Sizes are
/// compared, not contents.
std::vector<Found> list(const std::filesystem::path& run_dir);
/// A checkpoint that list() leaves out.
struct Damaged {
  std::filesystem::path directory;
  std::string what;  ///< is wrong with it
};
std::vector<Damaged> damaged(const std::filesystem::path& run_dir);
/// Every checkpoint of `run_dir`, complete or not, and the links to them; not those that other
/// programs wrote.
std::vector<std::filesystem::path> everything_of(const std::filesystem::path& run_dir);
/// Deletes the oldest checkpoints until at most `limit` are left, never `keep`. limit <= 0: no
/// limit.
void rotate(const std::filesystem::path& run_dir, int64_t limit,
            const std::vector<std::filesystem::path>& keep);
/// Makes run_dir/<name> a relative symbolic link to `directory`, atomically.
void point_link(const std::filesystem::path& run_dir, const std::string& name,
                const std::filesystem::path& directory);

/// A checkpoint opened for resuming.
struct Loaded {
  std::filesystem::path directory;
  Json args, trainer_state, data_state;
  std::shared_ptr<const weights::TensorSource> optimizer;  ///< nullptr if it was saved model-only
};

/// How open() learns that files are as they were written: each is read once for its checksum, or,
/// where another process does that, by their sizes.
enum class Check { kContents, kSizes };

/// A checkpoint of a version that kept no checksums is taken by its sizes, which is said. Errors:
/// IoError if the directory is missing, incomplete or damaged (no DONE, a file of another size or
/// content: names it).
Loaded open(const std::filesystem::path& directory, Check check = Check::kContents);

/// The option that begins a run from a checkpoint's weights: "--adapters" or "--model".
const char* option_of_weights(const std::filesystem::path& directory);

/// Fills `to` [rows, cols], f32, from a rectangle of the F32 tensor of that name and shape; false
/// if there is none. Errors: ModelError naming the tensor if it is of another type or shape.
bool read_rect(const weights::TensorSource& source, const std::string& name,
               const std::vector<int64_t>& shape, const arch::Rect& rect, const at::Tensor& to);

/// Fills `optimizer` (state and weights) from an opened checkpoint.
/// Errors: IoError for a model-only checkpoint; ModelError for a missing or wrongly shaped tensor.
void load_optimizer(const Loaded& checkpoint, optim::AdamW& optimizer);

}  // namespace danlu::checkpoint
