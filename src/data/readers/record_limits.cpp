#include "data/readers/record_limits.h"

#include <fmt/format.h>

#include "base/error.h"

namespace danlu::data {

void refuse_long_record(const std::string& place) {
  throw DataError(
      tr("{}: a row of more than {} MiB: none so long is read", place, kMaxRecordBytes >> 20),
      tr("cut it into several rows"));
}

void refuse_wide_record(const std::string& place, const char* what) {
  throw DataError(
      tr("{}: {} has more than {} columns: none so wide is read", place, what, kMaxColumns),
      tr("keep the columns that hold text: a row is one sample, not a table"));
}

}  // namespace danlu::data
