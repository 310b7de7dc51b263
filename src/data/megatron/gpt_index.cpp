#include "data/megatron/gpt_index.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace danlu::data {
namespace {

void append_shuffled_epochs(IdRange exposed, int64_t num_epochs, NumpyRandomState& random,
                            std::vector<int32_t>& documents) {
  const size_t begin = documents.size();
  for (int64_t epoch = 0; epoch < num_epochs; ++epoch) {
    for (int64_t id = exposed.begin; id < exposed.end; ++id) {
      documents.push_back(static_cast<int32_t>(id));
    }
  }
  random.shuffle(std::span(documents).subspan(begin));
}

void check(const GptIndexOptions& options) {
  if (options.sequence_length < 1 ||
      options.sequence_length >= std::numeric_limits<int32_t>::max()) {
    throw UsageError(
        tr("[gpt_index] --seq-length must be 1..2147483646, got {}", options.sequence_length));
  }
  if (options.num_samples && *options.num_samples < 0) {
    throw UsageError(tr("[gpt_index] {} samples asked for", *options.num_samples));
  }
}

}  // namespace

int64_t num_gpt_samples(int64_t total_tokens, const GptIndexOptions& options) {
  const int64_t usable = total_tokens - (options.add_extra_token ? 1 : 0);
  if (options.drop_last_partial) return usable / options.sequence_length;
  // Megatron divides in single precision here. Above 2^24 tokens that differs from exact
  // arithmetic, and the difference is part of the order.
  return static_cast<int64_t>(
      std::ceil(static_cast<float>(usable) / static_cast<float>(options.sequence_length)));
}

std::vector<int64_t> build_gpt_sample_rows(std::span<const int32_t> lengths,
                                           std::span<const int32_t> documents, int64_t total_tokens,
                                           const GptIndexOptions& options) {
  check(options);
  const int32_t extra = options.add_extra_token ? 1 : 0;
  const int64_t num_samples = num_gpt_samples(total_tokens, options);
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(num_samples + 1) * 2);
  int64_t position = 0;
  int64_t offset = 0;
  rows.insert(rows.end(), {position, offset});
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    int64_t missing = options.sequence_length + extra;
    while (missing != 0) {
      const int32_t length = lengths[static_cast<size_t>(documents[static_cast<size_t>(position)])];
      const int64_t available = length - offset;
      missing -= available;
      if (missing <= 0) {
        // The extra token is also the first token of the next sample.
        offset += missing + available - extra;
        missing = 0;
      } else if (position + 1 == static_cast<int64_t>(documents.size())) {
        offset = length - extra;
        break;
      } else {
        ++position;
        offset = 0;
      }
    }
    rows.insert(rows.end(), {position, offset});
  }
  return rows;
}

GptIndices build_gpt_indices(std::span<const int32_t> lengths, IdRange exposed,
                             const GptIndexOptions& options) {
  check(options);
  if (exposed.begin < 0 || exposed.end > static_cast<int64_t>(lengths.size()) ||
      exposed.end > std::numeric_limits<int32_t>::max()) {
    throw InternalError(fmt::format("[gpt_index] sequences [{}, {}) of {}", exposed.begin,
                                    exposed.end, lengths.size()));
  }
  const int64_t epoch_tokens =
      std::accumulate(lengths.begin() + exposed.begin, lengths.begin() + exposed.end, int64_t{0});
  if (epoch_tokens == 0) {
    throw DataError(tr("[gpt_index] sequences [{}, {}) hold no token", exposed.begin, exposed.end),
                    tr("change --split, or use a larger data set"));
  }
  const int64_t extra = options.add_extra_token ? 1 : 0;
  const int64_t length = options.sequence_length;
  GptIndices indices;
  if (options.num_samples) {
    const int64_t wanted_tokens = *options.num_samples * length + extra;
    indices.num_epochs = std::max<int64_t>(1, (wanted_tokens + epoch_tokens - 1) / epoch_tokens);
  }
  int64_t samples_before_last = 0;
  if (indices.num_epochs > 1) {
    // Python floors here, but the dividend is negative only for an epoch of no token.
    samples_before_last = ((indices.num_epochs - 1) * epoch_tokens - extra) / length;
    const int64_t from_last = *options.num_samples - samples_before_last;
    const int64_t per_epoch = (epoch_tokens - extra) / length;
    indices.separate_last_epoch =
        from_last <
        static_cast<int64_t>(options.separate_last_epoch_below * static_cast<double>(per_epoch));
  }

  NumpyRandomState random(options.seed);
  const int64_t mixed_epochs = indices.num_epochs - (indices.separate_last_epoch ? 1 : 0);
  indices.documents.reserve(static_cast<size_t>(indices.num_epochs * exposed.size()));
  append_shuffled_epochs(exposed, mixed_epochs, random, indices.documents);
  if (indices.separate_last_epoch) append_shuffled_epochs(exposed, 1, random, indices.documents);

  indices.samples =
      build_gpt_sample_rows(lengths, indices.documents, indices.num_epochs * epoch_tokens, options);
  indices.shuffle.resize(static_cast<size_t>(indices.num_samples()));
  std::iota(indices.shuffle.begin(), indices.shuffle.end(), int64_t{0});
  const size_t first = indices.separate_last_epoch ? static_cast<size_t>(samples_before_last)
                                                   : indices.shuffle.size();
  random.shuffle(std::span(indices.shuffle).first(first));
  random.shuffle(std::span(indices.shuffle).subspan(first));
  return indices;
}

}  // namespace danlu::data
