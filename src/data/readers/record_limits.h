// data/readers/record_limits.h: how large one row may be, whatever its file unpacks to. Far above
// any sample of text, and what they allow fits any machine.
#pragma once
#include <cstddef>
#include <string>

namespace danlu::data {

/// The largest text of a record as it stands in the (unpacked) file, and of a table's row as JSON.
/// Readers hold a small multiple of it at most.
inline constexpr size_t kMaxRecordBytes = size_t{128} << 20;
/// Keys of one object, columns of a table.
inline constexpr size_t kMaxColumns = 10'000;
/// Values of a row, nested ones included: a value takes more memory than the two bytes it may have
/// in the text.
inline constexpr size_t kMaxRowValues = size_t{1} << 24;

/// Throws the DataError "<place>: a row of more than 128 MiB".
[[noreturn]] void refuse_long_record(const std::string& place);
/// Throws the DataError "<place>: <what> has more than 10000 columns".
[[noreturn]] void refuse_wide_record(const std::string& place, const char* what);

}  // namespace danlu::data
