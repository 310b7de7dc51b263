#include "data/preprocess.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/new_output.h"
#include "data/megatron/indexed_writer.h"
#include "data/megatron/instruction_dataset.h"
#include "data/preprocess_encode.h"
#include "data/preprocess_manifest.h"
#include "data/preprocess_run.h"

namespace danlu::data {
namespace {

bool is_text(const PlannedDataset& item) {
  return item.handler->format() == RowFormat::kText && item.handler->kind() == SampleKind::kTokens;
}

/// Texts or samples: all data sets must agree.
EncodedKind kind_of_all(const std::vector<PlannedDataset>& plan) {
  for (const PlannedDataset& item : plan) {
    if (is_text(item) != is_text(plan[0]) || item.handler->kind() != plan[0].handler->kind() ||
        item.handler->text_keys() != plan[0].handler->text_keys()) {
      throw UsageError(tr("[input] {} and {} do not fit into the same files", plan[0].description,
                          item.description),
                       tr("preprocess them under different --output-prefix"));
    }
  }
  return is_text(plan[0]) ? EncodedKind::kTexts : EncodedKind::kSamples;
}

void check_spec(const PreprocessSpec& spec) {
  if (spec.output_prefix.empty() || !spec.output_prefix.has_filename()) {
    throw UsageError(tr("[output_prefix] must end in a name, such as out/alpaca"));
  }
  if (spec.seq_length != 0 && spec.seq_length < 2) {
    throw UsageError(tr("[seq_length] must be at least 2, got {}", spec.seq_length));
  }
  if (spec.pack != PackMode::kNone && spec.seq_length == 0) {
    throw UsageError(tr("[{}] needs --seq-length: the length of the sequences to fill",
                        spec.pack == PackMode::kNeat ? "neat_pack" : "pack"));
  }
}

EncodeSettings settings_for(const PreprocessSpec& spec, const PreprocessText& text,
                            const std::vector<PlannedDataset>& plan) {
  EncodeSettings settings;
  settings.kind = kind_of_all(plan);
  settings.append_eod = spec.append_eod;
  settings.max_length = spec.seq_length > 0 ? spec.seq_length - 1 : 0;
  settings.truncation = spec.pack == PackMode::kNeat ? Truncation::kShares : Truncation::kDelete;
  if (text.load_tokenizer) settings.tokenizer = text.load_tokenizer();
  settings.sample_kind = plan[0].handler->kind();
  const bool is_group = settings.sample_kind == SampleKind::kGroups;
  if (is_group) {
    // Which loss will read the rows is not known yet.
    settings.group_form.label = GroupForm::Label::kIfGiven;
    settings.group_form.without_template = text.embeds_plainly;
  }
  settings.steps = spec.steps;
  settings.additional_keys = spec.additional_keys;
  if (settings.kind == EncodedKind::kSamples && settings.sample_kind == SampleKind::kTokens)
    settings.media = make_media_encoder(spec.media, settings.tokenizer.get());
  const bool has_conversations =
      !settings.group_form.without_template &&
      (is_group || std::any_of(plan.begin(), plan.end(),
                               [](const auto& item) { return item.handler->needs_template(); }));
  if (has_conversations && settings.tokenizer && text.make_chat_encoder) {
    settings.chat_encoder = text.make_chat_encoder(settings.tokenizer);
    log::info("template: {}", settings.chat_encoder->description());
  }
  return settings;
}

/// Padding as MindSpeed pads: the tokenizer's pad token, eos where it has none.
int32_t pad_id(const text::Tokenizer* tokenizer) {
  if (!tokenizer) return 0;
  return tokenizer->pad_id().value_or(tokenizer->eos_id().value_or(0));
}

std::vector<fs::path> output_prefixes(const PreprocessSpec& spec,
                                      const std::vector<PlannedDataset>& plan) {
  std::vector<fs::path> prefixes;
  if (const SampleKind kind = plan[0].handler->kind(); kind != SampleKind::kTokens) {
    for (const std::string& field : fields_of_kind(kind, spec.additional_keys))
      prefixes.emplace_back(instruction_field_prefix(spec.output_prefix.string(), field));
    return prefixes;
  }
  for (const std::string& key : plan[0].handler->text_keys()) {
    prefixes.emplace_back(fmt::format("{}_{}_document", spec.output_prefix.string(), key));
  }
  if (!prefixes.empty()) return prefixes;
  for (const char* field : {"input_ids", "attention_mask", "labels"}) {
    prefixes.emplace_back(instruction_field_prefix(spec.output_prefix.string(), field));
  }
  return prefixes;
}

/// The outputs and those that samples may lack, if they are there: pictures, margins.
std::vector<fs::path> with_optional_outputs(const fs::path& prefix,
                                            const PreprocessResult& result) {
  if (result.kind == SampleKind::kTokens) return with_media_output(prefix, result.outputs);
  std::vector<fs::path> outputs = result.outputs;
  const fs::path margin = instruction_field_prefix(prefix.string(), "margin");
  if (result.kind == SampleKind::kPairs && indexed_dataset_exists(margin))
    outputs.push_back(margin);
  return outputs;
}

/// One process at a time writes the files of a prefix.
FileLock lock_prefix(const fs::path& prefix) {
  return FileLock::wait_for(lock_file_of(prefix), prefix.string());
}

/// In a work directory: the files at the prefix may be replaced, because that was asked for or
/// because they are this work's own, half written.
constexpr const char* kMayReplace = "may_replace";

fs::path work_parent(const PreprocessSpec& spec) {
  return spec.work_dir.empty() ? fs::absolute(spec.output_prefix).parent_path()
                               : fs::absolute(spec.work_dir);
}

std::string work_stem(const PreprocessSpec& spec) {
  return fmt::format(".danlu-{}-", spec.output_prefix.filename().string());
}

/// Where unfinished work on a prefix lies.
fs::path work_directory(const PreprocessSpec& spec, const std::string& key) {
  return work_parent(spec) / (work_stem(spec) + key);
}

/// Removes what earlier runs left of their work on the prefix, except that under the key `kept`.
void remove_work(const PreprocessSpec& spec, const std::string& kept) {
  const std::string stem = work_stem(spec);
  std::error_code missing;
  constexpr size_t kKeyLength = 16;
  for (const auto& entry : fs::directory_iterator(work_parent(spec), missing)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(stem) && name.size() == stem.size() + kKeyLength && name != stem + kept) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
  }
}

RecordedTemplate template_of(const EncodeSettings& settings) {
  if (!settings.chat_encoder) return {};
  return {settings.chat_encoder->description(),
          fmt::format("{:016x}", settings.chat_encoder->content_hash())};
}

/// Encodes all rows and writes the files of the prefix.
PreprocessReport make_files(const PreprocessSpec& spec, const std::vector<PlannedDataset>& plan,
                            const EncodeSettings& settings, const std::string& key,
                            size_t num_outputs) {
  const fs::path work = work_directory(spec, key);
  const bool is_texts = settings.kind == EncodedKind::kTexts;
  // Work that has passed over bad rows is not continued by a run that refuses them.
  TokenStore store(work, spec.strict ? key + " strict" : key,
                   is_texts ? num_outputs : num_sample_streams(settings));
  if (spec.overwrite) write_file_atomic(work / kMayReplace, "");
  const RunSettings run{.num_workers = spec.num_workers,
                        .strict = spec.strict,
                        .max_dropped_ratio = spec.max_dropped_ratio,
                        .max_rows_of_all = spec.max_rows_of_all,
                        .show_progress = spec.show_progress,
                        .commit_interval_s = spec.commit_interval_s};
  PreprocessReport report = encode_datasets(plan, settings, run, &store);
  // From here on the files are neither the old nor the new ones until the manifest says so.
  write_file_atomic(work / kMayReplace, "");
  std::error_code ignored;
  fs::remove(manifest_path(spec.output_prefix), ignored);
  if (is_texts) {
    write_text_datasets(store, spec.output_prefix, plan[0].handler->text_keys());
  } else if (settings.sample_kind != SampleKind::kTokens) {
    write_kind_datasets(store, spec.output_prefix, settings.sample_kind, settings.additional_keys);
  } else {
    write_instruction_datasets(store, spec.output_prefix,
                               {spec.pack, spec.seq_length, pad_id(settings.tokenizer.get())},
                               &report);
  }
  return report;
}

/// What of packing and limits the key of the work holds. Errors: UsageError for packed texts.
Json packing_of(const PreprocessSpec& spec, const EncodeSettings& settings) {
  if (settings.kind == EncodedKind::kTexts && spec.pack != PackMode::kNone) {
    throw UsageError(tr("[pack] plain texts are not packed: pre-training joins them itself"),
                     tr("leave out --pack"));
  }
  if (settings.sample_kind != SampleKind::kTokens && spec.pack != PackMode::kNone) {
    throw UsageError(tr("[pack] {} are not packed in files: training packs them without padding",
                        sample_kind_description(settings.sample_kind)),
                     tr("leave out --pack"));
  }
  if (!settings.additional_keys.empty() && settings.sample_kind != SampleKind::kPrompts) {
    throw UsageError(
        tr("[dataset_additional_keys] belong to prompts, and the rows are {}",
           sample_kind_description(settings.sample_kind)),
        tr("name a handler of prompts: --handler-name R1AlpacaStyleInstructionHandler"));
  }
  Json pack{static_cast<int>(spec.pack), spec.seq_length};
  if (spec.max_rows_of_all >= 0) pack.push_back(spec.max_rows_of_all);
  return pack;
}

/// Whether the files of an earlier call are what this one would make. Files that lack more rows
/// than are allowed are not: encoding again names the rows.
bool is_what_is_asked_for(const PreprocessSpec& spec, const PreprocessManifest& earlier,
                          const std::string& key, const PreprocessResult& result) {
  return earlier.key == key &&
         describes_files(earlier, with_optional_outputs(spec.output_prefix, result)) &&
         !(spec.strict && earlier.report.rows_dropped() > 0) &&
         earlier.report.dropped_ratio <= spec.max_dropped_ratio &&
         lacks_the_same_pictures(earlier.report, "--overwrite");
}

/// Says beside the files what they were made from.
void record_files(const PreprocessSpec& spec, const EncodeSettings& settings,
                  const std::string& key, PreprocessResult* result) {
  const std::string tokenizer =
      settings.tokenizer ? fmt::format("{:016x}", settings.tokenizer->content_hash()) : "";
  if (!result->report.visual.empty() || result->kind == SampleKind::kPairs)
    result->outputs = with_optional_outputs(spec.output_prefix, *result);
  write_manifest(spec.output_prefix,
                 {key,
                  {},
                  result->report,
                  result->recorded_template,
                  tokenizer,
                  result->kind,
                  settings.media ? settings.media->settings().grid_json() : Json()},
                 result->outputs);
}

}  // namespace

