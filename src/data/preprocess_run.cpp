#include "data/preprocess_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <csignal>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file_hash.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/threads.h"
#include "data/formats/columns.h"
#include "data/formats/preference_layouts.h"
#include "data/preprocess_pipeline.h"
#include "data/readers/row_json.h"

namespace danlu::data {
namespace {

/// Raised when the same input would give other tokens than before: old caches are then not taken.
constexpr int kContentVersion = 4;
/// The same of rows with several texts.
constexpr int kGroupRules = 1;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void warn_of_json_lines(const Dataset& dataset, const std::string& line) {
  if (!line.starts_with('{') || !try_parse_json(line).value_or(nullptr).is_object()) return;
  log::warning(
      "{}: the first line of this .txt file is a JSON object; it is taken as plain text, braces "
      "and all. Rows in JSON go into a .jsonl file",
      dataset.name);
}

std::vector<Json> first_rows(const Dataset& dataset) {
  RowReader reader(dataset);
  std::vector<RawRow> block;
  DetectionRows first;
  int64_t seen = 0;
  while (first.wants_more() && reader.next_block(&block)) {
    for (const RawRow& row : block) {
      if (!first.wants_more()) break;
      if (const int signal = pending_interrupt()) throw_interrupted(signal, "stopped");
      if (++seen == 1 && !row.is_json) warn_of_json_lines(dataset, row.text);
      first.add(row.is_json ? parse_row(dataset, row) : Json(nullptr), row.text.size());
    }
    block.clear();
  }
  if (seen == 0) throw DataError(tr("[dataset] {}: holds no row", dataset.name));
  if (first.rows().empty()) {
    throw DataError(tr("[dataset] {}: no column of its {} {} has a value", dataset.name, seen,
                       seen == 1 ? "row" : "rows"));
  }
  return first.rows();
}

std::string event_text(const RowEvent& event, const Dataset& dataset) {
  const std::string place = row_place(dataset, event.file, event.index);
  return event.detail.empty() ? place : place + ": " + event.detail;
}

/// --columns is said once for all data sets: a column must be in one of them.
void refuse_unknown_columns(const std::vector<PlannedDataset>& plan,
                            const std::vector<std::vector<Json>>& rows) {
  std::set<std::string> unknown, known;
  for (size_t i = 0; i < plan.size(); ++i) {
    const std::set<std::string> absent =
        ColumnNames(plan[i].dataset.format.columns).absent_from(rows[i]);
    if (i == 0) unknown = absent;
    std::erase_if(unknown, [&](const std::string& column) { return !absent.contains(column); });
    for (const Json& row : rows[i]) {
      if (!row.is_object()) continue;
      for (const auto& [column, value] : row.items()) known.insert(column);
    }
  }
  if (unknown.empty()) return;
  std::string where;
  for (const PlannedDataset& item : plan) where += (where.empty() ? "" : ", ") + item.dataset.name;
  const std::vector<std::string> columns(known.begin(), known.end());
  std::string hint;
  if (const auto near = nearest_name(*unknown.begin(), columns)) {
    hint = tr("did you mean \"{}\"?", *near);
  }
  throw DataError(tr("[columns] none of the first rows of {} has a column \"{}\"; there are: {}",
                     where, fmt::join(unknown, "\", \""),
                     columns.empty() ? "none" : fmt::format("{}", fmt::join(columns, ", "))),
                  hint);
}

[[noreturn]] void refuse_row(const RowEvent& event, const Dataset& dataset) {
  const std::string detail =
      event.detail.empty() ? "" : " (" + translated_filled(event.detail) + ")";
  throw DataError(tr("{}: {}{}", row_place(dataset, event.file, event.index),
                     translated_filled(event.reason), detail),
                  tr("without --strict such rows are dropped and counted"));
}

/// The state of a run between two commits.
class Run {
 public:
  Run(const std::vector<PlannedDataset>& plan, const EncodeSettings& settings,
      const RunSettings& run, TokenStore* store)
      : plan_(plan), settings_(settings), run_(run), store_(store) {
    for (const PlannedDataset& item : plan_) {
      for (const DataFile& file : item.dataset.files) total_bytes_ += file.size_bytes;
    }
    try {
      if (!store->cursor().is_null()) restore(store->cursor());
    } catch (const DataError& error) {
      log::warning("unfinished work cannot be continued and is done again: {}", error.what());
      store->clear();
    }
  }

