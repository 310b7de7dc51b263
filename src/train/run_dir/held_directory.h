// train/run_dir/held_directory.h: a run's directory while the run writes into it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "parallel/ranks.h"
#include "train/prepare_data.h"
#include "train/run_dir/storage.h"
#include "train/settings.h"

namespace danlu::train {

/// train.log, which receives every line while the object lives; rank-N.log on other ranks than the
/// first. A dry run has none.
class LogFile {
 public:
  explicit LogFile(const TrainConfig& config);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  /// Makes the file again where it is gone and its directory is there.
  void begin_again() const;

 private:
  void begin() const;

  std::filesystem::path path_;
};

/// The directory, made and locked by the rank of each storage that keeps it.
class HeldDirectory {
 public:
  /// Errors: as find_shared and lock_run_directory. Collective.
  HeldDirectory(const TrainConfig& config, const Ranks& ranks);

  const Shared& shared() const { return shared_; }
  bool is_kept_by(int64_t rank) const { return shared_.keeper == rank; }
  /// Whether no other run can have begun there. The lock and the settings go with the directory,
  /// and one of them may be lost by itself.
  bool is_ours() const;
  /// Notes the settings that this run has written, for is_ours().
  void remember(const std::filesystem::path& run_dir);
  /// Makes the directory again after somebody has removed it. Errors: IoError, also where another
  /// run has taken it.
  void make_again(const TrainConfig& config);

 private:
  using Moment = std::optional<std::pair<int64_t, int64_t>>;  ///< s, ns; none: there is no file
  static Moment changed_at(const std::filesystem::path& file);

  std::filesystem::path settings_;
  Moment settings_at_;
  std::optional<MadeDirectory> made_;
  std::optional<FileLock> lock_;
  Shared shared_;
};

/// Writes what describes the run into its directory: settings, and the rows that were held out of
/// the training data. Errors: IoError.
void describe_run(const TrainConfig& config, const PreparedText& text, const PreparedData& data);

}  // namespace danlu::train
