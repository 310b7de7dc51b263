#include "weights/convert/tensor_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/number_blocks.h"
#include "weights/cast.h"

namespace danlu::weights {
namespace {

/// One write; also what a buffer gathers before it is passed on.
constexpr int64_t kBandBytes = 4 << 20;
/// A transposed piece touches every row of its source for each band, so its bands are wide.
constexpr int64_t kTransposedBandBytes = 16 << 20;
/// Shorter runs are gathered: a system call each would cost more than copying them.
constexpr int64_t kLeastDirectBytes = 128 << 10;

class SectionStream {
 public:
  SectionStream(const TensorSource& globals, const Layout& layout, const StoredTensor& stored,
                const ByteSink& sink)
      : globals_(globals),
        layout_(layout),
        stored_(stored),
        sink_(sink),
        item_(static_cast<int64_t>(dtype_size_bytes(stored.info.dtype))) {}

  void run() {
    int64_t position = 0;
    for (const Section& section : stored_.sections) {
      zeros(section.first - position);
      add(section);
      position = section.first + section.rows * section.cols;
    }
    zeros(stored_.info.num_elements() - position);
    flush();
  }

 private:
  /// Rows in which the same pieces stand beside each other.
  void add(const Section& section) {
    std::vector<const Piece*> by_row;
    std::vector<int64_t> cuts = {0, section.rows};
    for (const Piece& piece : section.pieces) {
      by_row.push_back(&piece);
      cuts.push_back(piece.row);
      cuts.push_back(piece.row + piece.stored_rows());
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::sort(by_row.begin(), by_row.end(),
              [](const Piece* a, const Piece* b) { return a->row < b->row; });
    std::vector<const Piece*> active;
    size_t next = 0;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      while (next < by_row.size() && by_row[next]->row <= cuts[i]) active.push_back(by_row[next++]);
      std::erase_if(active, [&](const Piece* p) { return p->row + p->stored_rows() <= cuts[i]; });
      add_rows(section, active, cuts[i], cuts[i + 1]);
    }
  }

  void add_rows(const Section& section, const std::vector<const Piece*>& pieces, int64_t begin,
                int64_t end) {
    const int64_t row_bytes = std::max<int64_t>(1, section.cols * item_);
    const bool turned = std::any_of(pieces.begin(), pieces.end(),
                                    [](const Piece* piece) { return piece->transposed; });
    const int64_t step =
        std::max<int64_t>(1, (turned ? kTransposedBandBytes : kBandBytes) / row_bytes);
    for (int64_t row = begin; row < end; row += step) {
      const int64_t rows = std::min(step, end - row);
      if (pieces.size() == 1 && rows * row_bytes >= kLeastDirectBytes &&
          pass_on(section, *pieces[0], row, rows))
        continue;
      const size_t at = buffer_.size();
      buffer_.resize(at + static_cast<size_t>(rows * section.cols * item_));
      for (const Piece* piece : pieces) fill(section, *piece, row, rows, buffer_.data() + at);
      if (static_cast<int64_t>(buffer_.size()) >= kBandBytes) flush();
    }
  }

  const TensorInfo& source_of(const Piece& piece) const {
    return *globals_.find(layout_.globals[piece.global].name);
  }

  /// Hands on mapped bytes without a copy. False if they do not lie together as they are wanted.
  bool pass_on(const Section& section, const Piece& piece, int64_t row, int64_t rows) {
    const TensorInfo& info = source_of(piece);
    if (piece.transposed || piece.of.cols != section.cols || info.dtype != stored_.info.dtype ||
        stored_.blocks || matrix_of(info.shape).cols != section.cols)
      return false;
    const std::span<const std::byte> bytes = globals_.mapped(info.name);
    if (bytes.empty()) return false;
    flush();
    const int64_t first = (piece.of.row + row - piece.row) * section.cols;
    sink_(bytes.subspan(static_cast<size_t>(first * item_),
                        static_cast<size_t>(rows * section.cols * item_)));
    return true;
  }

