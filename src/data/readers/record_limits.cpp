#include "data/readers/record_limits.h"

#include <fmt/format.h>

#include "base/error.h"

namespace danlu::data {

void refuse_long_record(const std::string& place) {
  throw DataError(fmt::format("{}: a row of more than {} MiB: none so long is read", place,
                              kMaxRecordBytes >> 20),
                  {"cut it into several rows", "请将其拆分为多行"});
}

void refuse_wide_record(const std::string& place, const char* what) {
  throw DataError(fmt::format("{}: {} has more than {} columns: none so wide is read", place, what,
                              kMaxColumns),
                  {"keep the columns that hold text: a row is one sample, not a table",
                   "请只保留文本所在的列：一行是一个样本，而不是一张表"});
}

}  // namespace danlu::data
