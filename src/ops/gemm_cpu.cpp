#include "ops/gemm_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "device/parallel.h"
#include "ops/prefetch_cpu.h"
#include "ops/scratch_cpu.h"

namespace danlu::ops::cpu {

namespace {

constexpr size_t kWord = 4;
// Rows of the left factor that stay in a core's second cache beside a panel: a multiple of 6, and
// of the 32 that registers of AMX hold.
constexpr size_t kBlockRows = 96;
constexpr size_t kLeastBlockRows = 24;
constexpr size_t kAmxRows = 32;
// Steps of k that a tile goes before it passes to the next rows.
constexpr size_t kBlockSteps = 1024;
// Steps that are packed at a time where both factors are. Where the left one is read in place, each
// slice more costs its sums a way through memory and saves no packing: as many as leave panels
// enough to a group.
constexpr size_t kSliceSteps = kBlockSteps;
constexpr size_t kLongSliceSteps = 4 * kBlockSteps;
// Steps of a tile that is made: it stays in the first cache until it is packed.
constexpr size_t kTileSteps = 128;
// What is packed at a time of either factor: about half of a third cache of eight cores.
constexpr size_t kGroupBytes = size_t{4} << 20;
// Rows that stay in a core's second cache while panels pass.
constexpr size_t kStayingBytes = size_t{512} << 10;
// Sums that wait for the next slice, which they come back from a cache for.
constexpr size_t kSumBytes = size_t{8} << 20;

size_t rounded_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

/// What begins at row or column `first` and at element `k` of it.
Factor from(const Factor& factor, size_t first, size_t k) {
  const size_t at = first * factor.across + k * factor.along;
  return {factor.element, static_cast<const char*>(factor.data) + at * size_of(factor.element),
          factor.along, factor.across};
}

class Gemm {
 public:
  explicit Gemm(const MatrixProduct& product)
      : p_(product),
        arithmetic_(arithmetic_of(product.left.element == Element::kBF16 &&
                                  product.right.element == Element::kBF16)),
        steps_(steps_of(arithmetic_, product.k)),
        columns_(panel_columns(arithmetic_)) {
    const Element native = arithmetic_ == Arithmetic::kF32 ? Element::kF32 : Element::kBF16;
    reads_left_in_place_ =
        p_.left.element == native && p_.left.along == 1 && p_.k % group_of(arithmetic_) == 0;
    slice_ = std::clamp<size_t>(steps_, 1, reads_left_in_place_ ? kLongSliceSteps : kSliceSteps);
    group_ = group();
    block_rows_ = block_rows();
    row_bytes_ = left_bytes(arithmetic_, slice_ * step_of(arithmetic_), 1);
    if (p_.bias) {
      wide_bias_.resize(p_.n);
      widen(p_.element, 1, p_.n, p_.bias, p_.n, wide_bias_.data(), p_.n);
    }
  }

  void run() {
    if (goes_by_panels()) return panel_by_panel();
    static thread_local ScratchMemory right_memory, left_memory, sum_memory;
    const size_t panel_bytes = slice_ * columns_ * kWord;
    const size_t panels = (p_.n + columns_ - 1) / columns_;
    const size_t rows = reads_left_in_place_
                            ? p_.m
                            : std::min(p_.m, std::max(block_rows_, kGroupBytes / row_bytes_ /
                                                                       block_rows_ * block_rows_));
    Group g;
    g.right = right_memory.of(group_ * panel_bytes);
    g.left =
        reads_left_in_place_ ? nullptr : left_memory.of(rounded_up(rows, block_rows_) * row_bytes_);
    if (is_sliced()) {
      g.sums_row = sums_through_memory() ? group_ * columns_ : columns_;
      g.sums = reinterpret_cast<float*>(sum_memory.of(p_.m * g.sums_row * kWord));
    }
    for (g.first_panel = 0; g.first_panel < panels; g.first_panel += group_) {
      g.panels = std::min(group_, panels - g.first_panel);
      for (g.step = 0; g.step < std::max<size_t>(1, steps_); g.step += slice_) {
        g.steps = std::min(slice_, steps_ - g.step);
        device::parallel_each(g.panels,
                              [&](size_t i) { pack_panel(g, i, g.right + i * panel_bytes); });
        for (size_t row = 0; row < p_.m; row += rows)
          multiply_rows(g, row, std::min(rows, p_.m - row));
      }
    }
  }