PreprocessResult preprocess(const PreprocessSpec& spec, const PreprocessText& text) {
  check_spec(spec);
  const MadeDirectory made(fs::absolute(spec.output_prefix).parent_path());
  FormatOptions format = spec.format;
  format.reads_media = spec.media.has_value();
  format.kind.reset();
  const auto plan = plan_datasets(spec.inputs, format, {}, spec.document_per_file);
  for (const PlannedDataset& item : plan) log::info("{}", translated_filled(item.description));
  const EncodeSettings settings = settings_for(spec, text, plan);
  const std::string key = content_key(plan, settings, packing_of(spec, settings));

  PreprocessResult result;
  result.kind = settings.sample_kind;
  result.outputs = output_prefixes(spec, plan);
  for (const PlannedDataset& item : plan) {
    for (const DataFile& file : item.dataset.files) {
      result.input_bytes += file.size_bytes;
      refuse_to_replace_inputs(manifest_path(spec.output_prefix), {file.path});
    }
  }
  result.recorded_template = template_of(settings);
  const FileLock lock = lock_prefix(spec.output_prefix);
  const fs::path work = work_directory(spec, key);
  std::error_code ignored;
  if (spec.overwrite) {
    fs::remove_all(work, ignored);
  } else {
    auto earlier = read_manifest(spec.output_prefix);
    if (earlier && is_what_is_asked_for(spec, *earlier, key, result)) {
      remove_work(spec, "");
      result.up_to_date = true;
      result.report = std::move(earlier->report);
      report_unread_columns(plan, result.report.unread_columns);
      return result;
    }
    if (!fs::exists(work / kMayReplace)) {
      refuse_to_replace(spec.output_prefix, key, result.outputs);
    }
  }
  require_writable_directory(work_parent(spec));
  remove_work(spec, key);
  try {
    result.report = make_files(spec, plan, settings, key, result.outputs.size());
    report_unread_columns(plan, result.report.unread_columns);
  } catch (const DataError&) {
    // Repaired data have another key: this work can never be continued.
    fs::remove_all(work, ignored);
    throw;
  }
  record_files(spec, settings, key, &result);
  fs::remove_all(work, ignored);
  return result;
}

