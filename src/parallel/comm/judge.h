// parallel/comm/judge.h: when a job of several ranks has to end, by what its ranks report.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "parallel/comm/calls.h"

namespace danlu::parallel {

/// "rank 3", "ranks 0, 1".
std::string ranks_text(const std::vector<int64_t>& ranks);

/// What a rank says of itself, again and again.
struct RankReport {
  int64_t beat = 0;  ///< counts up
  std::string host;
  int64_t process = 0;
  int64_t step = 0;   ///< of the training; 0: not yet
  bool left = false;  ///< it is done, and is not heard any more
  std::vector<CallReport> calls;
  std::string lost = {};  ///< in what words it gave up because of others; empty: it did not

  std::string text() const;
  static RankReport from_text(const std::string& text);
};

/// Why a job ends.
struct Verdict {
  ExitCode code = ExitCode::kComm;
  std::string what, hint;
  int64_t rank = -1;  ///< whose own error it is; -1: nobody's

  std::string text() const;
  static Verdict from_text(const std::string& text);
};

/// Kept by one rank; no clock of its own, so that a judge who gets no processor condemns nobody.
class Judge {
 public:
  /// `silence_s`: how long a rank that was heard may be silent; `timeout_s`: how long one may wait
  /// for others in an exchange.
  Judge(int64_t size, double silence_s, double timeout_s);
  void hear(int64_t rank, RankReport report);
  /// Ranks that were not heard yet are silent from now on.
  void expect_all();
  /// `seconds` have passed since the last call, in which every rank could have been heard.
  std::optional<Verdict> judge(double seconds);
  /// Whether every rank but the first has left.
  bool are_others_gone() const;

 private:
  struct Heard {
    RankReport report;
    double silent_s = 0;
  };
  std::optional<Verdict> find_silent() const;
  std::optional<Verdict> find_waiting() const;
  /// All have given up because of others, and none of them is gone.
  std::optional<Verdict> find_all_lost() const;
  std::string name_of(int64_t rank) const;
  std::string place_of(int64_t rank) const;
  /// The exchange that another rank waits for `rank` in; empty without one.
  std::string waiting_for(int64_t rank) const;

  double silence_s_, timeout_s_;
  std::vector<std::optional<Heard>> ranks_;
};

}  // namespace danlu::parallel
