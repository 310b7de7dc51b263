#include "data/text_record.h"

#include <cstring>
#include <limits>

#include "base/error.h"

namespace danlu::data {

std::vector<int32_t> text_record(std::string_view text) {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw DataError(tr("a text of {} bytes is too long", text.size()));
  std::vector<int32_t> record(1 + (text.size() + 3) / 4);
  record[0] = static_cast<int32_t>(text.size());
  std::memcpy(record.data() + 1, text.data(), text.size());
  return record;
}

std::string read_text_record(std::span<const int32_t> record, const std::string& origin) {
  const auto size = record.empty() ? size_t{0} : static_cast<size_t>(record[0]);
  if (record.empty() || record[0] < 0 || record.size() != 1 + (size + 3) / 4)
    throw DataError(tr("{}: no text of the length that it names", origin));
  std::string text(size, '\0');
  std::memcpy(text.data(), record.data() + 1, size);
  return text;
}

}  // namespace danlu::data
