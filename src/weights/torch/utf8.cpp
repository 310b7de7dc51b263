#include "weights/torch/utf8.h"

#include <cstddef>
#include <cstdint>

namespace danlu::weights::torch_file {

bool is_python_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const int length = lead < 0x80             ? 1
                       : (lead & 0xe0) == 0xc0 ? 2
                       : (lead & 0xf0) == 0xe0 ? 3
                       : (lead & 0xf8) == 0xf0 ? 4
                                               : 0;
    if (length == 0 || text.size() - i < static_cast<size_t>(length)) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7f >> length);
    for (int k = 1; k < length; ++k) {
      const auto next = static_cast<uint8_t>(text[i + static_cast<size_t>(k)]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[length] || code > 0x10ffff) return false;
    i += static_cast<size_t>(length);
  }
  return true;
}

}  // namespace danlu::weights::torch_file