  PreprocessReport finish() {
    if (run_.show_progress) {
      bar_ = std::make_unique<ProgressBar>("tokenise",
                                           std::max<uint64_t>(1, kilobytes_of(total_bytes_)), "kB");
    }
    rows_at_start_ = rows_read();
    tokens_at_start_ = all_.lengths.sum + report_.lengths.sum;
    for (; dataset_ < plan_.size() && rows_left() != 0; ++dataset_, row_ = 0) {
      encode_dataset(plan_[dataset_]);
      judge_dropped(&report_, run_.max_dropped_ratio);
      all_.add(std::exchange(report_, {}));
    }
    // Not committed: the final files follow at once, and a sync takes longer than the last seconds'
    // rows would.
    store_->flush();
    if (bar_) bar_->finish();
    if (all_.lengths.count == 0) {
      throw DataError(
          tr("[dataset] no usable row among {}{}", all_.rows_read, reasons_of_error(all_.dropped)),
          hint_about(all_.dropped));
    }
    return std::move(all_);
  }

 private:
  /// Errors: DataError if cursor() did not write `cursor` for this plan.
  void restore(const Json& cursor) {
    if (!cursor.is_object()) throw DataError(tr("the cursor is not an object"));
    const auto dataset = json_get<int64_t>(cursor, "dataset"),
               row = json_get<int64_t>(cursor, "row");
    const auto before = json_get<Json>(cursor, "before"), report = json_get<Json>(cursor, "report");
    if (!dataset || *dataset < 0 || *dataset >= std::ssize(plan_) || !row || *row < 0 || !before ||
        !report) {
      throw DataError(tr("the cursor points at no data set or row, or lacks its reports"));
    }
    PreprocessReport all = PreprocessReport::from_json(*before);
    PreprocessReport one = PreprocessReport::from_json(*report);
    // Work of a run that allowed more is not continued by one that does not.
    if (all.dropped_ratio > run_.max_dropped_ratio)
      throw DataError(tr("more rows were dropped than are allowed now"));
    if (!all.lost_media.is_as_it_was() || !one.lost_media.is_as_it_was())
      throw DataError(tr("pictures whose rows were dropped have changed since"));
    int64_t sequences = 0, tokens = 0;
    for (const size_t stream : counted_streams()) {
      const TokenStore::Stream counted = store_->stream(stream);
      if (counts_every_stream() || stream == 0) sequences += std::ssize(counted.lengths());
      tokens += std::ssize(counted.tokens());
    }
    if (all.lengths.count + one.lengths.count != sequences ||
        all.lengths.sum + one.lengths.sum != tokens) {
      throw DataError(tr("the cursor's reports are not of these tokens"));
    }
    all_ = std::move(all);
    report_ = std::move(one);
    dataset_ = static_cast<size_t>(*dataset);
    row_ = *row;
  }

  /// Each stream of texts holds other texts; those of samples belong together.
  bool counts_every_stream() const { return settings_.kind == EncodedKind::kTexts; }

  /// The streams whose tokens count: labels are as long as their ids.
  std::vector<size_t> counted_streams() const {
    if (!counts_every_stream()) return id_streams(settings_.sample_kind);
    std::vector<size_t> all(store_->num_streams());
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }

  void count_lengths(const EncodedBatch& batch) {
    const std::vector<size_t> counted = counted_streams();
    if (counts_every_stream()) {
      for (const size_t stream : counted) {
        for (const int32_t length : batch.lengths[stream]) report_.lengths.add(length);
      }
      return;
    }
    for (size_t sample = 0; sample < batch.lengths[0].size(); ++sample) {
      int64_t length = 0;
      for (const size_t stream : counted) length += batch.lengths[stream][sample];
      report_.lengths.add(length);
    }
  }

  void encode_dataset(const PlannedDataset& item) {
    report_.datasets = {item.description};
    report_.unread_columns.resize(1);
    const RowEncoder encoder(settings_, *item.handler);
    const size_t workers = run_.num_workers ? run_.num_workers : default_thread_count();
    Dataset dataset = item.dataset;
    if (const int64_t left = rows_left(); left >= 0) {
      const int64_t of_this = left + row_;
      if (dataset.max_rows < 0) dataset.choice = RowChoice::kFirst;
      dataset.max_rows = dataset.max_rows < 0 ? of_this : std::min(dataset.max_rows, of_this);
    }
    EncodePipeline pipeline(dataset, encoder, workers, row_);
    EncodedBatch batch;
    while (pipeline.next(&batch)) {
      take(batch, item.dataset);
      show_progress(pipeline.bytes_read());
      if (const int signal = pending_interrupt()) stop(signal);
      if (seconds_since(last_commit_) >= run_.commit_interval_s) {
        store_->commit(cursor());
        last_commit_ = Clock::now();
      }
    }
    for (const DataFile& file : item.dataset.files) bytes_before_ += file.size_bytes;
  }

