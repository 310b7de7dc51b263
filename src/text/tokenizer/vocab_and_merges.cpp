#include "text/tokenizer/vocab_and_merges.h"

#include "base/error.h"
#include "text/tokenizer/scanners.h"

namespace danlu::text {

std::optional<std::pair<std::string_view, std::string_view>> split_merge(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
    return std::nullopt;
  return std::pair(line.substr(0, space), line.substr(space + 1));
}

std::vector<std::pair<std::string_view, std::string_view>> parse_merges(std::string_view text,
                                                                        const std::string& origin) {
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const auto pair = split_merge(line);
    if (!pair) {
      throw ModelError(tr("{}:{}: a merge must be two tokens with one space between, got \"{}\"",
                          origin, number, line));
    }
    merges.push_back(*pair);
  }
  return merges;
}

Json parts_of_vocab_and_merges(const Companions& companions) {
  const bool prefix_space = companions.flag("add_prefix_space").value_or(false);
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}};
  Json parts = {{"pre_tokenizer", byte_level}, {"decoder", {{"type", "ByteLevel"}}}};
  if (companions.tokenizer_class().starts_with("Qwen2Tokenizer")) {
    Json mapping = byte_level;
    mapping["use_regex"] = false;
    const Json split = {{"type", "Split"},
                        {"pattern", {{"Regex", std::string(kQwen2Regex)}}},
                        {"behavior", "Isolated"}};
    parts["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, mapping}}};
    parts["normalizer"] = {{"type", "NFC"}};
  }
  return parts;
}

}  // namespace danlu::text