fs::path merge_preprocessed(const fs::path& directory, const std::string& key,
                            const fs::path& output_prefix, bool overwrite) {
  if (!fs::is_directory(directory)) {
    throw DataError(
        tr("[input] {}: merging needs a directory of .bin/.idx files", directory.string()));
  }
  const fs::path output = fmt::format("{}_{}", output_prefix.string(), key);
  std::vector<fs::path> prefixes;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const fs::path& path = entry.path();
    const fs::path prefix = path.parent_path() / path.stem();
    if (path.extension() != ".idx" || path.stem().string().find(key) == std::string::npos ||
        fs::absolute(prefix) == fs::absolute(output)) {
      continue;
    }
    prefixes.push_back(prefix);
  }
  if (prefixes.empty()) {
    throw DataError(tr("[merge_group_keys] {}: no .idx file whose name contains \"{}\"",
                       directory.string(), key));
  }
  std::sort(prefixes.begin(), prefixes.end());
  const MadeDirectory made(fs::absolute(output).parent_path());
  const FileLock lock = lock_prefix(output);
  for (const fs::path& file : {tokens_path(output), index_path(output)}) {
    if (overwrite || !fs::exists(file)) continue;
    throw UsageError(tr("[output_prefix] {} exists", file.string()),
                     tr("choose another --output-prefix, or replace it with --overwrite"));
  }
  merge_indexed_datasets(prefixes, output);
  return output;
}

}  // namespace danlu::data
