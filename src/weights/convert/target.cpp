#include "weights/convert/target.h"

#include <algorithm>

namespace danlu::weights {

uint64_t Target::size_bytes() const {
  uint64_t bytes = 0;
  for (const PlannedFile& plan : plans) bytes += plan.size_bytes;
  for (const auto& [path, text] : texts) bytes += text.size();
  return bytes;
}

void append_layout(Layout& a, const Layout& b) {
  const size_t first_global = a.globals.size();
  a.globals.insert(a.globals.end(), b.globals.begin(), b.globals.end());
  std::vector<size_t> file_of;
  for (const std::string& file : b.files) {
    const auto at = std::find(a.files.begin(), a.files.end(), file);
    file_of.push_back(static_cast<size_t>(at - a.files.begin()));
    if (at == a.files.end()) a.files.push_back(file);
  }
  for (StoredTensor stored : b.tensors) {
    stored.file = file_of[stored.file];
    for (Section& section : stored.sections) {
      for (Piece& piece : section.pieces) piece.global += first_global;
    }
    a.tensors.push_back(std::move(stored));
  }
}

}  // namespace danlu::weights
