#include "plan/data_pictures.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "data/media_encoder.h"
#include "data/megatron/preference_datasets.h"
#include "data/preprocess_run.h"
#include "data/readers/dataset_name.h"
#include "data/readers/row_reader.h"
#include "settings/options/media_flags.h"

namespace danlu::plan {
namespace {

constexpr int64_t kRowsLookedAt = 1000;
/// A token before the pictures of a sample and one after them.
constexpr int64_t kTokensAround = 2;

/// `described`: dataset_info.json says what names mean.
bool holds_rows(const std::string& name, bool described) {
  return (described || std::filesystem::exists(data::parse_dataset_name(name).path)) &&
         !data::samples_exist(name);
}

void add_conversation(const text::Conversation& conversation, const data::MediaEncoder& encoder,
                      const std::filesystem::path& folder, int64_t longest, DataPictures* found) {
  std::vector<data::MediaSpan> spans;
  data::RowProblem problem;
  if (!encoder.measure(conversation, folder, "", &spans, &problem)) return;
  int64_t tokens = 0, patches = 0, frame = 0;
  for (const data::MediaSpan& span : spans) {
    tokens += span.count;
    patches += span.grid.patches();
    frame = std::max(frame, span.grid.h * span.grid.w);
  }
  if (tokens > 0 && tokens + kTokensAround > longest) return;
  ++found->samples;
  found->visual_tokens += tokens;
  found->most_patches = std::max(found->most_patches, patches);
  found->most_frame_patches = std::max(found->most_frame_patches, frame);
}

/// How many rows of each of `count` data sets are looked at, in their order.
std::vector<int64_t> rows_to_look_at(const settings::DataConfig& data, int64_t count) {
  const auto limited = [](int64_t rows, int64_t most) {
    return most < 0 ? rows : std::min(rows, most);
  };
  int64_t left = limited(kRowsLookedAt, data.max_rows_of_all);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) {
    rows.push_back(
        limited(std::max<int64_t>(std::min<int64_t>(left, 1), left / (count - i)), data.max_rows));
    left -= rows.back();
  }
  return rows;
}

void add_rows(const data::PlannedDataset& planned, int64_t rows, const data::MediaEncoder& encoder,
              int64_t longest, DataPictures* found) {
  data::RowReader reader(planned.dataset);
  data::ColumnCounts unread;
  for (std::vector<data::RawRow> block; rows > 0 && reader.next_block(&block); block.clear()) {
    for (const data::RawRow& raw : block) {
      if (rows-- == 0) return;
      const data::RowResult read = data::read_row(*planned.handler, planned.dataset, raw, &unread);
      const auto* row = std::get_if<data::Row>(&read);
      const auto* conversation = row ? std::get_if<text::Conversation>(row) : nullptr;
      if (!conversation) continue;
      add_conversation(*conversation, encoder, planned.dataset.files[raw.file].path.parent_path(),
                       longest, found);
    }
  }
}

}  // namespace

std::optional<DataPictures> pictures_in_data(const settings::TrainConfig& config) {
  const std::vector<std::string>& names = config.data.train;
  if (config.task != settings::Task::kSft || names.empty() ||
      config.objective.kind != settings::ObjectiveKind::kLanguage)
    return std::nullopt;
  const bool described = !config.data.dataset_dir.empty() &&
                         std::filesystem::exists(config.data.dataset_dir / "dataset_info.json");
  if (!std::all_of(names.begin(), names.end(),
                   [&](const std::string& name) { return holds_rows(name, described); }))
    return std::nullopt;
  DataPictures found;
  try {
    const auto settings =
        data::media_settings_of(settings::processor_directory(config), config.data.media);
    if (!settings) return std::nullopt;
    data::FormatOptions format{.handler_name = config.data.handler_name,
                               .json_keys = config.data.json_keys};
    if (!config.data.columns.is_null()) format.columns = config.data.columns;
    if (!config.data.map_keys.is_null()) format.map_keys = config.data.map_keys;
    format.reads_media = true;
    const data::MediaEncoder encoder(*settings, {}, data::MediaCheck::kHeaders);
    const auto datasets = data::plan_datasets(names, format, config.data.dataset_dir);
    const std::vector<int64_t> rows = rows_to_look_at(config.data, std::ssize(datasets));
    for (size_t i = 0; i < datasets.size(); ++i)
      add_rows(datasets[i], rows[i], encoder, config.longest_sample(), &found);
  } catch (const Error& error) {
    log::notice("the data's pictures are not looked at: {}", error.what());
    return std::nullopt;
  }
  if (found.samples == 0) return std::nullopt;
  return found;
}

}  // namespace danlu::plan
