// bench/report.h: what was measured on a machine, as a value and as JSON.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/sampling.h"

namespace danlu::bench {

/// Something that was timed.
struct Row {
  std::string name;   ///< "linear_768x2048.forward", "attention_4x256.backward", "step"
  std::string group;  ///< of the table: see kGroups
  std::string dtype;  ///< "fp32", "bf16", "fp16"
  Work work;
  double tokens = 0;  ///< of a run, where tokens a second mean something; else 0
  std::vector<Sample> samples;
  /// undisturbed_limits() of the run from which the row was taken over. All 0 if it was not taken
  /// over.
  Limits of_run = {};

  std::string id() const { return name + "." + dtype; }
  double seconds() const;  ///< median
  double share() const;    ///< median over samples of share_of_limit
  double share_spread() const;
  /// The share that the fastest sample reached, at the limits of the whole run, or at the best that
  /// were read beside the row's own samples where the machine was slower than `may_move` allows all
  /// that time and that bounds the work. This is compared: a neighbour slows most samples of a busy
  /// machine, but seldom all, and few readings scatter more than many.
  double best_share(const Limits& of_run, double may_move = Sampling{}.may_move) const;
  /// At least half of its samples are steady, and those count alone.
  bool is_steady() const;

 private:
  std::vector<double> shares() const;
};

/// Headings of the table, in its order.
inline constexpr const char *kProducts = "matrix products", *kAttention = "attention",
                            *kElements = "rows and elements", *kOptimizer = "optimizer",
                            *kTraining = "training step", *kDecoding = "decoding";
inline constexpr const char* kGroups[] = {kProducts,  kAttention, kElements,
                                          kOptimizer, kTraining,  kDecoding};

/// On what, and by what, it was measured.
struct Circumstances {
  std::string processor;      ///< "AMD EPYC"
  std::string processor_key;  ///< see processor.h: only figures of one key are compared
  std::string cpu_class;      ///< in words
  int64_t threads = 1;
  int64_t cores = 1;   ///< this process could have used
  bool quick = false;  ///< smaller shapes: not to be compared with others
  std::string date, version, commit, compiler, libtorch;
};

struct Report {
  Circumstances on;
  std::vector<Row> rows;
  /// Every reading between runs.
  std::vector<Limits> readings;

  Limits limits() const;              ///< medians of the readings; all 0 without any
  Limits undisturbed_limits() const;  ///< what nine of ten readings stay below
  /// REQUIRES: the row is of this report.
  double best_share(const Row& row) const {
    return row.best_share(row.of_run.f32_flops > 0 ? row.of_run : undisturbed_limits());
  }
  const Row* find(const std::string& id) const;
};

Json to_json(const Report& report);
/// Errors: DataError naming the key that is missing or of another type, or no number above 0.
Report report_from_json(const Json& json);
/// Errors: those of report_from_json, with the file named, and of read_json_file.
Report read_report(const std::filesystem::path& path);

/// One table for the terminal, in its language.
std::string describe(const Report& report);

}  // namespace danlu::bench
