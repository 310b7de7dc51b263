#include "text/gguf_tokenizer_files.h"

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer/json_scanner.h"
#include "text/tokenizer/vocab_and_merges.h"

namespace danlu::text {
namespace {

void read_merge_pairs(JsonScanner& json, std::vector<std::pair<std::string, std::string>>& merges) {
  json.array([&] {
    std::string storage;
    if (json.peek() != '[') {
      const std::string_view line = json.string(storage);
      const auto pair = split_merge(line);
      if (!pair) {
        json.fail(tr("a merge must be two tokens with one space between, got \"{}\"", line));
      }
      merges.emplace_back(*pair);
      return;
    }
    std::vector<std::string> parts;
    json.array([&] { parts.emplace_back(json.string(storage)); });
    if (parts.size() != 2) json.fail("a merge must be a pair of tokens");
    merges.emplace_back(std::move(parts[0]), std::move(parts[1]));
  });
}

}  // namespace

TokenizerJsonParts read_tokenizer_json_parts(const fs::path& file) {
  const MappedFile mapped(file);
  JsonScanner json(mapped.text(), file.string());
  TokenizerJsonParts parts;
  json.object([&](std::string_view key) {
    const std::string name(key);
    if (name != "model") {
      parts.rest[name] = json.value();
      return;
    }
    json.object([&](std::string_view model_key) {
      const std::string model_name(model_key);
      if (model_name == "vocab") {
        json.skip();
      } else if (model_name == "merges") {
        read_merge_pairs(json, parts.merges);
      } else {
        parts.model[model_name] = json.value();
      }
    });
  });
  json.finish();
  return parts;
}

}  // namespace danlu::text
