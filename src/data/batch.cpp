#include "data/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/rng.h"

namespace danlu::data {
namespace {

void check_starts(const std::vector<int32_t>& starts, size_t num_tokens, const char* name) {
  if (starts.empty() || starts[0] != 0) {
    throw InternalError(fmt::format("[make_batch] {} must begin with 0", name));
  }
  for (size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] <= starts[i - 1] || static_cast<size_t>(starts[i]) >= num_tokens) {
      throw InternalError(fmt::format("[make_batch] {}[{}] = {} must lie in ({}, {})", name, i,
                                      starts[i], starts[i - 1], num_tokens));
    }
  }
}

/// Calls visit(begin, end) for each stretch between starts.
template <typename Visit>
void for_each_stretch(const std::vector<int32_t>& starts, size_t num_tokens, Visit visit) {
  for (size_t s = 0; s < starts.size(); ++s) {
    const auto begin = static_cast<size_t>(starts[s]);
    visit(begin, s + 1 < starts.size() ? static_cast<size_t>(starts[s + 1]) : num_tokens);
  }
}

void append_targets(const Sample& sample, Batch& batch) {
  const size_t base = batch.targets.size(), count = sample.ids.size();
  batch.targets.resize(base + count, kIgnoreLabel);
  if (sample.labels_are_targets) {
    for (size_t i = 0; i < count; ++i) batch.targets[base + i] = sample.labels[i];
  } else {
    for_each_stretch(sample.segments, count, [&](size_t begin, size_t end) {
      for (size_t i = begin; i + 1 < end; ++i) batch.targets[base + i] = sample.labels[i + 1];
    });
  }
  for (size_t i = base; i < batch.targets.size(); ++i) {
    batch.num_targets += batch.targets[i] != kIgnoreLabel;
  }
}

/// REQUIRES: the sample's segments are in the batch.
template <typename T>
void append_values(const Sample& sample, const std::vector<T>& values, const Batch& batch,
                   std::vector<T>& all) {
  if (!values.empty() && values.size() != sample.segments.size()) {
    throw InternalError(fmt::format("[make_batch] {} values for {} segments", values.size(),
                                    sample.segments.size()));
  }
  const size_t before = batch.segment_starts.size() - 1 - sample.segments.size();
  if (before > 0 && all.empty() != values.empty())
    throw InternalError("[make_batch] some samples have values of segments, and others have none");
  all.insert(all.end(), values.begin(), values.end());
}

/// REQUIRES: the sample's segments are in the batch.
void append_labels(const Sample& sample, Batch& batch) {
  const size_t own = sample.segments.size(), before = batch.segment_starts.size() - 1 - own;
  const size_t numbers = sample.segment_labels.size() / own;
  if (sample.segment_labels.size() % own != 0 || batch.segment_labels.size() != before * numbers)
    throw InternalError("[make_batch] segments have unlike numbers of labels");
  batch.segment_labels.insert(batch.segment_labels.end(), sample.segment_labels.begin(),
                              sample.segment_labels.end());
}

/// REQUIRES: the sample's ids are in the batch.
void append_columns(const Sample& sample, Batch& batch) {
  const size_t before = batch.ids.size() - sample.ids.size();
  if (before > 0 && sample.token_columns.size() != batch.token_columns.size())
    throw InternalError("[make_batch] samples have different columns");
  for (const auto& [name, values] : sample.token_columns) {
    std::vector<float>& column = batch.token_columns[name];
    if (values.size() != sample.ids.size() || column.size() != before)
      throw InternalError(fmt::format("[make_batch] column {} is not of every token", name));
    column.insert(column.end(), values.begin(), values.end());
  }
}

