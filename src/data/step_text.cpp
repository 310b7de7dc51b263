#include "data/step_text.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace danlu::data {

int32_t single_token(const text::Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  tokenizer.encode_append(text, false, ids);
  return ids.size() == 1 ? ids[0] : -1;
}

StepTexts::StepTexts(std::shared_ptr<const text::Tokenizer> tokenizer,
                     const std::string& placeholder)
    : tokenizer_(std::move(tokenizer)), placeholder_(placeholder) {
  // Tokenizers that mark words by the space before them have two tokens for it.
  for (const std::string& text : {placeholder, " " + placeholder}) {
    const int32_t id = single_token(*tokenizer_, text);
    if (id >= 0) ids_.push_back(id);
  }
  if (placeholder.empty() || ids_.empty()) {
    throw ModelError(
        tr("[placeholder_token] \"{}\" is no single token of this tokenizer", placeholder),
        tr("name a token that stands behind each step: --placeholder-token"));
  }
  // Where a space before it makes it several tokens, it begins a line.
  before_ = single_token(*tokenizer_, " " + placeholder) >= 0 ? " " : "\n";
}

StepText StepTexts::read(const StepsRow& row) const {
  StepText found{row.text, {}, {}};
  for (const std::string& step : row.steps) {
    if (!found.text.empty()) found.text += '\n';
    found.text += step + before_ + placeholder_;
  }
  tokenizer_->encode_append(found.text, false, found.ids);
  for (size_t i = 0; i < found.ids.size(); ++i) {
    if (std::find(ids_.begin(), ids_.end(), found.ids[i]) != ids_.end()) found.places.push_back(i);
  }
  for (size_t at = found.text.find(placeholder_); at != std::string::npos;
       at = found.text.find(placeholder_, at + placeholder_.size()))
    ++found.written;
  return found;
}

}  // namespace danlu::data
