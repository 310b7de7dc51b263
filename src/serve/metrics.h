// serve/metrics.h: counts and times of answers, in Prometheus' text under vLLM's names.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "infer/engine.h"

namespace danlu::serve {

/// When things happened to one request, in seconds of base/clock.h; 0: not yet.
struct RequestTimes {
  double submitted_s = 0, begun_s = 0, first_token_s = 0, last_token_s = 0;
  int64_t prompt_tokens = 0, new_tokens = 0;
};

/// Cumulative, as Prometheus' histograms are.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  /// The lines of one metric.
  std::string text(const std::string& name, const std::string& help,
                   const std::string& labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;  ///< of each bucket alone; the last has no bound
  double sum_ = 0;
};

/// Thread-safe.
class Metrics {
 public:
  Metrics();
  /// `times` before this token.
  void count_token(const RequestTimes& times, double now_s);
  /// finish: "stop", "length", "abort", "error".
  void count_end(const RequestTimes& times, const std::string& finish, double now_s);
  void count_step(int64_t tokens);
  /// max_pages: 0 for no limit.
  std::string text(const std::string& model, const infer::EngineCounts& counts,
                   int64_t max_pages) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_token_, between_tokens_, whole_, queue_, prefill_, decode_, inference_,
      step_tokens_, prompt_, answer_;
  std::map<std::string, uint64_t> ended_;
};

}  // namespace danlu::serve
