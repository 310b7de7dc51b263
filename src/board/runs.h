// board/runs.h: the runs below some directories, as JSON that follows their files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "board/line_follower.h"
#include "board/metrics.h"
#include "board/run_state.h"

namespace danlu::board {

/// Which points of which curves.
struct CurveQuery {
  std::vector<std::string> names = {};  ///< empty: all
  uint64_t generation = 0;           ///< Metrics::generation of what is known already; 0: nothing
  int64_t after = -1;                ///< the last step that is known, of that generation
  int64_t from = 0, to = INT64_MAX;  ///< steps
  size_t most_points = 4000;         ///< of a curve
};

/// Reads only, links within runs are not followed. Not thread-safe.
class Runs {
 public:
  explicit Runs(std::vector<std::filesystem::path> roots);
  ~Runs();
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  /// Where there are runs now. A directory tree may take long to walk.
  struct Places {
    std::vector<std::pair<std::filesystem::path, std::filesystem::path>> runs = {};  ///< root, run
    bool is_cut = false;  ///< there are more than kMostRuns, or too many directories
  };
  static Places search(const std::vector<std::filesystem::path>& roots);
  /// Drops runs that are no longer there, and adds new ones.
  void take(const Places& places);
  /// Reads on in the files of all runs: up to kAtOnce bytes. True where there is more.
  bool read_on();
  const std::vector<std::filesystem::path>& roots() const { return roots_; }

  /// {"runs": [summary, …], "roots": […], "cut": whether there are more than kMostRuns}.
  Json list() const;
  /// The summaries that have changed since change number `since`, and who is gone: {"change": the
  /// newest number, "runs": [summary, …], "gone": [id, …]}. Nothing if nothing has.
  std::optional<Json> changes(uint64_t since) const;
  uint64_t newest_change() const { return change_; }

  // Each gives nothing for an id that is not of this list.
  std::optional<Json> run(const std::string& id) const;
  std::optional<Json> curves(const std::string& id, const CurveQuery& query) const;
  std::optional<Json> settings(const std::string& id) const;
  std::optional<Json> log(const std::string& id, const std::string& name, size_t most_bytes) const;
  std::optional<Json> samples(const std::string& id, uint64_t before, size_t count) const;

  static constexpr size_t kAtOnce = size_t{8} << 20;
  static constexpr size_t kMostRuns = 2000;

 private:
  struct Run;
  const Run* find(const std::string& id) const;
  void add(const std::filesystem::path& root, const std::filesystem::path& directory);

  std::vector<std::filesystem::path> roots_;
  std::map<std::string, std::unique_ptr<Run>> runs_;  ///< by id
  std::map<std::string, uint64_t> gone_;              ///< id -> change
  uint64_t change_ = 1;
  bool is_cut_ = false;
};

}  // namespace danlu::board
