// weights/gguf/block_layout.h: the matrices of a GGUF file that can be multiplied in the blocks
// they lie in. Internal to weights.
#pragma once
#include <map>
#include <string>

#include "base/number_blocks.h"
#include "weights/gguf/gguf_format.h"
#include "weights/layout.h"

namespace danlu::weights::gguf {

/// The layout of the matrices that are whole in blocks of one type, counted in bytes.
struct BlockLayout {
  Layout layout;
  std::map<std::string, BlockType> types;
};

/// layout: of the whole file, whose header it is.
BlockLayout layout_in_blocks(const Layout& layout, const Header& header);

}  // namespace danlu::weights::gguf
