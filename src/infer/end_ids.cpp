#include "infer/end_ids.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace danlu::infer {

std::vector<text::TokenId> end_ids(std::vector<text::TokenId> of_files,
                                   const text::Tokenizer& tokenizer,
                                   const text::ChatEncoder* encoder) {
  std::vector<text::TokenId> ids = std::move(of_files);
  if (const auto eos = tokenizer.eos_id()) ids.push_back(*eos);
  if (encoder) {
    const std::vector<text::TokenId> of_template = encoder->stop_ids();
    ids.insert(ids.end(), of_template.begin(), of_template.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace danlu::infer
