#include "train/start/precompute.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/tokenized_dataset.h"
#include "parallel/agree.h"
#include "train/objectives/make_objective.h"
#include "train/objectives/precomputed.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/hf/fingerprint.h"
#include "weights/lora/peft.h"
#include "weights/tensor_source.h"

namespace danlu::train {
namespace {

using Sources = std::vector<std::shared_ptr<const data::SampleSource>>;

/// Training samples, and those that are held out.
Sources sources_of(const PreparedData& data) {
  Sources sources = {data.train};
  if (data.validation) sources.push_back(data.validation);
  return sources;
}

/// All that the numbers depend on.
std::string key_of(const Prepared& run) {
  const Json& identity = run.steps.identity;
  Json key{{"version", DANLU_VERSION}, {"sources", Json::array()}};
  for (const char* name : {"model", "from_scratch", "nf4", "precision"})
    key[name] = identity.value(name, Json());
  if (run.config.model.from_scratch) key["seed"] = run.config.seed;
  const Json objective = identity.value("objective", Json::object());
  key["reference"] = objective.value("reference", Json());
  if (!run.config.model.adapter.empty() && !run.config.objective.base_is_reference) {
    const weights::AdapterSource adapter =
        weights::open_adapter_source(run.config.model.adapter, run.source.config,
                                     {.lora_alpha = run.config.model.adapter_alpha});
    key["adapter"] = weights::model_fingerprint(adapter.tensors->files());
    key["adapter_config"] = weights::peft_config_json(adapter.peft);
  }
  for (const auto& source : sources_of(run.data)) key["sources"].push_back(source->content_hash());
  return dump_text(key);
}

fs::path file_of(const Prepared& run, const std::string& key) {
  const fs::path& named = run.config.data.cache_dir;
  return (named.empty() ? data::default_cache_dir() : named) / "reference" /
         fmt::format("{:016x}.logps", hash_bytes(key));
}

/// A file of log-probabilities: a line with their key, then the numbers.
std::string content_of(const std::string& key, const std::vector<SegmentLogprobs>& found) {
  std::string text = key + "\n";
  for (const SegmentLogprobs& of_source : found) {
    for (const std::vector<double>& of_sample : of_source)
      text.append(reinterpret_cast<const char*>(of_sample.data()),
                  of_sample.size() * sizeof(double));
  }
  return text + fmt::format("{:016x}", hash_bytes(text));
}

/// Nothing of a file that is not there, or is not whole.
std::optional<std::string> numbers_in(const fs::path& file, const std::string& key) {
  std::error_code unknown;
  if (!fs::exists(file, unknown)) return std::nullopt;
  const std::string text = read_file(file);
  constexpr size_t kDigits = 16;
  if (text.size() < key.size() + 1 + kDigits || !text.starts_with(key + "\n")) return std::nullopt;
  const std::string whole = text.substr(0, text.size() - kDigits);
  if (fmt::format("{:016x}", hash_bytes(whole)) != text.substr(whole.size())) return std::nullopt;
  return whole.substr(key.size() + 1);
}

/// Errors: InternalError where there are fewer numbers than segments.
SegmentLogprobs taken(const data::SampleSource& samples, const std::string& numbers, size_t& at) {
  SegmentLogprobs found;
  for (int64_t i = 0; i < samples.size(); ++i) {
    std::vector<double> of_sample(samples.get(i).segments.size());
    const size_t bytes = of_sample.size() * sizeof(double);
    if (at + bytes > numbers.size())
      throw InternalError("[reference] the cache has too few numbers");
    std::memcpy(of_sample.data(), numbers.data() + at, bytes);
    at += bytes;
    found.push_back(std::move(of_sample));
  }
  return found;
}

std::vector<SegmentLogprobs> computed(const Prepared& run, const Begun& begun) {
  // It was not loaded because the numbers were there a moment ago.
  if (run.config.holds_reference() && !begun.reference) {
    throw IoError(tr("[reference] the log-probabilities in the cache vanished while the run began"),
                  tr("give the same command again to go on"));
  }
  const ForwardPasses policy(*begun.state.model, *begun.state.links);
  std::vector<SegmentLogprobs> found;
  for (const auto& source : sources_of(run.data)) {
    log::info("reference: log-probabilities of {} samples are computed",
              format_count(static_cast<uint64_t>(source->size())));
    found.push_back(logprobs_of_samples(begun.reference.get(), policy, *source,
                                        run.config.batch.micro_batch_size));
  }
  return found;
}

std::vector<SegmentLogprobs> found_in(const Prepared& run, const std::string& numbers) {
  std::vector<SegmentLogprobs> found;
  size_t at = 0;
  for (const auto& source : sources_of(run.data)) found.push_back(taken(*source, numbers, at));
  return found;
}

}  // namespace

bool finds_precomputed(const Prepared& run) {
  if (!run.config.objective.precomputes_reference) return false;
  if (run.data.most_patches > 0) {
    throw UsageError(
        tr("[train] {}: these rows have pictures, which are read in the training alone",
           run.config.flag("precompute_ref_log_probs")),
        tr("leave it out: the reference is then held beside the model"));
  }
  const std::string key = key_of(run);
  const bool is_first = run.ranks.is_first();
  return !run.ranks.from_first(is_first && numbers_in(file_of(run, key), key) ? "found" : "")
              .empty();
}

PreparedData precompute_reference(const Prepared& run, Begun& begun) {
  PreparedData data = run.data;
  if (!run.config.objective.precomputes_reference) return data;
  const bool is_first = run.ranks.is_first();
  const std::string key = key_of(run);
  const fs::path file = file_of(run, key);
  std::optional<std::string> numbers;
  if (is_first) numbers = numbers_in(file, key);
  std::vector<SegmentLogprobs> found;
  if (!run.ranks.from_first(numbers ? "found" : "").empty()) {
    log::info("reference: log-probabilities from {}", file.string());
    found = found_in(run, run.ranks.from_first(numbers.value_or("")));
  } else {
    found = computed(run, begun);
    parallel::together(run.ranks.all(), [&] {
      if (!is_first) return;
      data::require_cache_directory(file.parent_path());
      write_file_atomic(file, content_of(key, found));
    });
  }
  data.train = with_logprobs(data.train, std::move(found[0]));
  if (data.validation) data.validation = with_logprobs(data.validation, std::move(found[1]));
  begun.reference.reset();
  begun.state.objective = make_objective(run.config.objective, nullptr, run.text.tokenizer.get());
  return data;
}

}  // namespace danlu::train