 private:
  bool is_sliced() const { return slice_ < steps_; }
  /// Whether slices add to memory of ours; else to c itself, but for a panel that is not whole.
  bool sums_through_memory() const {
    return is_sliced() && (p_.element != Element::kF32 || p_.bias != nullptr);
  }
  /// Panels that are packed at a time.
  size_t group() const {
    size_t count = kGroupBytes / (slice_ * columns_ * kWord);
    if (sums_through_memory()) count = std::min(count, kSumBytes / (p_.m * columns_ * kWord));
    return std::clamp<size_t>(count, 1, (p_.n + columns_ - 1) / columns_);
  }
  /// Fewer where there would not be enough blocks for all threads.
  size_t block_rows() const {
    const size_t wanted = 2 * static_cast<size_t>(at::get_num_threads());
    const bool is_amx = arithmetic_ == Arithmetic::kAmx;
    const size_t least = is_amx ? kAmxRows : kLeastBlockRows;
    size_t rows = kBlockRows;
    while (rows > least && group_ * ((p_.m + rows - 1) / rows) < wanted)
      rows = is_amx ? rows - kAmxRows : rows / 2;
    return rows;
  }

  struct Panel {
    const char* data = nullptr;
    size_t bytes = 0;
  };
  /// A slice of some panels of the right factor, and what is made of them.
  struct Group {
    size_t first_panel, panels;
    size_t step, steps;
    char *right, *left;     ///< packed; left: null where it is read in place
    float* sums = nullptr;  ///< of several slices: [m, columns of the panels, or of one]
    size_t sums_row = 0;
  };
  Factor slice_of(const Factor& factor, const Group& g, size_t first) const {
    return from(factor, first, g.step * step_of(arithmetic_));
  }
  size_t k_of(const Group& g) const {
    const size_t unit = step_of(arithmetic_);
    return std::min(g.steps * unit, p_.k - g.step * unit);
  }

  void pack_panel(const Group& g, size_t i, char* to) const {
    const size_t first = (g.first_panel + i) * columns_;
    if (p_.tiles) return pack_tiles(g, first, to);
    pack(arithmetic_, slice_of(p_.right, g, first), k_of(g), std::min(columns_, p_.n - first),
         columns_, to);
  }

  void pack_tiles(const Group& g, size_t first, char* to) const {
    const size_t count = std::min(columns_, p_.n - first), unit = step_of(arithmetic_);
    for (size_t step = 0; step < g.steps; step += kTileSteps) {
      const size_t steps = std::min(kTileSteps, g.steps - step);
      const size_t k = (g.step + step) * unit, k_count = std::min(steps * unit, p_.k - k);
      pack(arithmetic_, p_.tiles->tile(k, k_count, first, count), k_count, count, columns_,
           to + step * columns_ * kWord);
    }
  }

  /// Rows [first, first + rows) of the left factor times the group.
  void multiply_rows(const Group& g, size_t first, size_t rows) const {
    const size_t blocks = (rows + block_rows_ - 1) / block_rows_;
    if (g.left) {
      device::parallel_each(blocks, [&](size_t block) {
        const size_t begin = block * block_rows_;
        pack_left(arithmetic_, slice_of(p_.left, g, first + begin), k_of(g),
                  std::min(block_rows_, rows - begin), block_rows_, g.left + begin * row_bytes_);
      });
    }
    const auto rows_of = [&](size_t block) {
      return std::min(block_rows_, rows - block * block_rows_);
    };
    // The last block has fewer rows: divided by their number, of 512 rows one of two threads would
    // have 288.
    const auto start_of = [&](size_t task) {
      const size_t block = task / g.panels;
      return block == blocks ? rows * g.panels
                             : block * block_rows_ * g.panels + task % g.panels * rows_of(block);
    };
    device::parallel_parts_by_work(blocks * g.panels, start_of, [&](size_t task, size_t past) {
      const TileShapes shapes(arithmetic_);
      for (; task < past; ++task) {
        const size_t block = task / g.panels, begin = block * block_rows_;
        tile(g, first + begin, rows_of(block), task % g.panels, left_rows(g, first, begin), {});
      }
    });
  }

  LeftRows left_rows(const Group& g, size_t first, size_t begin) const {
    if (g.left) return packed_left(arithmetic_, k_of(g), block_rows_, g.left + begin * row_bytes_);
    const Factor rows = slice_of(p_.left, g, first + begin);
    return {static_cast<const char*>(rows.data), rows.across * size_of(rows.element), kWord};
  }

