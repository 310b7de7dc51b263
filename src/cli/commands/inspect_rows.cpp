#include "cli/commands/inspect_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "arch/model_config.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/commands/inspect_model.h"
#include "data/preprocess_encode.h"
#include "data/preprocess_report.h"
#include "data/readers/row_json.h"
#include "data/readers/row_reader.h"
#include "settings/options/media_flags.h"
#include "text/template_choice.h"

namespace danlu::cli {
namespace {

/// Rows whose types are looked at; beyond them rows are only counted.
constexpr int64_t kTypedRows = 100'000;
/// Smaller data sets are read before anybody looks.
constexpr uint64_t kSlowKb = 100'000;
constexpr size_t kShownRowBytes = 600;
constexpr size_t kShownColumns = 40;

std::string json_type_name(const Json& value) {
  if (value.is_number_integer()) return "integer";
  if (value.is_number()) return "number";
  if (value.is_boolean()) return "true/false";
  return value.type_name();  // null, string, array, object
}

/// What the columns of the rows hold, in the order in which they appear.
class ColumnTypes {
 public:
  void add(const Json& row) {
    ++rows_;
    if (!row.is_object()) {
      ++other_rows_[json_type_name(row)];
      return;
    }
    for (const auto& [name, value] : row.items()) {
      auto found = index_.find(name);
      if (found == index_.end()) {
        found = index_.emplace(name, columns_.size()).first;
        columns_.push_back({name, {}});
      }
      ++columns_[found->second].counts[json_type_name(value)];
    }
  }

  std::vector<std::string> names_except(const std::vector<std::string>& read) const {
    std::vector<std::string> names;
    for (const Column& column : columns_) {
      if (std::find(read.begin(), read.end(), column.name) == read.end())
        names.push_back(column.name);
    }
    return names;
  }

  /// "instruction  string", "history  array (9), missing (1)".
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    size_t width = 0;
    for (const Column& column : columns_) width = std::max(width, column.name.size());
    width = std::min<size_t>(width, 32);
    for (const Column& column : columns_) {
      if (lines.size() == kShownColumns) {
        lines.push_back(fmt::format("and {} more", columns_.size() - kShownColumns));
        break;
      }
      lines.push_back(fmt::format("{:<{}}  {}", column.name, width, types_of(column)));
    }
    for (const auto& [type, count] : other_rows_) {
      lines.push_back(fmt::format("{} {} no object but: {}", format_count(count),
                                  count == 1 ? "row is" : "rows are", type));
    }
    return lines;
  }

 private:
  struct Column {
    std::string name;
    std::map<std::string, uint64_t> counts;
  };

