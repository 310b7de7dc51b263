// data/step_text.h: a text of steps as ids, and where in it each step ends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/formats/row.h"
#include "text/tokenizer.h"

namespace danlu::data {

/// The single token that `text` becomes; -1 if it is none.
int32_t single_token(const text::Tokenizer& tokenizer, const std::string& text);

/// The ids of StepsRow::text, or of its steps, each a line with the placeholder after it.
struct StepText {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<size_t> places;  ///< of ids, the placeholder after each step
  size_t written = 0;  ///< placeholders in `text`; more than places: some are no token of their own
};

/// Immutable; thread-safe.
class StepTexts {
 public:
  /// placeholder: the token behind each step. Errors: ModelError if it is no single token.
  StepTexts(std::shared_ptr<const text::Tokenizer> tokenizer, const std::string& placeholder);
  /// Where the tokenizer makes other tokens of a placeholder and what is around it, the text is cut
  /// at those that stand by themselves, if they are as many as the row's values.
  StepText read(const StepsRow& row) const;

 private:
  void cut_at_placeholders(StepText& found, size_t wanted) const;

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::string placeholder_;
  std::vector<int32_t> ids_;  ///< of the placeholder
  const char* before_;        ///< what stands between a step and its placeholder
};

}  // namespace danlu::data
