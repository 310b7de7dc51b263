// train/rollouts/rollout_journal.h: what a rank has drawn and judged since the last checkpoint, on
// disk, so that a run which was killed does it not again.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/causal_lm.h"
#include "parallel/group.h"

namespace danlu::train {

/// Where in its directory a run keeps its journals.
inline constexpr const char* kJournalFolder = "rollouts";

/// One file for each rollout and rank, of lines that are complete or not there. What it holds is
/// taken only for the weights and the run that it was written of, so that answers are those that
/// would be drawn again.
class RolloutJournal {
 public:
  /// Keeps nothing.
  RolloutJournal() = default;
  /// directory: of the run; where it is not there, nothing is kept. origin: what answers depend on
  /// beside weights. rank: of `ranks` that draw. holders: the ranks that hold one model together
  /// and draw the same answers; the first of them writes, and tells the others. Outlives the
  /// journal.
  RolloutJournal(const std::filesystem::path& directory, const std::string& origin, int64_t rank,
                 int64_t ranks, const parallel::Group& holders);

  /// From here on the journal is that of rollout `number`, drawn by weights of this fingerprint.
  /// Lines that an earlier process left of the same are there again; others are removed. What
  /// cannot be written is said once, and nothing is kept from then on. Collective over the holders.
  void begin(int64_t number, const std::string& weights);
  /// What add() was given last under this name; nullptr: nothing.
  const Json* find(const std::string& name) const;
  void add(const std::string& name, const Json& content);
  /// Removes this rank's journals of rollouts before `first`.
  void forget_before(int64_t first) const;

 private:
  std::filesystem::path file_of(int64_t number) const;
  void open(int64_t number, const std::string& weights);
  void read(const std::filesystem::path& file, const Json& head);
  void give_up(const std::filesystem::path& file);

  std::filesystem::path folder_;  ///< empty: nothing is kept
  std::string origin_;
  int64_t rank_ = 0, ranks_ = 1;
  const parallel::Group* holders_ = nullptr;
  std::map<std::string, Json> known_;  ///< of the present rollout
  std::ofstream out_;
};

/// The journals that are in a run's directory.
std::vector<std::filesystem::path> journals_of(const std::filesystem::path& run_directory);
/// Removes the journals of a run, which has no use for them when it is finished. Errors: none.
void remove_journals(const std::filesystem::path& run_directory);

/// A number that changes with the weights that ranks train of one model: the exact sums of their
/// bits. holders: the ranks that hold it together. REQUIRES: models::keep was called; between
/// steps. Collective over the holders.
std::string fingerprint_of_trained(const models::CausalLM& model, const parallel::Group& holders);

}  // namespace danlu::train
