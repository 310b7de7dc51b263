#include "npu/attention_sequences.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <utility>

#include "npu/arithmetic.h"

namespace danlu::npu {
namespace {

constexpr size_t kMostSequences = 2048;  // of one call

template <typename Range>
bool are_adjacent(const std::vector<Sequence>& sequences, const Range& range) {
  for (size_t i = 1; i < sequences.size(); ++i) {
    const auto [first, count] = range(sequences[i - 1]);
    if (first + count != range(sequences[i]).first) return false;
  }
  return true;
}
std::pair<int64_t, int64_t> queries_of(const Sequence& sequence) {
  return {sequence.q, sequence.q_len};
}
std::pair<int64_t, int64_t> keys_of(const Sequence& sequence) {
  return {sequence.k, sequence.k_len};
}

template <typename Range>
at::Tensor packed_rows(const at::Tensor& x, const std::vector<Sequence>& sequences, bool adjacent,
                       const Range& range) {
  int64_t total = 0;
  for (const Sequence& sequence : sequences) total += range(sequence).second;
  if (adjacent) return x.narrow(0, range(sequences.front()).first, total).contiguous();
  const at::Tensor all = fresh(x, {total, x.size(1), x.size(2)}, x.scalar_type());
  int64_t at = 0;
  for (const Sequence& sequence : sequences) {
    const auto [first, count] = range(sequence);
    all.narrow(0, at, count).copy_(x.narrow(0, first, count));
    at += count;
  }
  return all;
}

/// visit(rows of the packed tensor, the same rows of the other).
template <typename Range, typename Visit>
void each_part(const at::Tensor& packed, const at::Tensor& x,
               const std::vector<Sequence>& sequences, bool adjacent, const Range& range,
               const Visit& visit) {
  if (adjacent) return visit(packed, x.narrow(0, range(sequences.front()).first, packed.size(0)));
  int64_t at = 0;
  for (const Sequence& sequence : sequences) {
    const auto [first, count] = range(sequence);
    visit(packed.narrow(0, at, count), x.narrow(0, first, count));
    at += count;
  }
}

struct Found {
  std::vector<Sequence> causal, open;
  std::map<std::pair<int64_t, int64_t>, std::vector<Sequence>> bands;  ///< by before and behind
};

/// With a window a query sees the keys at places [own - window + 1, own] that there are. `lead`:
/// the first query's place.
void add_window(const ops::Span& span, int64_t window, Found& found) {
  const int64_t first = std::max<int64_t>(-span.lead, 0),
                end = std::min(span.q_len, span.k_len + window - 1 - span.lead);
  for (int64_t i = first; i < end;) {
    const int64_t place = span.lead + i, from = std::max<int64_t>(place - window + 1, 0),
                  n = std::min(end - i, span.k_len - from),
                  m = std::min(span.k_len, place + n) - from;
    // The operator takes the last query to stand at the last key.
    const int64_t behind = place - from + n - m;
    found.bands[{window - 1 - behind, behind}].push_back({span.q + i, n, span.k + from, m});
    i += n;
  }
}

void add_span(const ops::Span& span, const ops::AttentionOptions& options, Found& found) {
  if (!span.causal) {
    found.open.push_back({span.q, span.q_len, span.k, span.k_len});
    return;
  }
  if (options.window > 0) return add_window(span, options.window, found);
  // Queries before the first key see nothing; keys after the last query are not seen.
  const int64_t blind = std::clamp<int64_t>(-span.lead, 0, span.q_len);
  const int64_t q = span.q + blind, n = span.q_len - blind, lead = std::max<int64_t>(span.lead, 0);
  if (n == 0) return;
  const int64_t m = std::min(span.k_len, lead + n);
  // Queries that stand at a key of the span; those after them see all keys.
  const int64_t within = std::clamp<int64_t>(m - lead, 0, n);
  if (within > 0) found.causal.push_back({q, within, span.k, m});
  if (within < n) found.open.push_back({q + within, n - within, span.k, m});
}

void add_groups(std::vector<SequenceGroup>& groups, const std::vector<Sequence>& sequences,
                const SequenceGroup& kind) {
  for (size_t at = 0; at < sequences.size(); at += kMostSequences) {
    const size_t end = std::min(at + kMostSequences, sequences.size());
    groups.push_back(kind);
    groups.back().sequences = {sequences.begin() + static_cast<std::ptrdiff_t>(at),
                               sequences.begin() + static_cast<std::ptrdiff_t>(end)};
  }
}

}  // namespace

bool SequenceGroup::has_one_length() const {
  return std::all_of(sequences.begin(), sequences.end(), [&](const Sequence& sequence) {
    return sequence.q_len == sequences.front().q_len;
  });
}
bool SequenceGroup::has_adjacent_queries() const { return are_adjacent(sequences, queries_of); }
bool SequenceGroup::has_adjacent_keys() const { return are_adjacent(sequences, keys_of); }

at::Tensor SequenceGroup::packed_queries(const at::Tensor& x_NQD) const {
  return packed_rows(x_NQD, sequences, has_adjacent_queries(), queries_of);
}
at::Tensor SequenceGroup::packed_keys(const at::Tensor& x_MKD) const {
  return packed_rows(x_MKD, sequences, has_adjacent_keys(), keys_of);
}
void SequenceGroup::unpack_queries(const at::Tensor& packed, const at::Tensor& x_NQD) const {
  each_part(packed, x_NQD, sequences, has_adjacent_queries(), queries_of,
            [](const at::Tensor& from, const at::Tensor& to) { to.copy_(from); });
}
void SequenceGroup::add_queries(const at::Tensor& packed, const at::Tensor& sum_NQD) const {
  each_part(packed, sum_NQD, sequences, has_adjacent_queries(), queries_of,
            [](const at::Tensor& from, const at::Tensor& to) { add(to, from); });
}
void SequenceGroup::add_keys(const at::Tensor& packed, const at::Tensor& sum_MKD) const {
  each_part(packed, sum_MKD, sequences, has_adjacent_keys(), keys_of,
            [](const at::Tensor& from, const at::Tensor& to) { add(to, from); });
}

std::vector<SequenceGroup> groups_of(const ops::Spans& spans,
                                     const ops::AttentionOptions& options) {
  Found found;
  for (const ops::Span& span : spans) add_span(span, options, found);
  std::vector<SequenceGroup> groups;
  add_groups(groups, found.causal, {Seen::kCausal, 0, 0, {}});
  add_groups(groups, found.open, {Seen::kAll, 0, 0, {}});
  for (const auto& [band, sequences] : found.bands)
    add_groups(groups, sequences, {Seen::kBand, band.first, band.second, {}});
  return groups;
}

int64_t num_queries(const std::vector<SequenceGroup>& groups) {
  int64_t count = 0;
  for (const SequenceGroup& group : groups) {
    for (const Sequence& sequence : group.sequences) count += sequence.q_len;
  }
  return count;
}

}  // namespace danlu::npu
