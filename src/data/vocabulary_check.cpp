#include "data/vocabulary_check.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/ignore_label.h"
#include "base/token_type.h"

namespace danlu::data {

void check_vocabulary(const std::filesystem::path& file, int64_t sequence, int64_t offset,
                      std::span<const int32_t> ids, int64_t vocab_size) {
  if (vocab_size <= 0) return;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_known = ids[i] >= 0 && without_type(ids[i]) < vocab_size;
    if (is_known || ids[i] == kIgnoreLabel) continue;
    throw DataError(
        tr("{}: token {} of sequence {} is {}, not in the tokenizer's vocabulary: ids are "
           "0 to {}",
           file.string(), offset + static_cast<int64_t>(i), sequence, ids[i], vocab_size - 1),
        tr("the data were made with another tokenizer; run `danlu preprocess` with this model's, "
           "or name the right one with --tokenizer"));
  }
}

}  // namespace danlu::data
