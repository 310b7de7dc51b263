// Configuration files: any bytes give entries or a danlu::Error, never a crash.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/option_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* origin : {"/nowhere/run.yaml", "/nowhere/run.json"}) {
    try {
      danlu::read_option_text(text, origin, [](const std::string& key) { return key == "group"; });
    } catch (const danlu::Error&) {
    }
  }
  return 0;
}
