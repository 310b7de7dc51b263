// checkpoint/saver.h: writes training states while the training goes on.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/json.h"
#include "checkpoint/state_index.h"
#include "optim/adamw.h"

namespace danlu::checkpoint {

/// Layout of RUN/checkpoint-<step>/:
///   model or adapter files, tokenizer files   written by the caller (HF or PEFT layout)
///   optim/rank-<r>.safetensors                exp_avg.*, exp_avg_sq.*, momentum.*, master.*:
///                                             what a rank holds
///   optim/danlu_checkpoint.json               their index (docs/formats/native.md)
///   args.json, trainer_state.json, data_state.json
///   DONE                                      last: lists every file with size and checksum
///   (checksum.h)
struct SaveRequest {
  std::filesystem::path run_dir;
  int64_t step = 0;
  /// Writes model or adapter, tokenizer and generation_config into the directory; called on every
  /// rank, since they may have to give pieces, in the thread that writes the state: from weights
  /// that lie still until the optimizer's next update, over no group that passes use.
  std::function<void(const std::filesystem::path&)> write_model;
  uint64_t model_bytes = 0;  ///< estimate for the free-space check
  bool with_state = true;    ///< false: model only, cannot be resumed
  /// Weights of f32 parameters are kept too, since the model files hold another type.
  bool exact_weights = false;
  Json args, trainer_state, data_state;
  /// The ranks that keep a checkpoint, each in a run_dir that others do not see, ascending, 0 among
  /// them; and the one in whose this rank writes.
  std::vector<int64_t> keepers = {0};
  int64_t keeper = 0;
};

/// Who holds what of a state on `mesh`, whose data axis shares it or not.
Holders holders_of(const parallel::Mesh& mesh, bool is_shared);

/// Every rank of a mesh has a saver, which writes its part of the optimizer's state, in a thread,
/// into the directory of the rank's keeper. Keepers also write the index and what describes the
/// run, and rank 0 writes the model. State and model are written from where they are, with a copy
/// of a block at most: the optimizer's next update waits until that is done. A checkpoint is first
/// under a temporary name; it gets its own, at every keeper, when every file of every rank is on
/// the disk. require_room, begin, poll and finish are collective. Errors, on every rank: IoError
/// (space, permission), with the rank; what was there before is then intact. Not thread-safe.
class Saver {
 public:
  /// The mesh and the optimizer outlive the saver.
  Saver(const parallel::Mesh& mesh, optim::AdamW& optimizer);
  /// A checkpoint that is not whole is gone.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Whether `name`, a checkpoint, would fit now; of `what` only its sizes and places count.
  void require_room(const SaveRequest& what, const std::string& name) const;
  /// REQUIRES: !is_busy().
  void begin(SaveRequest request);
  bool is_busy() const { return work_ != nullptr; }
  /// Whether the directory of the checkpoint that failed was removed while it was written, as far
  /// as this rank keeps it.
  bool was_removed() const { return was_removed_; }
  /// Goes on with what can go on without waiting; the directory of the checkpoint that is whole
  /// now, if one is.
  std::optional<std::filesystem::path> poll();
  /// Waits for it.
  std::optional<std::filesystem::path> finish();

 private:
  struct Work;
  /// What is written while the training goes on.
  void start(Work& work) const;
  /// The keepers' next part, in a thread.
  void go_on_with(const std::function<void()>& job);
  void note_removal(const Work& work);
  /// Whether each rank is done with its part of the present one. Collective.
  bool are_all_ready() const;
  /// The next part of the work, when every rank is ready for it; whether it was the last.
  bool go_on();

  const parallel::Mesh& mesh_;
  optim::AdamW& optimizer_;
  std::unique_ptr<Work> work_;
  bool was_removed_ = false;
};

}  // namespace danlu::checkpoint
