// data/llava_rows.h: LLaVA's instruction rows as the rows that MindSpeed-MM reads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "data/preprocess_report.h"

namespace danlu::data {

struct LlavaRowsSpec {
  std::string input;                ///< path[:split][#n], see resolve_dataset
  std::filesystem::path image_dir;  ///< pictures lie there under the names that rows have
  std::filesystem::path output;     ///< a JSON list
  double max_dropped_ratio = kMaxDroppedRatio;
  bool strict = false;  ///< a missing picture is an error
};

/// {"image": "a.jpg", "conversations": [{"from": "human", "value": …}]} becomes {"images":
/// ["<image_dir>/a.jpg"], "messages": [{"role": "user", "content": …}]}; rows without a picture
/// keep an empty list. Rows whose picture is not there are dropped and counted. The output is never
/// replaced. Errors: UsageError (it exists); DataError naming the row (another shape, a role that
/// is neither human nor gpt); those of RowReader and judge_dropped; IoError.
PreprocessReport convert_llava_rows(const LlavaRowsSpec& spec);

}  // namespace danlu::data
