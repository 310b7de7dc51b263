#include "arch/shard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "arch/gated_delta.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

/// The rows of a parameter's matrix that stand for `heads` heads from `first_row` on, cut by ranks.
struct Heads {
  int64_t first_row, heads, head_dim;
};

/// This rank's rows of the query heads, or of keys or values, which ranks may share.
Rect rows_of_heads(const Heads& from, int64_t cols, const Coord& coord) {
  const int64_t d = from.head_dim;
  if (from.heads % coord.tp_size == 0) {
    const int64_t rows = from.heads / coord.tp_size * d;
    return {from.first_row + coord.tp_rank * rows, rows, 0, cols};
  }
  return {from.first_row + coord.tp_rank * from.heads / coord.tp_size * d, d, 0, cols};
}

/// A matrix whose rows go group by group: the group's query heads, its key, its value.
std::vector<Rect> interleaved(const ModelConfig& c, int64_t cols, const Coord& coord) {
  const int64_t d = c.head_dim, queries = c.num_heads / c.num_kv_heads;  // of a group
  const int64_t group_rows = (queries + 2) * d;
  if (c.num_kv_heads % coord.tp_size == 0) {
    const int64_t rows = c.num_kv_heads / coord.tp_size * group_rows;
    return {{coord.tp_rank * rows, rows, 0, cols}};
  }
  const int64_t sharers = coord.tp_size / c.num_kv_heads;  // ranks of a group
  const int64_t group = coord.tp_rank / sharers, mine = queries / sharers * d;
  const int64_t begin = group * group_rows;
  return {{begin + coord.tp_rank % sharers * mine, mine, 0, cols},
          {begin + queries * d, 2 * d, 0, cols}};
}

std::vector<Rect> kv_groups(const ModelConfig& c, const ParamSpec& spec, int64_t cols,
                            const Coord& coord) {
  const int64_t d = c.head_dim, q_rows = c.num_heads * d, kv_rows = c.num_kv_heads * d;
  const auto part = [&](int64_t first_row, int64_t heads) {
    return rows_of_heads({first_row, heads, d}, cols, coord);
  };
  // A head's rows may be twice as many (arch::gates_attention).
  if (spec.role == Role::kQ)
    return {rows_of_heads({0, c.num_heads, spec.shape.front() / c.num_heads}, cols, coord)};
  if (spec.role != Role::kQkv) return {part(0, c.num_kv_heads)};
  if (c.qkv_layout == QkvLayout::kInterleaved) return interleaved(c, cols, coord);
  return {part(0, c.num_heads), part(q_rows, c.num_kv_heads),
          part(q_rows + kv_rows, c.num_kv_heads)};
}

std::vector<Rect> vocabulary_rows(const Rect& matrix, const Coord& coord) {
  const int64_t rows = (matrix.rows + coord.tp_size - 1) / coord.tp_size;
  const int64_t first = std::min(coord.tp_rank * rows, matrix.rows);
  const int64_t real = std::min(rows, matrix.rows - first);
  if (real == 0) return {};
  return {{first, real, 0, matrix.cols}};
}

/// The matrix is `count` equal parts below each other: this rank's block of each.
std::vector<Rect> equal_parts(int64_t count, const Rect& matrix, const Coord& coord) {
  const int64_t part_rows = matrix.rows / count, mine = part_rows / coord.tp_size;
  std::vector<Rect> parts;
  for (int64_t part = 0; part < count; ++part)
    parts.push_back({part * part_rows + coord.tp_rank * mine, mine, 0, matrix.cols});
  return parts;
}

/// Whether the expert that `spec` is part of is this rank's; experts are dealt in order.
bool holds_expert(const ModelConfig& c, const ParamSpec& spec, const Coord& coord) {
  const int64_t dealers = coord.expert_dealers, cutters = coord.tp_size / dealers;
  const int64_t owner = spec.expert / (c.experts.count / (coord.ep_size * dealers));
  return owner == coord.ep_rank * dealers + coord.tp_rank / cutters;
}

/// A rank's position among those that cut its experts, which their dealer has.
Coord among_cutters(const Coord& coord) {
  const int64_t cutters = coord.tp_size / coord.expert_dealers;
  return {.tp_size = cutters, .tp_rank = coord.tp_rank % cutters};
}

}  // namespace

Rect matrix_of(const std::vector<int64_t>& shape) {
  Rect all{0, shape.empty() ? 1 : shape.front(), 0, 1};
  for (size_t i = 1; i < shape.size(); ++i) all.cols *= shape[i];
  return all;
}

std::vector<Rect> shard(const ModelConfig& config, const ParamSpec& spec, const Coord& place) {
  const Rect matrix = matrix_of(spec.shape);
  if (spec.expert >= 0 && !holds_expert(config, spec, place)) return {};
  const Coord coord = spec.expert >= 0 ? among_cutters(place) : place;
  switch (spec.cut) {
    case Cut::kCopiedBetween:
    case Cut::kCopiedInside:
      return {matrix};
    case Cut::kColumns: {
      const int64_t cols = matrix.cols / coord.tp_size;
      return {{0, matrix.rows, coord.tp_rank * cols, cols}};
    }
    case Cut::kKvGroups:
      return kv_groups(config, spec, matrix.cols, coord);
    case Cut::kHalves:
      return equal_parts(2, matrix, coord);
    case Cut::kThirds:
      return equal_parts(3, matrix, coord);
    case Cut::kRows:
      break;
  }
  if (spec.role == Role::kEmbedding || spec.role == Role::kHead)
    return vocabulary_rows(matrix, coord);
  const int64_t rows = matrix.rows / coord.tp_size;
  return {{coord.tp_rank * rows, rows, 0, matrix.cols}};
}

void require_divides(const ModelConfig& config, int64_t tp_size) {
  if (tp_size > 1 && has_gated_delta(config)) {
    throw UsageError(
        tr("[parallel] {} tensor-parallel ranks: a model of {} has linear attention, whose heads "
           "are not divided yet",
           tp_size, config.family),
        tr("more ranks share the work by data, pipeline or expert parallelism, and the memory by "
           "ZeRO"));
  }
  const auto causes = [&](int64_t n) {
    std::vector<std::string> found;
    if (config.num_heads % n != 0) found.push_back(tr("{} attention heads", config.num_heads));
    if (config.num_kv_heads % n != 0 && n % config.num_kv_heads != 0)
      found.push_back(tr("{} key-value heads", config.num_kv_heads));
    if (config.ffn_size % n != 0)
      found.push_back(tr("a feed-forward width of {}", config.ffn_size));
    if (config.experts.ffn_size % n != 0)
      found.push_back(tr("experts with a width of {}", config.experts.ffn_size));
    if (config.experts.shared_ffn_size % n != 0)
      found.push_back(tr("a shared expert with a width of {}", config.experts.shared_ffn_size));
    if (!config.vision) return found;
    if (config.vision->num_heads % n != 0)
      found.push_back(tr("{} attention heads of the vision tower", config.vision->num_heads));
    if (config.vision->ffn_size % n != 0)
      found.push_back(
          tr("a feed-forward width of {} in the vision tower", config.vision->ffn_size));
    return found;
  };
  const std::vector<std::string> found = causes(tp_size);
  if (found.empty()) return;
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= config.num_heads; ++n) {
    if (causes(n).empty()) sizes.push_back(n);
  }
  throw UsageError(tr("[parallel] {} tensor-parallel ranks cannot divide {}", tp_size,
                      fmt::join(found, tr(" and "))),
                   tr("sizes that do: {}", fmt::join(sizes, ", ")));
}

}  // namespace danlu::arch
