// data/text_record.h: a text as one sequence of a token store.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace danlu::data {

/// A text as whole numbers: its length in bytes, then its bytes, padded.
std::vector<int32_t> text_record(std::string_view text);
/// The other way. `origin` begins error texts. Errors: DataError if text_record wrote no such
/// sequence.
std::string read_text_record(std::span<const int32_t> record, const std::string& origin);

}  // namespace danlu::data
