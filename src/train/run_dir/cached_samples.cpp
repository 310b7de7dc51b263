#include "train/run_dir/cached_samples.h"

#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace danlu::train {
namespace {

void require_plain(const settings::TrainConfig& config, const PreparedData& data) {
  const bool has_samples = config.task == settings::Task::kSft || !config.data.uses_template;
  const bool is_plain = has_samples && !config.data.pack_sequences &&
                        config.objective.kind == settings::ObjectiveKind::kLanguage &&
                        data.most_patches == 0;
  if (is_plain) return;
  throw UsageError(
      tr("[train] {}: samples of danlu sft are written, of text alone and not packed",
         config.flag("write_samples")),
      tr("name the rows in --dataset: their tokens are kept in the cache by themselves"));
}

void write_rows(const std::filesystem::path& directory, const data::SampleSource& samples) {
  std::filesystem::create_directories(directory);
  AtomicFile file(directory / "rows.jsonl");
  for (int64_t i = 0; i < samples.size(); ++i) {
    const data::Sample sample = samples.get(i);
    const bool has_more = sample.segments.size() > 1 || !sample.position_starts.empty() ||
                          !sample.segment_values.empty() || !sample.segment_labels.empty() ||
                          !sample.token_columns.empty() || !sample.media.empty();
    if (sample.labels_are_targets || has_more)
      throw UsageError(tr("[train] sample {} is of files that were tokenised beforehand", i),
                       tr("these are what --dataset takes as they are"));
    file.write(Json{{"input_ids", sample.ids}, {"labels", sample.labels}}.dump() + "\n");
  }
  file.commit();
  log::info("{} samples: {}", samples.size(), (directory / "rows.jsonl").string());
}

}  // namespace

void require_no_cached_samples(const settings::TrainConfig& config) {
  const std::filesystem::path& directory = config.data.write_to;
  std::error_code unknown;
  for (const char* part : {"train", "val"}) {
    const std::filesystem::path file = directory / part / "rows.jsonl";
    if (directory.empty() || !std::filesystem::exists(file, unknown)) continue;
    throw UsageError(tr("[train] {} {}: {} is there already", config.flag("write_samples"),
                        directory.string(), file.string()),
                     tr("name another directory, or remove that one"));
  }
}

void write_cached_samples(const settings::TrainConfig& config, const PreparedData& data) {
  require_plain(config, data);
  const std::filesystem::path& directory = config.data.write_to;
  write_rows(directory / "train", *data.train);
  if (data.validation) write_rows(directory / "val", *data.validation);
  log::info("next: danlu sft --cached_dataset {}{} …", (directory / "train").string(),
            data.validation ? " --cached_val_dataset " + (directory / "val").string() : "");
}

}  // namespace danlu::train
