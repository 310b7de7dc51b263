// tests/cli/guide_runs.h: a guide's training line of several processes, run on a narrow model.
#pragma once
#include <set>
#include <string>

#include "cli/guide_lines.h"
#include "cli/launch.h"
#include "support/slow.h"

namespace danlu::test {

/// Parts of the value.
struct Tolerance {
  double loss, norm;
};
inline constexpr Tolerance kSameNumbers{1e-5, 1e-5};

class GuideRuns : public Launch, public testing::WithParamInterface<GuideLine> {
 protected:
  void SetUp() override;
  std::string at(const std::string& name) const { return ((*this) / name).string(); }
  ProgramResult ok(const Words& words, const Values& environment = {}) const;
  /// By the guide's line where it prints one.
  void convert() const;

  struct Run {
    Words words;
    Values environment;
  };
  /// The line as it stands, but for paths, the port, sizes of the model, lengths and steps.
  Run line(Source source, const std::string& run) const;
  /// On one process the samples of a step go one way only.
  static Run alone(Run run);
  static Run in_f32(Run run);
  /// The directory of the last checkpoint, as the run says it.
  std::string train(Run run) const;
  const ProgramResult& last() const { return last_; }

  void expect_steps_of(const std::string& one, const std::string& checkpoint,
                       const Tolerance& tolerance) const;
  /// The guide's words of inference; greedily.
  Run question(const std::string& checkpoint, Source source) const;
  std::string answer(const Run& question) const;

 private:
  void write_model() const;
  void write_data() const;
  Run printed_line(Source source, const std::string& run, const std::string& port) const;
  Run script_line(Source source, const std::string& run, const std::string& port) const;

  mutable ProgramResult last_;
};

Words joined(Words words, const Words& more);
/// Every `flag value` and `flag=value` whose flag is in `values` with that value; others as they
/// are.
Words with_values(Words words, const Values& values);

}  // namespace danlu::test
