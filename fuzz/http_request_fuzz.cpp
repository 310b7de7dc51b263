// fuzz/http_request_fuzz.cpp: any bytes of a connection are requests or a refusal, and the same
// ones however they are cut.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "http/request_reader.h"

namespace {

using danlu::http::Request;
using danlu::http::RequestReader;

/// All that was read, as text: 1 to 16 bytes at a time where `cut` is not 0.
std::string read_all(std::string_view bytes, unsigned cut) {
  RequestReader reader(4096, 10000);
  std::string read;
  while (!bytes.empty()) {
    const size_t size = cut == 0 ? bytes.size() : std::min<size_t>(bytes.size(), cut % 16 + 1);
    cut = cut * 1103515245 + 12345 * (cut != 0);
    reader.append(bytes.substr(0, size));
    bytes.remove_prefix(size);
    while (true) {
      if (reader.state() == RequestReader::State::kHeadRead) {
        const Request head = reader.take_head();
        if (head.path.empty() || head.path.front() != '/') std::abort();
        if (head.path.find("/../") != std::string::npos) std::abort();
        read += head.method + " " + head.path + "\n";
        for (const auto& [name, value] : head.headers) read += name + ": " + value + "\n";
        reader.go_on();
      } else if (reader.state() == RequestReader::State::kRead) {
        const std::string body = reader.take_body();
        if (body.size() > 10000) std::abort();
        read += "body " + body + "\n";
        reader.next();
      } else {
        break;
      }
    }
    if (reader.state() == RequestReader::State::kFailed) {
      if (reader.status() < 400 || reader.problem().empty()) std::abort();
      return read + "refused";
    }
  }
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 20000) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = read_all(bytes, 0);
  const std::string cut = read_all(bytes, static_cast<unsigned>(size) | 1);
  // A limit may be met earlier or later; what was read before is the same.
  const bool is_refused = whole.ends_with("refused") || cut.ends_with("refused");
  if (!is_refused && whole != cut) std::abort();
  return 0;
}
