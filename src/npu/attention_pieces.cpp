#include "npu/attention_pieces.h"

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
bool are_adjacent(const std::vector<Piece>& pieces, const Range& range) {
  for (size_t i = 1; i < pieces.size(); ++i) {
    const auto [first, count] = range(pieces[i - 1]);
    if (first + count != range(pieces[i]).first) return false;
  }
  return true;
}
std::pair<int64_t, int64_t> queries_of(const Piece& piece) { return {piece.q, piece.q_len}; }
std::pair<int64_t, int64_t> keys_of(const Piece& piece) { return {piece.k, piece.k_len}; }

template <typename Range>
at::Tensor packed_rows(const at::Tensor& x, const std::vector<Piece>& pieces, bool adjacent,
                       const Range& range) {
  int64_t total = 0;
  for (const Piece& piece : pieces) total += range(piece).second;
  if (adjacent) return x.narrow(0, range(pieces.front()).first, total).contiguous();
  const at::Tensor all = fresh(x, {total, x.size(1), x.size(2)}, x.scalar_type());
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    const auto [first, count] = range(piece);
    all.narrow(0, at, count).copy_(x.narrow(0, first, count));
    at += count;
  }
  return all;
}

/// visit(rows of the packed tensor, the same rows of the other).
template <typename Range, typename Visit>
void each_part(const at::Tensor& packed, const at::Tensor& x, const std::vector<Piece>& pieces,
               bool adjacent, const Range& range, const Visit& visit) {
  if (adjacent) return visit(packed, x.narrow(0, range(pieces.front()).first, packed.size(0)));
  int64_t at = 0;
  for (const Piece& piece : pieces) {
    const auto [first, count] = range(piece);
    visit(packed.narrow(0, at, count), x.narrow(0, first, count));
    at += count;
  }
}

struct Found {
  std::vector<Piece> causal, open;
  std::map<std::pair<int64_t, int64_t>, std::vector<Piece>> bands;  ///< by before and behind
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
  // Queries before the first key see nothing; keys behind the last query are not seen.
  const int64_t blind = std::clamp<int64_t>(-span.lead, 0, span.q_len);
  const int64_t q = span.q + blind, n = span.q_len - blind, lead = std::max<int64_t>(span.lead, 0);
  if (n == 0) return;
  const int64_t m = std::min(span.k_len, lead + n);
  // Queries that stand at a key of the span; those behind them see all keys.
  const int64_t within = std::clamp<int64_t>(m - lead, 0, n);
  if (within > 0) found.causal.push_back({q, within, span.k, m});
  if (within < n) found.open.push_back({q + within, n - within, span.k, m});
}

void add_groups(std::vector<PieceGroup>& groups, const std::vector<Piece>& pieces,
                const PieceGroup& kind) {
  for (size_t at = 0; at < pieces.size(); at += kMostSequences) {
    const size_t end = std::min(at + kMostSequences, pieces.size());
    groups.push_back(kind);
    groups.back().pieces = {pieces.begin() + static_cast<std::ptrdiff_t>(at),
                            pieces.begin() + static_cast<std::ptrdiff_t>(end)};
  }
}

}  // namespace

bool PieceGroup::has_one_length() const {
  return std::all_of(pieces.begin(), pieces.end(),
                     [&](const Piece& piece) { return piece.q_len == pieces.front().q_len; });
}
bool PieceGroup::has_adjacent_queries() const { return are_adjacent(pieces, queries_of); }
bool PieceGroup::has_adjacent_keys() const { return are_adjacent(pieces, keys_of); }

at::Tensor PieceGroup::packed_queries(const at::Tensor& x_NQD) const {
  return packed_rows(x_NQD, pieces, has_adjacent_queries(), queries_of);
}
at::Tensor PieceGroup::packed_keys(const at::Tensor& x_MKD) const {
  return packed_rows(x_MKD, pieces, has_adjacent_keys(), keys_of);
}
void PieceGroup::unpack_queries(const at::Tensor& packed, const at::Tensor& x_NQD) const {
  each_part(packed, x_NQD, pieces, has_adjacent_queries(), queries_of,
            [](const at::Tensor& from, const at::Tensor& to) { to.copy_(from); });
}
void PieceGroup::add_queries(const at::Tensor& packed, const at::Tensor& sum_NQD) const {
  each_part(packed, sum_NQD, pieces, has_adjacent_queries(), queries_of,
            [](const at::Tensor& from, const at::Tensor& to) { add(to, from); });
}
void PieceGroup::add_keys(const at::Tensor& packed, const at::Tensor& sum_MKD) const {
  each_part(packed, sum_MKD, pieces, has_adjacent_keys(), keys_of,
            [](const at::Tensor& from, const at::Tensor& to) { add(to, from); });
}

std::vector<PieceGroup> groups_of(const ops::Spans& spans, const ops::AttentionOptions& options) {
  Found found;
  for (const ops::Span& span : spans) add_span(span, options, found);
  std::vector<PieceGroup> groups;
  add_groups(groups, found.causal, {Seen::kCausal, 0, 0, {}});
  add_groups(groups, found.open, {Seen::kAll, 0, 0, {}});
  for (const auto& [band, pieces] : found.bands)
    add_groups(groups, pieces, {Seen::kBand, band.first, band.second, {}});
  return groups;
}

int64_t num_queries(const std::vector<PieceGroup>& groups) {
  int64_t count = 0;
  for (const PieceGroup& group : groups) {
    for (const Piece& piece : group.pieces) count += piece.q_len;
  }
  return count;
}

}  // namespace danlu::npu
