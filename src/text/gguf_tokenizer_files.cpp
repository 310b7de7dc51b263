#include "text/gguf_tokenizer_files.h"

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer/json_scanner.h"

namespace danlu::text {
namespace {

std::pair<std::string, std::string> pair_of(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return {std::string(line), ""};
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

void read_merge_pairs(JsonScanner& json, std::vector<std::pair<std::string, std::string>>& merges) {
  json.array([&] {
    std::string storage;
    if (json.peek() != '[') {
      merges.push_back(pair_of(json.string(storage)));
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

std::vector<std::pair<std::string, std::string>> read_merges_file(const fs::path& file) {
  const MappedFile mapped(file);
  std::vector<std::pair<std::string, std::string>> merges;
  std::string_view left = mapped.text();
  for (bool first = true; !left.empty(); first = false) {
    const size_t end = left.find('\n');
    std::string_view line = left.substr(0, end);
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (first && line.starts_with("#version"))) continue;
    merges.push_back(pair_of(line));
  }
  return merges;
}

}  // namespace danlu::text
