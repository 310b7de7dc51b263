// data/vocabulary_check.h: token ids of a file that another tokenizer made.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

namespace danlu::data {

/// Checks `ids`, which are tokens [offset, …) of sequence `sequence` of `file`. kIgnoreLabel
/// passes. vocab_size: ids are in [0, vocab_size); 0: nothing is checked. Errors: DataError naming
/// file, sequence, position and id.
void check_vocabulary(const std::filesystem::path& file, int64_t sequence, int64_t offset,
                      std::span<const int32_t> ids, int64_t vocab_size);

}  // namespace danlu::data
