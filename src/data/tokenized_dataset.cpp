#include "data/tokenized_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/limited_source.h"
#include "data/megatron/indexed_dataset.h"
#include "data/megatron/instruction_dataset.h"
#include "data/megatron/preference_datasets.h"
#include "data/megatron/splits.h"
#include "data/preprocess_output.h"
#include "data/preprocess_run.h"
#include "data/readers/dataset_name.h"
#include "data/sample_views.h"

namespace danlu::data {
namespace {

constexpr const char* kManifest = "manifest.json";

fs::path cache_root(const SampleSpec& spec) {
  return spec.cache_dir.empty() ? default_cache_dir() : spec.cache_dir;
}

EncodeSettings encode_settings(const SampleSpec& spec, EncodedKind kind) {
  EncodeSettings settings;
  settings.kind = kind;
  settings.tokenizer = spec.tokenizer;
  settings.chat_encoder = spec.chat_encoder;
  settings.append_eod = kind == EncodedKind::kTexts ? spec.append_eod_text : spec.append_eod;
  if (kind == EncodedKind::kTexts) return settings;
  settings.max_length = spec.max_length;
  settings.truncation = spec.truncation;
  settings.append_eod_text = spec.append_eod_text;
  settings.sample_kind = spec.kind;
  settings.steps = spec.steps;
  settings.label_form = spec.label_form;
  settings.group_form = spec.group_form;
  if (spec.kind == SampleKind::kTokens)
    settings.media = make_media_encoder(spec.media, spec.tokenizer.get());
  return settings;
}

/// A finished cache entry: its files' prefix and report.
struct CacheEntry {
  fs::path prefix;
  PreprocessReport report;
};

/// What a finished entry says of its rows; nullopt if there is none that will do. With strict, an
/// entry that lacks rows will not, nor one that lacks more of them than are allowed: encoding them
/// again names them where they lie now. Nor one that lacks rows for pictures that were repaired.
std::optional<PreprocessReport> finished_report(const SampleSpec& spec,
                                                const std::vector<PlannedDataset>& plan,
                                                const fs::path& entry) {
  if (!fs::exists(entry / kManifest)) return std::nullopt;
  PreprocessReport report;
  try {
    const Json manifest = read_json_file(entry / kManifest);
    if (!manifest.is_object()) throw DataError(tr("not an object"));
    report = PreprocessReport::from_json(json_get<Json>(manifest, "report").value_or(nullptr));
  } catch (const DataError& error) {
    log::warning("{}: damaged, the tokens are made again: {}", (entry / kManifest).string(),
                 error.what());
    return std::nullopt;
  }
  if (spec.strict && report.rows_dropped() > 0) return std::nullopt;
  if (report.dropped_ratio > spec.max_dropped_ratio) return std::nullopt;
  if (!lacks_the_same_pictures(report, "--overwrite_cache")) return std::nullopt;
  log::info("tokens from the cache: {}", entry.string());
  // Equal content may have had another name when it was cached.
  report.datasets.clear();
  for (const PlannedDataset& item : plan) report.datasets.push_back(item.description);
  return report;
}

/// Finds or builds `<root>/<kind>/<key>/data_…`. `publish` writes the final files from the store.
template <typename Publish>
CacheEntry open_or_build(const SampleSpec& spec, const std::vector<PlannedDataset>& plan,
                         const EncodeSettings& settings, const char* kind, size_t num_streams,
                         Publish publish) {
  Json extra = kind;
  if (spec.max_rows_of_all >= 0) extra = {kind, spec.max_rows_of_all};
  const std::string key = content_key(plan, settings, extra);
  const fs::path entry = cache_root(spec) / kind / key;
  const fs::path building = entry.string() + ".building";
  require_cache_directory(entry.parent_path());
  const FileLock lock =
      FileLock::wait_for(entry.string() + ".lock", "the tokens of " + plan[0].dataset.name);
  std::error_code ignored;
  if (spec.overwrite_cache) {
    if (fs::exists(entry)) remove_directory_atomic(entry);
    fs::remove_all(building, ignored);
  }
  if (auto report = finished_report(spec, plan, entry)) {
    // A process that was killed between the last two steps below may have left it.
    fs::remove_all(building, ignored);
    return {entry / "data", std::move(*report)};
  }
  CacheEntry result;
  try {
    // Work that has passed over bad rows is not continued by a run that refuses them.
    TokenStore store(building, spec.strict ? key + " strict" : key, num_streams);
    RunSettings run;
    run.num_workers = spec.num_workers;
    run.strict = spec.strict;
    run.max_dropped_ratio = spec.max_dropped_ratio;
    run.max_rows_of_all = spec.max_rows_of_all;
    result.report = encode_datasets(plan, settings, run, &store);
    write_directory_atomic(entry, [&](const fs::path& directory) {
      publish(store, directory / "data", &result.report);
      write_json_file(directory / kManifest, Json{{"report", result.report.to_json()}});
    });
  } catch (const DataError&) {
    // Repaired data have another key: this work can never be continued.
    fs::remove_all(building, ignored);
    throw;
  }
  fs::remove_all(building, ignored);
  result.prefix = entry / "data";
  return result;
}

/// What was found in each; of many data sets the first few.
void report_plan(const std::vector<PlannedDataset>& plan) {
  constexpr size_t kSaid = 3;
  const size_t said = log::verbose() || plan.size() <= kSaid + 1 ? plan.size() : kSaid;
  for (size_t i = 0; i < said; ++i) log::info("{}", translated_filled(plan[i].description));
  if (said < plan.size()) log::info("and {} more data sets (-v names them)", plan.size() - said);
}

/// Samples that lie under a prefix. Errors: UsageError if they are of another kind than `kind`.
std::shared_ptr<const SampleSource> open_samples(const std::string& prefix,
                                                 const SampleSpec& spec) {
  const SampleKind kind = spec.kind;
  const auto recorded = read_recorded_kind(prefix);
  const SampleKind found = recorded.value_or(kind_of_files(prefix).value());
  // Instruction samples have prompts; steps of another program go by the same names.
  const bool may_be = found == SampleKind::kTokens &&
                      (kind == SampleKind::kPrompts || (kind == SampleKind::kSteps && !recorded));
  if (found != kind && !may_be) {
    throw UsageError(tr("[dataset] {}: these samples are {}, and {} are needed here", prefix,
                        sample_kind_description(found), sample_kind_description(kind)),
                     hint_for_kind(found));
  }
  return samples_of_files(prefix, kind, spec.tokenizer, spec.ends);
}

/// plan: of the data sets of these names, in their order.
void choose_rows(const SampleSpec& spec, const std::vector<std::string>& names,
                 std::vector<PlannedDataset>& plan, RowPart part = RowPart::kAll) {
  for (size_t i = 0; i < plan.size(); ++i) {
    Dataset& dataset = plan[i].dataset;
    dataset.choice = dataset.limited_by_info ? spec.choice_by_info : spec.choice;
    if (spec.first_rows_of.count(names[i])) dataset.choice = RowChoice::kFirst;
    dataset.draw_seed = spec.seed;
    dataset.part = part;
    dataset.held_out_share = part == RowPart::kAll ? 0 : spec.val_ratio;
  }
}

/// Tokens of rows, from the cache.
std::shared_ptr<const SampleSource> open_rows(const SampleSpec& spec,
                                              const std::vector<std::string>& names,
                                              PreprocessReport* report, RowPart part) {
  FormatOptions format = spec.format;
  format.kind = spec.kind;
  format.reads_media = spec.media.has_value() && spec.kind == SampleKind::kTokens;
  auto plan = plan_datasets(names, format, spec.dataset_info_dir);
  choose_rows(spec, names, plan, part);
  if (part != RowPart::kHeldOut) report_plan(plan);
  const EncodeSettings settings = encode_settings(spec, EncodedKind::kSamples);
  const CacheEntry entry = open_or_build(
      spec, plan, settings, "samples", num_sample_streams(settings),
      [&](const TokenStore& store, const fs::path& prefix, PreprocessReport* of_entry) {
        if (spec.kind == SampleKind::kTokens) {
          write_instruction_datasets(store, prefix, PackSettings{}, of_entry);
        } else {
          write_kind_datasets(store, prefix, spec.kind, settings.additional_keys);
        }
      });
  report_unread_columns(plan, entry.report.unread_columns);
  report->add(entry.report);
  return samples_of_files(entry.prefix.string(), spec.kind, nullptr);
}

/// Rows and prefixes of one side (training or validation), one after the other.
std::shared_ptr<const SampleSource> open_side(const SampleSpec& spec,
                                              const std::vector<std::string>& names,
                                              PreprocessReport* report,
                                              std::vector<TokenisedBeforehand>* beforehand,
                                              RowPart part = RowPart::kAll) {
  std::vector<std::shared_ptr<const SampleSource>> parts;
  std::vector<std::string> raw;
  for (const std::string& name : names) {
    if (!samples_exist(name)) {
      raw.push_back(name);
      continue;
    }
    if (fs::is_regular_file(name)) {
      throw UsageError(
          tr("[dataset] {} is a file and also the prefix of preprocessed samples", name),
          tr("give one of the two another name"));
    }
    const auto whole = open_samples(name, spec);
    if (spec.media) require_recorded_media(name, *spec.media);
    log::info("{}: preprocessed, {} samples", name, whole->size());
    parts.push_back(limit_samples(
        whole, {spec.max_length, spec.truncation, spec.strict, spec.max_dropped_ratio, spec.kind},
        name, report));
    beforehand->push_back({name, read_recorded_template(name)});
  }
  if (!raw.empty()) parts.push_back(open_rows(spec, raw, report, part));
  return joined(std::move(parts));
}

/// Whether a row may be taken twice or left out by #n, so that a part of what was taken would hold
/// out rows that are trained.
bool splits_before_choice(const SampleSpec& spec) {
  if (!spec.splits_rows || spec.val_ratio <= 0 || spec.val_rows > 0 || spec.max_rows_of_all >= 0 ||
      !spec.val_datasets.empty() || !spec.split_text.empty())
    return false;
  const auto& names = spec.datasets;
  return std::none_of(names.begin(), names.end(), samples_exist) &&
         std::any_of(names.begin(), names.end(), [](const std::string& name) {
           return parse_dataset_name(name).max_rows >= 0;
         });
}

/// How many of `size` samples are split off. Errors: DataError where a number leaves none.
int64_t number_held_out(const SampleSpec& spec, int64_t size) {
  if (spec.val_rows == 0)
    return std::clamp<int64_t>(
        spec.splits_rows ? static_cast<int64_t>(spec.val_ratio * static_cast<double>(size))
                         : std::llround(spec.val_ratio * static_cast<double>(size)),
        1, size - 1);
  if (spec.val_rows < size) return spec.val_rows;
  throw DataError(tr("[val_ratio] {} samples are to be held out of {}: none is left for training",
                     spec.val_rows, size));
}

/// Which samples go to validation: a permutation drawn by `seed`, its first share, in file order.
std::pair<std::vector<int64_t>, std::vector<int64_t>> split_samples(int64_t size, int64_t num_val,
                                                                    uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  NumpyRandomState random(static_cast<uint32_t>(mix64(seed, 1)));
  random.shuffle(std::span(order));
  std::vector<int64_t> val(order.begin(), order.begin() + num_val);
  std::vector<int64_t> train(order.begin() + num_val, order.end());
  std::sort(val.begin(), val.end());
  std::sort(train.begin(), train.end());
  return {std::move(train), std::move(val)};
}

/// The samples [range.begin, range.end) of `base`; null for none.
std::shared_ptr<const SampleSource> samples_in(std::shared_ptr<const SampleSource> base,
                                               IdRange range) {
  if (range.size() <= 0) return nullptr;
  std::vector<int64_t> ids(static_cast<size_t>(range.size()));
  std::iota(ids.begin(), ids.end(), range.begin);
  return std::make_shared<SelectedSource>(std::move(base), std::move(ids));
}

void hold_out_by_split(const std::string& split_text, TrainValSamples* samples) {
  const auto all = samples->train;
  const auto ranges = legacy_split_ranges(split_text, all->size());
  samples->train = samples_in(all, ranges[0]);
  samples->val = samples_in(all, ranges[1]);
  if (!samples->train) {
    throw DataError(
        tr("--split {}: none of the {} samples is left for training", split_text, all->size()));
  }
}

std::shared_ptr<const SampleSource> pack(std::shared_ptr<const SampleSource> base,
                                         const SampleSpec& spec, PreprocessReport* report) {
  const bool is_double = spec.kind == SampleKind::kPairs || spec.kind == SampleKind::kUnpaired;
  int64_t capacity = (is_double ? 2 : 1) * spec.max_length;
  if (spec.kind == SampleKind::kGroups) {
    for (int64_t i = 0; i < base->size(); ++i) capacity = std::max(capacity, base->length(i));
  }
  std::vector<int32_t> lengths;
  lengths.reserve(static_cast<size_t>(base->size()));
  for (int64_t i = 0; i < base->size(); ++i) {
    // The stored length counts padding, which is not read.
    lengths.push_back(static_cast<int32_t>(std::min(base->length(i), capacity)));
  }
  Packs packs = pack_best_fit(lengths, capacity, spec.seed);
  report->packed_sequences = packs.size();
  return packs_of(std::move(base), std::move(packs));
}

}  // namespace

fs::path default_cache_dir() {
  if (const char* set = std::getenv("DANLU_CACHE"); set && *set) return set;
  // The XDG base directory specification: a relative path there is to be ignored.
  if (const char* set = std::getenv("XDG_CACHE_HOME"); set && *set == '/') {
    return fs::path(set) / "danlu";
  }
  if (const char* home = std::getenv("HOME"); home && *home) {
    return fs::path(home) / ".cache" / "danlu";
  }
  return fs::temp_directory_path() / "danlu-cache";
}

void require_cache_directory(const fs::path& directory) {
  try {
    require_writable_directory(directory);
  } catch (const IoError& error) {
    throw IoError(tr("[cache] {}", error.what()),
                  tr("tokens are kept there; choose another place with --cache_dir DIR, or for "
                     "every command with DANLU_CACHE=DIR"));
  }
}

TrainValSamples open_or_build_samples(const SampleSpec& spec) {
  if (spec.datasets.empty()) throw UsageError(tr("[dataset] none given"));
  if (spec.val_ratio < 0 || spec.val_ratio >= 1) {
    throw UsageError(tr("[val_ratio] must be in [0, 1), got {}", spec.val_ratio));
  }
  if (spec.pack_sequences && spec.max_length <= 0) {
    throw UsageError(
        tr("[pack_sequences] needs --max_length: the length of the sequences to fill"));
  }
  if (spec.pack_sequences && spec.kind == SampleKind::kPrompts)
    throw UsageError(tr("[pack_sequences] prompts are not packed: answers follow each of them"));
  if (!spec.split_text.empty() && !spec.val_datasets.empty()) {
    throw UsageError(
        tr("[split] --split and --val_dataset both say what is held out; give one of them"));
  }
  TrainValSamples result;
  const bool splits_first = splits_before_choice(spec);
  result.train = open_side(spec, spec.datasets, &result.report, &result.tokenised_beforehand,
                           splits_first ? RowPart::kTraining : RowPart::kAll);
  if (splits_first) {
    SampleSpec of_val = spec;
    of_val.max_dropped_ratio = 1;
    result.val = open_side(of_val, spec.datasets, &result.val_report, &result.tokenised_beforehand,
                           RowPart::kHeldOut);
  } else if (!spec.val_datasets.empty()) {
    SampleSpec of_val = spec;
    of_val.max_rows_of_all = -1;
    // ms-swift shuffles no validation rows.
    if (of_val.choice == RowChoice::kDrawn) of_val.choice = RowChoice::kRepeated;
    result.val =
        open_side(of_val, spec.val_datasets, &result.val_report, &result.tokenised_beforehand);
  } else if (!spec.split_text.empty()) {
    hold_out_by_split(spec.split_text, &result);
  } else if (spec.val_rows > 0 || (spec.val_ratio > 0 && result.train->size() > 1)) {
    const int64_t size = result.train->size();
    auto [train, val] = split_samples(size, number_held_out(spec, size), spec.seed);
    result.val = std::make_shared<SelectedSource>(result.train, std::move(val));
    result.train = std::make_shared<SelectedSource>(result.train, std::move(train));
  }
  if (spec.kind == SampleKind::kUnpaired) {
    const bool keep_prompt_end = spec.truncation == Truncation::kLeft;
    for (auto* side : {&result.train, &result.val})
      if (*side) *side = with_previous_answers(std::move(*side), spec.max_length, keep_prompt_end);
  }
  result.num_train_rows = result.train->size();
  result.num_val_rows = result.val ? result.val->size() : 0;
  if (spec.pack_sequences) result.train = pack(result.train, spec, &result.report);
  return result;
}

std::vector<fs::path> open_or_build_texts(const SampleSpec& spec, PreprocessReport* report) {
  if (spec.datasets.empty()) throw UsageError(tr("[dataset] none given"));
  std::vector<fs::path> prefixes;
  SampleSpec of_one = spec;
  for (const std::string& name : spec.datasets) {
    if (indexed_dataset_exists(name)) {
      prefixes.emplace_back(name);
      continue;
    }
    if (of_one.max_rows_of_all == 0) continue;
    FormatOptions format = spec.format;
    format.text_first = true;
    auto plan = plan_datasets({name}, format, spec.dataset_info_dir);
    choose_rows(spec, {name}, plan);
    log::info("{}", translated_filled(plan[0].description));
    const std::vector<std::string> keys = plan[0].handler->text_keys();
    if (keys.size() != 1) {
      throw UsageError(tr("[dataset] {}: pre-training reads one text column; detected: {}", name,
                          plan[0].handler->description()),
                       tr("name the text column with --json-keys"));
    }
    const CacheEntry entry =
        open_or_build(of_one, plan, encode_settings(spec, EncodedKind::kTexts), "texts", 1,
                      [](const TokenStore& store, const fs::path& prefix, PreprocessReport*) {
                        write_text_datasets(store, prefix, {"text"});
                      });
    prefixes.push_back(entry.prefix.string() + "_text_document");
    report_unread_columns(plan, entry.report.unread_columns);
    report->add(entry.report);
    if (of_one.max_rows_of_all > 0)
      of_one.max_rows_of_all =
          std::max<int64_t>(0, of_one.max_rows_of_all - entry.report.rows_read);
  }
  return prefixes;
}

}  // namespace danlu::data