  void take(const EncodedBatch& batch, const Dataset& dataset) {
    for (const RowEvent& event : batch.events) {
      if (event.dropped && run_.strict) refuse_row(event, dataset);
      count_reason(event.dropped ? &report_.dropped : &report_.truncated, event.reason,
                   [&] { return event_text(event, dataset); });
      report_.lost_media.add(event.media_files);
    }
    for (const auto& [column, rows] : batch.unread) report_.unread_columns[0][column] += rows;
    report_.rows_read += batch.rows;
    report_.rows_kept += batch.rows_kept;
    report_.target_tokens += batch.target_tokens;
    report_.visual.add(batch.visual);
    row_ += batch.rows;
    if (batch.tokens.empty()) return;
    for (size_t stream = 0; stream < batch.tokens.size(); ++stream)
      store_->append(stream, batch.tokens[stream], batch.lengths[stream]);
    count_lengths(batch);
    if (!report_.sample.empty() || batch.lengths[0].empty()) return;
    if (counts_every_stream()) {
      const auto length = static_cast<size_t>(batch.lengths[0][0]);
      report_.sample =
          describe_sample(settings_.tokenizer.get(), std::span(batch.tokens[0]).first(length), {});
    } else {
      report_.sample = describe_first(settings_, batch);
    }
  }

  /// Rounded up: what holds something has something to be done.
  static uint64_t kilobytes_of(uint64_t bytes) { return (bytes + 999) / 1000; }

  void show_progress(uint64_t bytes_read) {
    if (!bar_) return;
    const double seconds = std::max(1e-9, seconds_since(start_));
    const auto rate = [&](int64_t now, int64_t before) {
      return format_count(static_cast<uint64_t>(static_cast<double>(now - before) / seconds));
    };
    bar_->update(
        kilobytes_of(bytes_before_ + bytes_read),
        tr("{} rows  {} rows/s  {} tokens/s", format_count(static_cast<uint64_t>(rows_read())),
           rate(rows_read(), rows_at_start_),
           rate(all_.lengths.sum + report_.lengths.sum, tokens_at_start_)));
  }

  int64_t rows_read() const { return all_.rows_read + report_.rows_read; }

  /// -1: any number.
  int64_t rows_left() const {
    if (run_.max_rows_of_all < 0) return -1;
    return std::max<int64_t>(0, run_.max_rows_of_all - rows_read());
  }

  Json cursor() const {
    return Json{{"dataset", dataset_},
                {"row", row_},
                {"before", all_.to_json()},
                {"report", report_.to_json()}};
  }

  [[noreturn]] void stop(int signal) {
    store_->commit(cursor());
    throw_interrupted(
        signal,
        tr("stopped after {} rows; run the same command again to go on from there", rows_read()));
  }

