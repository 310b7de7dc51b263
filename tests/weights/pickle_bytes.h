// tests/weights/pickle_bytes.h: pieces of pickle programs, written by hand.
#pragma once
#include <string>

#include "weights/bytes.h"

namespace danlu::weights::torch_file {

/// Protocol 2, one value.
inline std::string program(const std::string& body) { return "\x80\x02" + body + "."; }
inline std::string text(const std::string& s) { return "X" + test::little_endian(s.size(), 4) + s; }
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
/// With one item; `value` is itself a piece.
inline std::string dict(const std::string& key, const std::string& value) {
  return "}(" + text(key) + value + "u";
}

}  // namespace danlu::weights::torch_file
