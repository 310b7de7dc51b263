#include "settings/options/registered_rows.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "data/readers/data_files.h"
#include "data/readers/row_reader.h"
#include "data/tokenized_dataset.h"

namespace danlu::settings {
namespace {

/// Changes when a file of the data set does.
uint64_t fingerprint(const data::Dataset& dataset) {
  std::string text;
  for (const data::DataFile& file : dataset.files) {
    text += fmt::format("{}:{}:{};", file.path.string(), file.size_bytes,
                        fs::last_write_time(file.path).time_since_epoch().count());
  }
  return hash_bytes(text);
}

Json joined(const Json& row, const std::string& place) {
  const auto input = json_get<std::string>(row, "input"),
             output = json_get<std::string>(row, "output"),
             answer = json_get<std::string>(row, "answer");
  if (!input || !output || !answer)
    throw DataError(tr("{}: input, output and answer are expected", place));
  return {{"query", *input}, {"response", *output + "\n\nAnswer: " + *answer}};
}

}  // namespace

fs::path joined_blossom_math(const fs::path& source, const fs::path& cache_dir) {
  const data::Dataset dataset = data::resolve_dataset(source.string());
  const fs::path target =
      cache_dir / "registered" / fmt::format("blossom-math-zh-{:016x}.jsonl", fingerprint(dataset));
  if (fs::exists(target)) return target;
  data::require_cache_directory(target.parent_path());
  AtomicFile file(target);
  data::RowReader reader(dataset);
  data::RowPlaces places(dataset);
  for (std::vector<data::RawRow> rows; reader.next_block(&rows); rows.clear()) {
    for (const data::RawRow& row : rows) {
      const std::string place = places.of(row.file, row.index);
      file.write(joined(parse_json(row.text, place), place).dump() + "\n");
    }
  }
  file.commit();
  return target;
}

}  // namespace danlu::settings
