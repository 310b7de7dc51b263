// cli/engine/infer_resume.h: the answers that a killed `danlu infer --output FILE` left, for the
// same request given again.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"
#include "cli/engine/infer_output.h"
#include "cli/engine/infer_rows.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// What answers depend on: in a line of its own model, template, flags and how pictures are read;
/// then, where `questions` have pictures, a hash for each of what these hold. The rest of the
/// questions the rows tell.
std::string request_identity(const Options& options, const InferenceModel& loaded,
                             const std::vector<Question>& questions);

/// Beside FILE.partial while that grows: its request's identity.
fs::path request_file_of(const fs::path& output);

struct EarlierAnswers {
  std::vector<Outcome> outcomes;  ///< of the first questions, each with its row in `text`
  std::string text;
};

/// The whole rows at the head of FILE.partial that answer `questions` in order; none if the file is
/// another request's. An answer that a signal cut short ends them, and so does one about a picture
/// whose file holds something else now. `identity`: request_identity's, of these questions.
EarlierAnswers earlier_answers(const fs::path& output, const std::string& identity,
                               const std::vector<Question>& questions);

}  // namespace danlu::cli
