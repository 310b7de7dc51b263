// measure/suite.h: everything that `danlu bench` measures.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/report.h"
#include "measure/gauge.h"

namespace danlu::measure {

struct SuiteOptions {
  std::vector<at::ScalarType> types = {at::kFloat, at::kBFloat16};
  /// "limits", "ops", "step", "decode"; limits are always measured.
  std::vector<std::string> parts = {"ops", "step", "decode"};
  size_t threads = 1;
  /// "ops" are measured on the CPU alone.
  at::Device device = at::kCPU;
  bool quick = false;  ///< smaller shapes and fewer samples
  /// Rows alone whose id is one of these; empty: all of the parts.
  std::vector<std::string> only = {};
  /// Ids that start with this take a fifth longer: that the comparison finds it, is tried so.
  std::string slowed = {};
};

/// Whether such a row is measured with these options.
bool belongs(const bench::Row& row, const SuiteOptions& options);

/// Called with the id of what is measured next, how many are done, and how many there are;
/// at the end with an empty id.
using Progress = std::function<void(const std::string& id, size_t done, size_t count)>;

/// Rows and readings; what they were measured on is the caller's to say.
/// Errors: UsageError if no row of the parts starts with `slowed`; not asked where `only` chooses.
bench::Report run_suite(const SuiteOptions& options, Gauge& gauge, const Progress& progress);

}  // namespace danlu::measure
