// tests/cli/logged_steps.h: what a run has logged of its steps.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"

namespace danlu::test {

/// One entry of logging.jsonl a step.
inline std::vector<Json> steps_of(const std::filesystem::path& run) {
  std::vector<Json> steps;
  std::ifstream file(run / "logging.jsonl");
  for (std::string line; std::getline(file, line);) {
    Json record = Json::parse(line);
    if (record.contains("loss")) steps.push_back(std::move(record));
  }
  return steps;
}

/// Losses to fp32 rounding.
inline void expect_same_losses(const std::filesystem::path& wanted,
                               const std::filesystem::path& run, size_t count) {
  const auto want = steps_of(wanted), got = steps_of(run);
  ASSERT_EQ(want.size(), count);
  ASSERT_EQ(got.size(), count);
  for (size_t i = 0; i < count; ++i) {
    const double loss = want[i].at("loss");
    EXPECT_NEAR(got[i].at("loss").get<double>(), loss, 1e-5 * loss) << i;
  }
}

}  // namespace danlu::test
