// cli/engine/answer_rules.h: what flags ask of answers: penalties, biases, least lengths, forms,
// texts that end them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "api/answer_reader.h"
#include "base/options.h"
#include "cli/engine/load_for_inference.h"
#include "grammar/compiler.h"
#include "infer/logit_rules.h"

namespace danlu::cli {

/// --stop_words. Errors: UsageError for an empty one.
std::vector<std::string> stop_words_from(const Options& options);

class AnswerRules {
 public:
  /// num_beams: above 1 no token is chosen by itself. Errors: UsageError for flags that make no
  /// sense or not together, and as grammar::Compiler; IoError, ParseError for the schema's file.
  AnswerRules(const Options& options, const InferenceModel& loaded, int64_t num_beams);

  /// For one answer.
  infer::LogitRules fresh() const;
  /// What makes text of an answer's tokens. An answer without a template goes on with its prompt's
  /// text, as the server's completions do.
  api::AnswerReader reader(const infer::Request& request) const;
  /// The same for all answers, but for AnswerReaderSettings::before.
  const api::AnswerReaderSettings& reading() const { return reading_; }
  bool continues_text() const { return continues_text_; }
  /// What the files that flags name say, for comparisons of runs.
  const std::string& identity() const { return schema_; }

 private:
  infer::LogitRules rules_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  api::AnswerReaderSettings reading_;
  bool continues_text_;
  std::unique_ptr<const grammar::Compiler> compiler_;
  std::shared_ptr<const grammar::Grammar> form_;
  std::string schema_;
};

}  // namespace danlu::cli
