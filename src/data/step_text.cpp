#include "data/step_text.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace danlu::data {
namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

/// Where `word` stands in `text` by itself.
std::vector<size_t> places_of_word(std::string_view text, std::string_view word) {
  std::vector<size_t> places;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size())) {
    const size_t end = at + word.size();
    if ((at == 0 || is_space(text[at - 1])) && (end == text.size() || is_space(text[end])))
      places.push_back(at);
  }
  return places;
}

}  // namespace

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
  const size_t wanted = row.values.empty() ? found.written : row.values.size();
  if (found.places.size() != wanted) cut_at_placeholders(found, wanted);
  return found;
}

void StepTexts::cut_at_placeholders(StepText& found, size_t wanted) const {
  const std::vector<size_t> words = places_of_word(found.text, placeholder_);
  if (words.size() != wanted) return;
  found.ids.clear();
  found.places.clear();
  found.written = wanted;
  size_t begin = 0;
  const auto append = [&](size_t end) {
    tokenizer_->encode_append(std::string_view(found.text).substr(begin, end - begin), false,
                              found.ids);
  };
  for (const size_t word : words) {
    size_t end = word;
    while (end > begin && found.text[end - 1] == ' ') --end;
    append(end);
    found.places.push_back(found.ids.size());
    found.ids.push_back(ids_.front());
    begin = word + placeholder_.size();
  }
  append(found.text.size());
}

}  // namespace danlu::data
