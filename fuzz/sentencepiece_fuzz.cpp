// Reads bytes as tokenizer.model; what loads is made to encode and decode.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "text/tokenizer/pipeline_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The text to encode is what stands after the last "\xFF\xFF", which no good model contains.
  std::string_view file(reinterpret_cast<const char*>(data), size);
  std::string_view text = "a b\xE4\xBD\xA0  <s>0\xFF";
  if (const size_t mark = file.rfind("\xFF\xFF"); mark != std::string_view::npos) {
    text = file.substr(mark + 2);
    file = file.substr(0, mark);
  }
  try {
    const auto tokenizer = danlu::text::parse_sentencepiece(file, "fuzz");
    const auto ids = tokenizer->encode(text);
    tokenizer->decode(ids);
    danlu::text::DecodeStream stream(tokenizer, /*skip_special=*/false);
    for (const auto id : ids) stream.push(id);
    stream.finish();
  } catch (const danlu::Error&) {
    // A clear error is a right answer to a broken file.
  }
  return 0;
}
