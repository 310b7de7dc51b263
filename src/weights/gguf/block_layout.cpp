#include "weights/gguf/block_layout.h"

#include <optional>
#include <utility>
#include <vector>

namespace danlu::weights::gguf {
namespace {

class BlockLayoutMaker {
 public:
  BlockLayoutMaker(const Layout& layout, const Header& header) : layout_(layout) {
    for (const TensorEntry& entry : header.tensors) {
      const auto type = block_type(entry.type);
      types_[entry.name] = type && is_multiplied(*type) ? type : std::nullopt;
    }
    kept_.assign(layout.globals.size(), std::nullopt);
    known_.assign(layout.globals.size(), false);
  }

  BlockLayout make() {
    for (const StoredTensor& stored : layout_.tensors) look_at(stored);
    result_.layout.files = layout_.files;
    place_.resize(layout_.globals.size());
    for (const StoredTensor& stored : layout_.tensors) add(stored);
    return std::move(result_);
  }

 private:
  std::optional<BlockType> type_of(const StoredTensor& stored) const {
    const auto type = types_.find(stored.info.name);
    return stored.info.shape.size() != 2 || type == types_.end() ? std::nullopt : type->second;
  }

  void look_at(const StoredTensor& stored) {
    for (const Section& section : stored.sections) {
      for (const Piece& piece : section.pieces) {
        if (piece.replica) continue;
        auto& kept = kept_[piece.global];
        const bool is_whole = !piece.transposed && piece.of.col == 0 &&
                              piece.of.cols == stored.info.shape.back() &&
                              layout_.globals[piece.global].shape.size() == 2;
        const auto type = is_whole ? type_of(stored) : std::nullopt;
        if (known_[piece.global] && kept != type) {
          kept = std::nullopt;
        } else if (!known_[piece.global]) {
          kept = type;
        }
        known_[piece.global] = true;
      }
    }
  }

  void add(const StoredTensor& stored) {
    const auto type = type_of(stored);
    if (!type) return;
    const int64_t columns = stored.info.shape.back();
    const auto bytes_of = [&](int64_t numbers) {
      return numbers / columns *
             static_cast<int64_t>(block_bytes(*type, static_cast<size_t>(columns)));
    };
    StoredTensor bytes = stored;
    bytes.info.dtype = DType::kU8;
    bytes.info.shape.back() = bytes_of(columns);
    bytes.blocks = std::nullopt;
    for (Section& section : bytes.sections) {
      section.first = bytes_of(section.first);
      section.cols = bytes_of(section.cols);
      for (Piece& piece : section.pieces) {
        if (!kept_[piece.global] || piece.replica) return;
        piece.col = bytes_of(piece.col);
        piece.of.cols = bytes_of(piece.of.cols);
        piece.global = global(piece.global, *type, piece.of.cols);
      }
    }
    result_.layout.tensors.push_back(std::move(bytes));
  }

  size_t global(size_t index, BlockType type, int64_t row_bytes) {
    if (place_[index]) return *place_[index];
    place_[index] = result_.layout.globals.size();
    TensorInfo info = layout_.globals[index];
    info.dtype = DType::kU8;
    info.shape.back() = row_bytes;
    result_.types[info.name] = type;
    result_.layout.globals.push_back(std::move(info));
    return *place_[index];
  }

  const Layout& layout_;
  std::map<std::string, std::optional<BlockType>> types_;  ///< of stored tensors
  std::vector<std::optional<BlockType>> kept_;             ///< of globals
  std::vector<bool> known_;
  std::vector<std::optional<size_t>> place_;  ///< in the new layout
  BlockLayout result_;
};

}  // namespace

BlockLayout layout_in_blocks(const Layout& layout, const Header& header) {
  return BlockLayoutMaker(layout, header).make();
}

}  // namespace danlu::weights::gguf
