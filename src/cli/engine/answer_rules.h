// cli/engine/answer_rules.h: what flags ask of answers: penalties, biases, least lengths, forms.
#pragma once
#include <memory>
#include <string>

#include "base/options.h"
#include "cli/engine/load_for_inference.h"
#include "grammar/compiler.h"
#include "infer/logit_rules.h"

namespace danlu::cli {

class AnswerRules {
 public:
  /// num_beams: above 1 no token is chosen by itself. Errors: UsageError for flags that make no
  /// sense or not together, and as grammar::Compiler; IoError, ParseError for the schema's file.
  AnswerRules(const Options& options, const InferenceModel& loaded, int64_t num_beams);

  /// For one answer.
  infer::LogitRules fresh() const;
  /// What the files that flags name say, for comparisons of runs.
  const std::string& identity() const { return schema_; }

 private:
  infer::LogitRules rules_;
  std::unique_ptr<const grammar::Compiler> compiler_;
  std::shared_ptr<const grammar::Grammar> form_;
  std::string schema_;
};

}  // namespace danlu::cli
