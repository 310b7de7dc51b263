// train/run_dir/hand_over.h: files of a checkpoint that one machine has and another lacks.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/settings.h"

namespace danlu::train {

struct HandOver {
  std::string file;         ///< below the checkpoint
  int64_t from = 0;         ///< the rank in whose directory it is
  std::vector<int64_t> to;  ///< those who keep one without it
};

/// Copies the files into `checkpoint` of those who lack them, and adds them to its DONE, which
/// appears where there was none. Nothing is there in part. Collective; pieces of 16 MiB are in
/// memory. Errors, on every rank: IoError naming the rank (no space); what was copied until then
/// stays, without being in DONE.
void hand_over(const std::filesystem::path& checkpoint, const std::vector<HandOver>& files,
               const Ranks& ranks);

}  // namespace danlu::train
