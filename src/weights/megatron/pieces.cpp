#include "weights/megatron/pieces.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace danlu::weights::megatron {

GlobalIndex::GlobalIndex(const arch::ModelConfig& config, const std::vector<TensorInfo>& globals) {
  for (size_t i = 0; i < globals.size(); ++i) by_name_.emplace(globals[i].name, i);
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (!spec.tied_to.empty()) continue;
    const auto at = by_name_.find(spec.name);
    if (at == by_name_.end())
      throw InternalError(fmt::format("[megatron] {} is not among the global tensors", spec.name));
    by_role_.emplace(std::tuple{spec.role, spec.layer, spec.expert, spec.is_bias}, at->second);
  }
}

size_t GlobalIndex::named(const std::string& name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? kNone : at->second;
}

size_t GlobalIndex::find(arch::Role role, int64_t layer, int64_t expert, bool is_bias) const {
  const auto at = by_role_.find({role, layer, expert, is_bias});
  return at == by_role_.end() ? kNone : at->second;
}

size_t GlobalIndex::at(arch::Role role, int64_t layer, int64_t expert, bool is_bias) const {
  const size_t global = find(role, layer, expert, is_bias);
  if (global == kNone) {
    throw InternalError(fmt::format("[megatron] layer {} has no parameter of role {}", layer,
                                    static_cast<int>(role)));
  }
  return global;
}

namespace {

/// Heads of an attention whose rows are laid out.
struct HeadCounts {
  int64_t queries, keys, head_dim;
  arch::QkvLayout layout;
};

Section rows_by_group(const HeadCounts& heads, const QkvGlobals& from, int64_t cols,
                      const RankCut& cut) {
  const int64_t d = heads.head_dim, groups = heads.keys / cut.count;
  const int64_t queries = heads.queries / heads.keys * d;  // rows of a group's query heads
  const int64_t group_rows = queries + 2 * d;
  Section section{.rows = groups * group_rows, .cols = cols};
  const auto add = [&](size_t global, int64_t from_row, int64_t rows, int64_t to_row) {
    section.pieces.push_back({.global = global, .of = {from_row, rows, 0, cols}, .row = to_row});
  };
  if (heads.layout == arch::QkvLayout::kInterleaved) {
    add(from.q, cut.rank * section.rows, section.rows, 0);
    return section;
  }
  const bool joined = heads.layout != arch::QkvLayout::kSeparate;  // queries, keys, values
  const int64_t k_begin = joined ? heads.queries * d : 0;
  const int64_t v_begin = joined ? k_begin + heads.keys * d : 0;
  for (int64_t local = 0; local < groups; ++local) {
    const int64_t group = cut.rank * groups + local, to = local * group_rows;
    add(from.q, group * queries, queries, to);
    add(joined ? from.q : from.k, k_begin + group * d, d, to + queries);
    add(joined ? from.q : from.v, v_begin + group * d, d, to + queries + d);
  }
  return section;
}

}  // namespace

Section qkv_rows(const arch::ModelConfig& c, const QkvGlobals& from, int64_t cols,
                 const RankCut& cut) {
  return rows_by_group({c.num_heads, c.num_kv_heads, c.head_dim, c.qkv_layout}, from, cols, cut);
}

Section tower_qkv_rows(const arch::VisionConfig& vision, size_t global, int64_t cols,
                       const RankCut& cut) {
  return rows_by_group({vision.num_heads, vision.num_heads, vision.width / vision.num_heads,
                        arch::QkvLayout::kThirds},
                       {global, global, global}, cols, cut);
}

Section two_halves(size_t gate, size_t up, const Rect& matrix, const RankCut& cut) {
  const int64_t rows = matrix.rows / cut.count;
  Section section{.rows = 2 * rows, .cols = matrix.cols};
  const Rect of{cut.rank * rows, rows, 0, matrix.cols};
  section.pieces.push_back({.global = gate, .of = of});
  section.pieces.push_back({.global = up, .of = of, .row = rows});
  return section;
}

Section joined_halves(size_t gate_up, const Rect& matrix, const RankCut& cut) {
  const int64_t half = matrix.rows / 2, rows = half / cut.count;
  Section section{.rows = 2 * rows, .cols = matrix.cols};
  for (const int64_t part : {0, 1}) {
    section.pieces.push_back({.global = gate_up,
                              .of = {part * half + cut.rank * rows, rows, 0, matrix.cols},
                              .row = part * rows});
  }
  return section;
}

Section row_block(size_t global, const Rect& matrix, const RankCut& cut) {
  const int64_t rows = matrix.rows / cut.count;
  Section section{.rows = rows, .cols = matrix.cols};
  section.pieces.push_back({.global = global, .of = {cut.rank * rows, rows, 0, matrix.cols}});
  return section;
}

Section column_block(size_t global, const Rect& matrix, const RankCut& cut) {
  const int64_t cols = matrix.cols / cut.count;
  Section section{.rows = matrix.rows, .cols = cols};
  section.pieces.push_back({.global = global, .of = {0, matrix.rows, cut.rank * cols, cols}});
  return section;
}

Section padded_rows(size_t global, const Rect& matrix, int64_t first, int64_t rows) {
  Section section{.rows = rows, .cols = matrix.cols};
  const int64_t real = std::clamp<int64_t>(matrix.rows - first, 0, rows);
  if (real > 0) section.pieces.push_back({.global = global, .of = {first, real, 0, matrix.cols}});
  for (int64_t row = real; row < rows; ++row) {
    section.pieces.push_back({.global = global,
                              .of = {matrix.rows - 1, 1, 0, matrix.cols},
                              .row = row,
                              .replica = true});
  }
  return section;
}

Section grouped_up(const std::vector<size_t>& gates, const std::vector<size_t>& ups,
                   const Rect& matrix, const RankCut& cut) {
  const int64_t width = matrix.rows / cut.count, h = matrix.cols;
  Section section{.rows = static_cast<int64_t>(gates.size()) * h, .cols = 2 * width};
  const Rect of{cut.rank * width, width, 0, h};
  for (size_t i = 0; i < gates.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) * h;
    section.pieces.push_back({.global = gates[i], .of = of, .row = row, .transposed = true});
    section.pieces.push_back(
        {.global = ups[i], .of = of, .row = row, .col = width, .transposed = true});
  }
  return section;
}

Section grouped_down(const std::vector<size_t>& downs, const Rect& matrix, const RankCut& cut) {
  const int64_t h = matrix.rows, width = matrix.cols / cut.count;
  Section section{.rows = static_cast<int64_t>(downs.size()) * width, .cols = h};
  for (size_t i = 0; i < downs.size(); ++i) {
    section.pieces.push_back({.global = downs[i],
                              .of = {0, h, cut.rank * width, width},
                              .row = static_cast<int64_t>(i) * width,
                              .transposed = true});
  }
  return section;
}

}  // namespace danlu::weights::megatron