  /// Rows [row, row + rows) of the section, as far as `piece` covers them; `out`: the first of
  /// them.
  void fill(const Section& section, const Piece& piece, int64_t row, int64_t rows, std::byte* out) {
    const int64_t down = row - piece.row, width = piece.stored_cols();
    const TensorInfo& info = source_of(piece);
    const Rect of = piece.transposed ? Rect{piece.of.row, piece.of.rows, piece.of.col + down, rows}
                                     : Rect{piece.of.row + down, rows, piece.of.col, piece.of.cols};
    std::byte* to = out + piece.col * item_;
    if (!piece.transposed && info.dtype == stored_.info.dtype)
      return globals_.read_rect(info.name, of, to, section.cols);
    const auto item = static_cast<int64_t>(dtype_size_bytes(info.dtype));
    scratch_.resize(static_cast<size_t>(of.rows * of.cols * item));
    globals_.read_rect(info.name, of, scratch_.data(), of.cols);
    if (piece.transposed) turn(of, item);
    for (int64_t r = 0; r < rows; ++r) {
      const std::byte* from = scratch_.data() + r * width * item;
      std::byte* into = to + r * section.cols * item_;
      cast_weights(globals_, info, from, into, stored_.info.dtype, static_cast<size_t>(width));
    }
  }

  /// Makes scratch_ the transpose of what it holds.
  void turn(const Rect& of, int64_t item) {
    turned_.resize(scratch_.size());
    constexpr int64_t kTile = 32;  // both sides of a tile stay in the first cache
    for (int64_t row = 0; row < of.rows; row += kTile) {
      for (int64_t col = 0; col < of.cols; col += kTile) {
        const int64_t row_end = std::min(row + kTile, of.rows);
        const int64_t col_end = std::min(col + kTile, of.cols);
        for (int64_t c = col; c < col_end; ++c) {
          for (int64_t r = row; r < row_end; ++r) {
            std::memcpy(turned_.data() + (c * of.rows + r) * item,
                        scratch_.data() + (r * of.cols + c) * item, static_cast<size_t>(item));
          }
        }
      }
    }
    scratch_.swap(turned_);
  }

  void zeros(int64_t elements) {
    for (int64_t left = elements * item_; left > 0;) {
      const int64_t bytes = std::min(left, kBandBytes);
      buffer_.resize(buffer_.size() + static_cast<size_t>(bytes));
      if (static_cast<int64_t>(buffer_.size()) >= kBandBytes) flush();
      left -= bytes;
    }
  }

  void flush() {
    if (buffer_.empty()) return;
    if (stored_.blocks) {
      const BlockType type = *stored_.blocks;
      // Rows are whole multiples of a block, so a buffer of whole rows is too.
      const auto* numbers = reinterpret_cast<const float*>(buffer_.data());
      const size_t count = buffer_.size() / sizeof(float);
      const float largest = largest_quantizable(type);
      // Written this way round so that NaN is found.
      const float* bad = std::find_if(numbers, numbers + count,
                                      [=](float x) { return !(std::fabs(x) <= largest); });
      if (bad != numbers + count) {
        throw ModelError(tr("{} holds {:g}, which {} has no number for (its largest is {:.0f})",
                            stored_.info.name, *bad, block_traits(type).name, largest),
                         tr("--outtype bf16 or f32 keeps it as it is"));
      }
      scratch_.resize(block_bytes(type, count));
      quantize(type, numbers, count, scratch_.data());
      sink_(scratch_);
    } else {
      sink_(buffer_);
    }
    buffer_.clear();
  }

  const TensorSource& globals_;
  const Layout& layout_;
  const StoredTensor& stored_;
  const ByteSink& sink_;
  int64_t item_;
  std::vector<std::byte> buffer_, scratch_, turned_;
};

}  // namespace

void stream_tensor(const TensorSource& globals, const Layout& layout, const StoredTensor& stored,
                   const ByteSink& sink) {
  SectionStream(globals, layout, stored, sink).run();
}

}  // namespace danlu::weights
