#include "train/run_dir/cached_samples.h"

#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace danlu::train {
namespace {

void require_plain(const settings::TrainConfig& config, const PreparedData& data) {
  const bool is_plain = config.task == settings::Task::kSft && !config.data.pack_sequences &&
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
    if (sample.labels_are_targets || !sample.media.empty())
      throw UsageError(tr("[train] sample {} is of files that were tokenised beforehand", i),
                       tr("these are what --dataset takes as they are"));
    file.write(Json{{"input_ids", sample.ids}, {"labels", sample.labels}}.dump() + "\n");
  }
  file.commit();
  log::info("{} samples: {}", samples.size(), (directory / "rows.jsonl").string());
}

}  // namespace

void write_cached_samples(const settings::TrainConfig& config, const PreparedData& data) {
  require_plain(config, data);
  const std::filesystem::path& directory = config.data.write_to;
  write_rows(directory / "train", *data.train);
  if (data.validation) write_rows(directory / "val", *data.validation);
  log::info("next: danlu sft --cached_dataset {}{} …", (directory / "train").string(),
            data.validation ? " --cached_val_dataset " + (directory / "val").string() : "");
}

}  // namespace danlu::train