  const std::vector<PlannedDataset>& plan_;
  const EncodeSettings& settings_;
  const RunSettings& run_;
  TokenStore* store_;
  PreprocessReport all_, report_;  ///< of the data sets before, and of the current one
  size_t dataset_ = 0;
  int64_t row_ = 0;  ///< rows of the current data set that are in the store
  uint64_t total_bytes_ = 0, bytes_before_ = 0;
  int64_t rows_at_start_ = 0, tokens_at_start_ = 0;
  Clock::time_point start_ = Clock::now(), last_commit_ = Clock::now();
  std::unique_ptr<ProgressBar> bar_;
};

/// Errors: as make_row_handler's, which name the data set where it is one of several.
std::unique_ptr<RowHandler> handler_of(const std::string& name, const Dataset& dataset,
                                       const std::vector<Json>& first_rows, bool is_of_several) {
  const bool plain_text = dataset.files[0].type == FileType::kText;
  try {
    return make_row_handler(dataset.format, first_rows, plain_text);
  } catch (const Error& error) {
    if (!is_of_several) throw;
    throw_as_kind(Error(error.code(), fmt::format("{}: {}", name, error.what()), error.hint()));
  }
}

}  // namespace

std::vector<PlannedDataset> plan_datasets(const std::vector<std::string>& names,
                                          const FormatOptions& format, const fs::path& info_dir,
                                          bool document_per_file) {
  if (names.empty()) throw UsageError(tr("[dataset] none given"));
  std::vector<PlannedDataset> plan;
  std::vector<std::vector<Json>> rows;
  for (const std::string& name : names) {
    plan.emplace_back().dataset = resolve_dataset(name, format, info_dir);
    plan.back().dataset.document_per_file = document_per_file;
    rows.push_back(first_rows(plan.back().dataset));
  }
  refuse_unknown_columns(plan, rows);
  for (size_t i = 0; i < plan.size(); ++i) {
    PlannedDataset& item = plan[i];
    item.handler = handler_of(names[i], item.dataset, rows[i], plan.size() > 1);
    if (are_judged_answers(rows[i], item.dataset.format)) {
      log::warning(
          "{}: rows say of answers whether they are liked: all are learnt here, the others too; "
          "danlu rlhf --rlhf_type kto tells them apart",
          names[i]);
    }
    item.description = fmt::format("{}: {}; detected: {}", names[i], item.dataset.summary,
                                   item.handler->description());
    item.first_rows = std::move(rows[i]);
  }
  return plan;
}

void report_unread_columns(const std::vector<PlannedDataset>& plan,
                           const std::vector<ColumnCounts>& counts) {
  for (size_t i = 0; i < std::min(plan.size(), counts.size()); ++i) {
    const PlannedDataset& item = plan[i];
    report_unread_columns(item.dataset.name, *item.handler, counts[i], item.dataset.format,
                          item.first_rows);
  }
}

bool lacks_the_same_pictures(const PreprocessReport& report, const char* flag) {
  if (!report.lost_media.is_as_it_was()) {
    log::info("pictures whose rows were dropped have changed: the tokens are made again");
    return false;
  }
  if (const int64_t rows = report.rows_dropped_for(kNotFetched); rows > 0)
    log::notice("{} rows are missing whose pictures could not be fetched; {} fetches them again",
                rows, flag);
  return true;
}

std::string content_key(const std::vector<PlannedDataset>& plan, const EncodeSettings& settings,
                        const Json& extra) {
  Json parts{{"version", kContentVersion}, {"extra", extra}};
  for (const PlannedDataset& item : plan) {
    Json dataset{{"handler", item.handler->description()},
                 {"format", item.dataset.format.to_json()},
                 {"max_rows", item.dataset.max_rows},
                 {"document_per_file", item.dataset.document_per_file}};
    if (item.dataset.max_rows >= 0 && item.dataset.choice != RowChoice::kFirst)
      dataset["choice"] = {static_cast<int>(item.dataset.choice), item.dataset.draw_seed};
    if (item.dataset.part != RowPart::kAll)
      dataset["part"] = {static_cast<int>(item.dataset.part), item.dataset.held_out_share,
                         static_cast<int>(item.dataset.choice), item.dataset.draw_seed};
    for (const DataFile& file : item.dataset.files) {
      dataset["files"].push_back({file_type_name(file.type), hash_file(file.path)});
    }
    parts["datasets"].push_back(std::move(dataset));
  }
  parts["settings"] = {static_cast<int>(settings.kind), settings.max_length,
                       static_cast<int>(settings.truncation), settings.append_eod,
                       settings.append_eod_text};
  if (settings.sample_kind != SampleKind::kTokens) {
    parts["sample_kind"] = {sample_kind_name(settings.sample_kind), settings.steps.placeholder,
                            settings.steps.reward_tokens, settings.additional_keys};
    if (settings.sample_kind == SampleKind::kLabelled)
      parts["label_form"] = {static_cast<int>(settings.label_form.kind), settings.label_form.labels,
                             settings.label_form.without_template};
    const GroupForm& form = settings.group_form;
    if (settings.sample_kind == SampleKind::kGroups)
      parts["group_form"] = {kGroupRules,
                             static_cast<int>(form.texts),
                             static_cast<int>(form.label),
                             form.without_template,
                             form.max_positives,
                             form.needs_negatives,
                             form.takes_negatives,
                             form.most_positives.value_or(-1),
                             form.most_negatives.value_or(-1)};
  }
  if (settings.media) {
    Json media = settings.media->settings().to_json();
    for (const PlannedDataset& item : plan) {
      for (const DataFile& file : item.dataset.files)
        media["folders"].push_back(fs::absolute(file.path).parent_path().string());
    }
    parts["media"] = std::move(media);
  }
  if (settings.tokenizer) parts["tokenizer"] = settings.tokenizer->content_hash();
  if (settings.chat_encoder) parts["template"] = settings.chat_encoder->content_hash();
  return fmt::format("{:016x}",
                     hash_bytes(parts.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

PreprocessReport encode_datasets(const std::vector<PlannedDataset>& plan,
                                 const EncodeSettings& settings, const RunSettings& run,
                                 TokenStore* store) {
  return Run(plan, settings, run, store).finish();
}

}  // namespace danlu::data