void append_sample(const Sample& sample, uint64_t number, Batch& batch) {
  const size_t count = sample.ids.size();
  if (sample.labels.size() != count) {
    throw InternalError(
        fmt::format("[make_batch] {} labels for {} tokens", sample.labels.size(), count));
  }
  ++batch.num_samples;
  if (count == 0) return;
  check_starts(sample.segments, count, "segments");
  const auto& restarts = sample.position_starts.empty() ? sample.segments : sample.position_starts;
  check_starts(restarts, count, "position_starts");
  const size_t base = batch.ids.size();
  if (base + count > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    throw DataError(tr("[make_batch] a micro-batch of more than {} tokens",
                       std::numeric_limits<int32_t>::max()));
  }
  const size_t spans = batch.media.size();
  append_spans(sample.media, static_cast<int64_t>(base), &batch.media);
  batch.ids.insert(batch.ids.end(), sample.ids.begin(), sample.ids.end());
  for (size_t i = 0; i < count; ++i) batch.token_keys.push_back(mix64(number, i));
  for (size_t i = spans; i < batch.media.size(); ++i)
    batch.media[i].key = batch.token_keys[static_cast<size_t>(batch.media[i].begin)];
  append_targets(sample, batch);
  for_each_stretch(restarts, count, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) batch.positions.push_back(static_cast<int64_t>(i - begin));
  });
  for_each_stretch(sample.segments, count, [&](size_t, size_t end) {
    batch.segment_starts.push_back(static_cast<int32_t>(base + end));
  });
  append_values(sample, sample.segment_values, batch, batch.segment_values);
  append_values(sample, sample.segment_logprobs, batch, batch.segment_logprobs);
  append_labels(sample, batch);
  append_columns(sample, batch);
}

}  // namespace

Batch make_batch(const std::vector<Sample>& samples, const std::vector<int64_t>& numbers) {
  if (!numbers.empty() && numbers.size() != samples.size()) {
    throw InternalError(
        fmt::format("[make_batch] {} numbers for {} samples", numbers.size(), samples.size()));
  }
  Batch batch;
  batch.segment_starts.push_back(0);
  for (size_t i = 0; i < samples.size(); ++i)
    append_sample(samples[i], numbers.empty() ? i : static_cast<uint64_t>(numbers[i]), batch);
  return batch;
}

std::vector<int64_t> segment_of_tokens(const Batch& batch) {
  std::vector<int64_t> segments;
  segments.reserve(batch.ids.size());
  const std::vector<int32_t>& starts = batch.segment_starts;
  const auto add = [&](const RowRange& range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const auto next = std::upper_bound(starts.begin(), starts.end(), row);
      segments.push_back(next - starts.begin() - 1);
    }
  };
  if (batch.rows.empty()) add({0, starts.back()});
  for (const RowRange& range : batch.rows) add(range);
  return segments;
}

Batch part_of(const Batch& batch, const std::vector<RowRange>& rows) {
  Batch part;
  part.rows = rows;
  if (rows.empty()) part.rows.push_back({0, 0});  // a part without a row: no ranges are the whole
  part.segment_starts = batch.segment_starts;
  part.all_ids = batch.ids;
  part.all_targets = batch.targets;
  part.media = batch.media;
  part.pixels = batch.pixels;
  part.segment_values = batch.segment_values;
  part.segment_labels = batch.segment_labels;
  part.segment_logprobs = batch.segment_logprobs;
  if (!rows.empty() && rows.front().begin == 0) part.num_samples = batch.num_samples;
  const auto take = [](const auto& from, const RowRange& range, auto& to) {
    to.insert(to.end(), from.begin() + range.begin, from.begin() + range.end);
  };
  for (const RowRange& range : rows) {
    take(batch.ids, range, part.ids);
    take(batch.targets, range, part.targets);
    take(batch.positions, range, part.positions);
    take(batch.token_keys, range, part.token_keys);
    for (const auto& [name, values] : batch.token_columns)
      take(values, range, part.token_columns[name]);
  }
  part.num_targets = std::count_if(part.targets.begin(), part.targets.end(),
                                   [](int64_t target) { return target != kIgnoreLabel; });
  for (size_t s = 1; s < batch.segment_starts.size(); ++s) {
    part.segment_lengths.push_back(
        1 + *std::max_element(batch.positions.begin() + batch.segment_starts[s - 1],
                              batch.positions.begin() + batch.segment_starts[s]));
  }
  return part;
}

}  // namespace danlu::data
