#include "train/run_dir/held_out.h"

#include "base/file.h"
#include "base/json.h"

namespace danlu::train {

void write_held_out(const std::filesystem::path& run_directory,
                    const data::SampleSource& validation, const text::Tokenizer& tokenizer) {
  AtomicFile file(run_directory / "val_dataset.jsonl");
  for (int64_t i = 0; i < validation.size(); ++i) {
    const data::Sample sample = validation.get(i);
    for (size_t s = 0; s < sample.segments.size(); ++s) {
      const auto begin = static_cast<size_t>(sample.segments[s]);
      const size_t end = s + 1 < sample.segments.size()
                             ? static_cast<size_t>(sample.segments[s + 1])
                             : sample.ids.size();
      const std::vector<int32_t> ids(sample.ids.begin() + begin, sample.ids.begin() + end);
      const std::vector<int32_t> labels(sample.labels.begin() + begin, sample.labels.begin() + end);
      const Json row = {{"input_ids", ids}, {"labels", labels}, {"text", tokenizer.decode(ids)}};
      file.write(row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    }
  }
  file.commit();
}

}  // namespace danlu::train