  std::string types_of(const Column& column) const {
    std::vector<std::pair<uint64_t, std::string>> types;
    uint64_t present = 0;
    for (const auto& [type, count] : column.counts) {
      types.emplace_back(count, type);
      present += count;
    }
    std::stable_sort(types.begin(), types.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    if (present < rows_) types.emplace_back(rows_ - present, "missing");
    if (types.size() == 1) return types[0].second;
    std::string text;
    for (const auto& [count, type] : types) {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", type, format_count(count));
    }
    return text;
  }

  uint64_t rows_ = 0;
  std::vector<Column> columns_;
  std::map<std::string, size_t> index_;
  std::map<std::string, uint64_t> other_rows_;
};

/// Everything that one pass over the rows tells.
struct Survey {
  int64_t rows = 0;
  ColumnTypes types;
  data::DetectionRows first_rows;
  std::optional<data::RawRow> shown;
};

Survey survey_rows(const data::Dataset& dataset, int64_t shown_row) {
  Survey survey;
  uint64_t total_kb = 1;
  for (const data::DataFile& file : dataset.files) total_kb += file.size_bytes / 1000;
  std::optional<ProgressBar> bar;
  if (total_kb > kSlowKb) bar.emplace("reading", total_kb, "kB");
  data::RowReader reader(dataset);
  watch_interrupts();
  for (std::vector<data::RawRow> block; reader.next_block(&block); block.clear()) {
    for (data::RawRow& row : block) {
      if (row.is_json && survey.rows < kTypedRows) {
        Json value = data::parse_row(dataset, row);
        survey.types.add(value);
        if (survey.first_rows.wants_more())
          survey.first_rows.add(std::move(value), row.text.size());
      }
      if (survey.rows++ == shown_row) survey.shown = std::move(row);
    }
    if (bar) bar->update(reader.bytes_read() / 1000);
    if (const int signal = pending_interrupt()) throw_interrupted(signal, "[inspect] stopped");
  }
  if (bar) bar->finish();
  if (survey.rows == 0) throw DataError(tr("[dataset] {}: holds no row", dataset.name));
  return survey;
}

/// At most so many bytes, cut between characters.
std::string shortened(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return fmt::format("{} … ({} more)", text.substr(0, end), format_bytes(text.size() - end));
}

std::string on_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// The row as training sees it: ids decoded, what carries no loss as [-100 * n].
std::string rendered(const data::Dataset& dataset, const data::RowHandler& handler,
                     const data::RawRow& row, const std::string& model,
                     const std::optional<data::MediaSettings>& media) {
  data::EncodeSettings settings;
  settings.tokenizer = text::Tokenizer::load(model);
  if (handler.kind() == data::SampleKind::kTokens)
    settings.media = data::make_media_encoder(media, settings.tokenizer.get());
  settings.sample_kind = handler.kind();
  if (handler.needs_template()) {
    const fs::path directory = text::directory_of_model(model);
    settings.chat_encoder =
        text::choose_template(
            settings.tokenizer,
            {.recorded_in = directory, .family_default = arch::default_template_in(directory)})
            .required();
  }
  const data::RowEncoder encoder(settings, handler);
  data::EncodedBatch batch;
  encoder.encode(dataset, row, &batch);
  if (batch.rows_kept == 0) {
    const data::RowEvent& event = batch.events.at(0);
    return fmt::format("dropped: {}{}\n", event.reason,
                       event.detail.empty() ? "" : " (" + event.detail + ")");
  }
  return data::describe_first(settings, batch);
}

}  // namespace

bool is_row_dataset(const std::string& path) {
  if (fs::is_regular_file(path)) return data::file_type_of(path).has_value();
  try {
    data::resolve_dataset(path);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

void inspect_rows(const std::string& path, const Options& options) {
  std::optional<data::MediaSettings> media;
  if (options.is_set("model")) {
    media = settings::media_settings_from(options,
                                          text::directory_of_model(options.get_string("model")));
  }
  data::FormatOptions format;
  // Without a model the columns are shown all the same.
  format.reads_media = media || !options.is_set("model");
  format.kind.reset();
  const data::Dataset dataset = data::resolve_dataset(path, format);
  const int64_t shown_row = options.is_set("sample") ? options.get_int("sample") : 0;
  const Survey survey = survey_rows(dataset, shown_row);
  if (!survey.shown) {
    throw UsageError(
        tr("[sample] {}: there are rows 0 to {}, got {}", path, survey.rows - 1, shown_row));
  }
  std::fputs(fmt::format("{}: data set\n", path).c_str(), stdout);
  print_line("files", dataset.summary);
  print_line("rows", format_count(static_cast<uint64_t>(survey.rows)));
  std::string label = "columns";
  for (const std::string& line : survey.types.lines()) print_line(std::exchange(label, ""), line);
  const bool plain_text = dataset.files[0].type == data::FileType::kText;
  if (survey.rows > kTypedRows && !plain_text)
    print_line("", fmt::format("(types: of the first {} rows)", format_count(kTypedRows)));
  std::unique_ptr<data::RowHandler> handler;
  try {
    handler = data::make_row_handler(dataset.format, survey.first_rows.rows(), plain_text);
    print_line("layout", handler->description());
    if (const auto unread = survey.types.names_except(handler->columns()); !unread.empty())
      print_line("not read", fmt::format("{}", fmt::join(unread, ", ")));
  } catch (const Error& e) {
    print_line("layout", fmt::format("not recognised: {}", e.what()));
    if (options.is_set("model")) throw;
  }
  print_line(fmt::format("row {}", shown_row),
             shortened(on_one_line(survey.shown->text), kShownRowBytes));
  if (!options.is_set("model")) return;
  std::fputs(rendered(dataset, *handler, *survey.shown, options.get_string("model"), media).c_str(),
             stdout);
}

}  // namespace danlu::cli