  /// Whether to take the rows through one panel after the other: they stay in the second cache, and
  /// there are panels enough for all threads.
  bool goes_by_panels() const {
    if (!reads_left_in_place_ || is_sliced()) return false;
    if (p_.m <= block_rows_) return true;
    const auto threads = static_cast<size_t>(at::get_num_threads());
    const size_t panels = (p_.n + columns_ - 1) / columns_;
    return p_.m * p_.k * size_of(p_.left.element) <= kStayingBytes &&
           (panels % threads == 0 || panels >= 8 * threads);
  }
  /// Each thread packs a panel and multiplies it from the cache that it went to, while the
  /// processor reads what the next one is packed from.
  void panel_by_panel() const {
    const size_t panels = (p_.n + columns_ - 1) / columns_;
    device::parallel_for(0, static_cast<int64_t>(panels), 1, [&](int64_t begin, int64_t end) {
      static thread_local ScratchMemory memory;
      Group g{0, 1, 0, steps_, memory.of(slice_ * columns_ * kWord), nullptr};
      const TileShapes shapes(arithmetic_);
      for (int64_t i = begin; i < end; ++i) {
        g.first_panel = static_cast<size_t>(i);
        pack_panel(g, 0, g.right);
        for (size_t row = 0; row < p_.m; row += block_rows_)
          tile(g, row, std::min(block_rows_, p_.m - row), 0, left_rows(g, row, 0),
               row > 0       ? Panel{}
               : i + 1 < end ? source_of(p_.right.data, i + 1)
                             : source_of(p_.next, begin));
      }
    });
  }
  /// What a panel of a right factor is packed from, where that is one piece of memory.
  Panel source_of(const void* right, int64_t panel) const {
    const Factor& f = p_.right;
    if (!right || p_.tiles || f.along != 1 || f.across != p_.k) return {};
    const size_t column = static_cast<size_t>(panel) * columns_;
    return {static_cast<const char*>(from({f.element, right, f.along, f.across}, column, 0).data),
            std::min(columns_, p_.n - column) * p_.k * size_of(f.element)};
  }

  /// What a thread reads after these steps of panel `i`, where the processor wants to be asked:
  /// more of it, or the next one's first; after the last the first of all, from which the next rows
  /// go.
  Panel panel_after(const Group& g, size_t i, size_t step) const {
    if (!asks_for_memory()) return {};
    const bool is_whole = step + kBlockSteps >= g.steps;
    const size_t panel = !is_whole ? i : i + 1 < g.panels ? i + 1 : 0;
    const size_t first = is_whole ? 0 : step + kBlockSteps;
    return {g.right + (panel * slice_ + first) * columns_ * kWord,
            std::min(kBlockSteps, g.steps - first) * columns_ * kWord};
  }

  /// source: what to read meanwhile.
  void tile(const Group& g, size_t row, size_t rows, size_t i, const LeftRows& left,
            const Panel& source) const {
    static thread_local ScratchMemory memory;
    const size_t column = (g.first_panel + i) * columns_, width = std::min(columns_, p_.n - column);
    char* const to = static_cast<char*>(p_.c) + (row * p_.c_row + column) * size_of(p_.element);
    const bool is_direct = p_.element == Element::kF32 && width == columns_ && !p_.bias;
    const char* const right = g.right + i * slice_ * columns_ * kWord;
    float* c = reinterpret_cast<float*>(to);
    size_t c_row = p_.c_row;
    if (!is_direct) {
      c_row = g.sums ? g.sums_row : columns_;
      c = g.sums ? g.sums + row * c_row + (sums_through_memory() ? i * columns_ : 0)
                 : reinterpret_cast<float*>(memory.of(rows * columns_ * kWord));
    }
    for (size_t step = 0; step < std::max<size_t>(1, g.steps); step += kBlockSteps) {
      const Panel next = source.data ? part_of(source, g, step) : panel_after(g, i, step);
      multiply_tile(arithmetic_,
                    {rows, std::min(kBlockSteps, g.steps - step), left.data + step * left.step,
                     left.row, left.step, right + step * columns_ * kWord, c, c_row,
                     g.step + step > 0 || (is_direct && p_.add), next.data, next.bytes, width});
    }
    if (!is_direct && g.step + slice_ >= steps_) finish(rows, width, column, {c, c_row}, to);
  }

  /// What of it is read during these steps.
  static Panel part_of(const Panel& source, const Group& g, size_t step) {
    const size_t first = source.bytes / g.steps * step,
                 end = step + kBlockSteps >= g.steps ? source.bytes
                                                     : first + source.bytes / g.steps * kBlockSteps;
    return {source.data + first, end - first};
  }

  struct Sums {
    float* data;
    size_t row;
  };
  void finish(size_t rows, size_t width, size_t column, const Sums& c, char* to) const {
    if (p_.bias || p_.add) {
      for (size_t r = 0; r < rows; ++r) {
        float* row = c.data + r * c.row;
        const float* more =
            p_.add ? reinterpret_cast<const float*>(to) + r * p_.c_row : wide_bias_.data() + column;
        for (size_t j = 0; j < width; ++j) row[j] += more[j];
      }
    }
    narrow(p_.element, rows, width, c.data, c.row, to, p_.c_row);
  }

  const MatrixProduct& p_;
  Arithmetic arithmetic_;
  size_t steps_, columns_;
  bool reads_left_in_place_ = false;
  size_t slice_, group_, block_rows_;
  size_t row_bytes_;  ///< of a slice of a row of the left factor, where that is packed
  std::vector<float> wide_bias_;
};

}  // namespace

void multiply(const MatrixProduct& product) {
  if (product.m == 0 || product.n == 0) return;
  Gemm(product).run();
}

}  // namespace danlu::ops::cpu
