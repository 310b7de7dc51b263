// tests/text/tokenizer_golden.h: the texts and hashes that tools/tokenizer_goldens writes goldens
// of.
#pragma once
#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "support/shared_data.h"
#include "text/tokenizer.h"
#include "text/tokenizer/utf8.h"

namespace danlu::test {

inline std::filesystem::path golden_dir() {
  return std::filesystem::path(DANLU_SOURCE_DIR) / "tests" / "text" / "golden_tokenizers";
}

/// The running hash of hash.mjs.
class StreamHash {
 public:
  void add(int32_t value) {
    low_ = (low_ ^ static_cast<uint32_t>(value)) * 0x01000193u;
    low_ ^= low_ >> 15;
    high_ = (high_ ^ static_cast<uint32_t>(value)) * 0x5bd1e995u;
    high_ ^= high_ >> 13;
  }
  void add_ids(const std::vector<text::TokenId>& ids) {
    for (const text::TokenId id : ids) add(id);
    add(-1);
    count_ += ids.size();
  }
  void add_text(std::string_view text) {
    for (const char c : text) add(static_cast<unsigned char>(c));
    add(-1);
    count_ += text.size();
  }
  size_t count() const { return count_; }
  std::string hex() const {
    char buffer[17];
    std::snprintf(buffer, sizeof buffer, "%08x%08x", high_, low_);
    return buffer;
  }

 private:
  uint32_t low_ = 0x811c9dc5u, high_ = 0x27220a95u;
  size_t count_ = 0;
};

/// nasty.txt: (name, bytes as they are, ill-formed ones included).
inline std::vector<std::pair<std::string, std::string>> nasty_texts() {
  std::vector<std::pair<std::string, std::string>> texts;
  std::ifstream file(golden_dir() / "nasty.txt");
  for (std::string line; std::getline(file, line);) {
    const size_t tab = line.find('\t');
    std::string bytes;
    for (size_t i = tab + 1; i < line.size(); ++i) {
      if (line[i] == '%') {
        bytes += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        bytes += line[i];
      }
    }
    texts.emplace_back(line.substr(0, tab), bytes);
  }
  return texts;
}

/// Texts and the ids that llama.cpp's repository has for them.
inline std::vector<std::pair<std::string, std::vector<text::TokenId>>> llamacpp_vectors(
    const std::filesystem::path& directory, const std::string& name) {
  const std::string stem = (directory / ("ggml-vocab-" + name + ".gguf")).string();
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::string inputs = read_file(stem + ".inp");
  std::ifstream ids_of(stem + ".out");
  std::vector<std::pair<std::string, std::vector<text::TokenId>>> vectors;
  for (size_t at; (at = inputs.find(separator)) != std::string::npos;) {
    std::string line;
    if (!std::getline(ids_of, line)) throw std::runtime_error(stem + ": too few ids");
    std::istringstream numbers(line);
    auto& [text, ids] = vectors.emplace_back();
    text = inputs.substr(0, at);
    for (text::TokenId id; numbers >> id;) ids.push_back(id);
    inputs.erase(0, at + separator.size());
  }
  return vectors;
}

inline std::string repaired(const std::string& bytes) {
  std::string storage;
  return std::string(text::sanitize_utf8(bytes, storage));
}

/// Ideographs, syllables and private use: every sixteenth stands for the rest (as texts.mjs).
inline bool is_sampled_out(char32_t value) {
  static constexpr std::pair<char32_t, char32_t> kUniform[] = {
      {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xAC00, 0xD7A3},  {0xE000, 0xF8FF},
      {0x12000, 0x143FF}, {0x17000, 0x18CFF}, {0x20000, 0x31FFF}};
  if (value % 16 == 0) return false;
  for (const auto& [first, last] : kUniform) {
    if (value >= first && value <= last) return true;
  }
  return false;
}

/// The texts of codePointRanges in texts.mjs.
inline std::vector<std::string> code_point_texts() {
  std::vector<std::string> texts;
  const std::pair<char32_t, char32_t> ranges[] = {
      {0, 0x32000}, {0xE0000, 0xE0200}, {0x10FF00, 0x110000}};
  for (const auto& [begin, end] : ranges) {
    for (char32_t value = begin; value < end; ++value) {
      if ((value >= 0xD800 && value < 0xE000) || is_sampled_out(value)) continue;
      std::string c;
      text::append_utf8(value, c);
      texts.push_back("a" + c + "b " + c + "1" + c + c + " !" + c);
    }
  }
  return texts;
}

/// longTexts of texts.mjs.
inline std::vector<std::string> long_texts() {
  static constexpr const char* kAlphabets[] = {"a",
                                               "ab",
                                               "aab",
                                               "etaoin",
                                               "abcdefghijklmnopqrstuvwxyz",
                                               "ABCxyz0189+/=",
                                               "01",
                                               "-=_",
                                               "的一是了我",
                                               "a的",
                                               "éßж",
                                               " a",
                                               " ▁",
                                               "in gthe",
                                               "\U0001F600\U00020000",
                                               "<>s/",
                                               "\n ",
                                               "thé人\U0001F600 "};
  std::vector<std::string> texts;
  uint32_t state = 20261125;
  for (const std::string alphabet : kAlphabets) {
    std::vector<std::string> chars;
    for (size_t i = 0; i < alphabet.size(); i += chars.back().size())
      chars.push_back(alphabet.substr(i, text::decode_utf8(alphabet, i).length));
    for (const size_t length : {33, 64, 65, 97, 130, 500, 3000, 20000}) {
      std::string& text = texts.emplace_back();
      for (size_t i = 0; i < length; ++i) {
        state = state * 1103515245u + 12345u;
        text += chars[(state >> 16) % chars.size()];
      }
    }
    for (const size_t count : {50, 333, 1000}) {
      std::string text;
      for (size_t i = 0; i < count; ++i) text += alphabet;
      texts.push_back(text);
      texts.push_back("x" + text);
    }
  }
  return texts;
}

inline std::vector<std::string> read_lines(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  const std::string text = repaired(read_file(path));
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

inline void collect_strings(const Json& value, std::vector<std::string>& out) {
  if (value.is_string()) {
    out.push_back(value.get<std::string>());
  } else if (value.is_structured()) {
    for (const Json& item : value) collect_strings(item, out);
  }
}

/// .json: its strings; .jsonl: the strings of every line; what does not parse: its lines.
inline std::vector<std::string> read_strings(const std::filesystem::path& path) {
  std::vector<std::string> strings;
  try {
    if (path.extension() == ".jsonl") {
      for (const std::string& line : read_lines(path)) {
        if (!line.empty()) collect_strings(Json::parse(line), strings);
      }
    } else {
      collect_strings(Json::parse(repaired(read_file(path))), strings);
    }
  } catch (const nlohmann::json::exception&) {
    return read_lines(path);
  }
  return strings;
}

/// The texts a golden's key names: nasty, codepoints, long, lines:F, whole:F, strings:F.
inline std::vector<std::string> texts_of(const std::string& key) {
  std::vector<std::string> texts;
  if (key == "nasty") {
    for (const auto& [name, bytes] : nasty_texts()) texts.push_back(bytes);
    return texts;
  }
  if (key == "codepoints") return code_point_texts();
  if (key == "long") return long_texts();
  const std::string kind = key.substr(0, key.find(':'));
  const std::string name = key.substr(key.find(':') + 1);
  const std::string group = name.substr(0, name.find('/'));
  const std::filesystem::path path = unpacked(group) / name.substr(group.size() + 1);
  if (kind == "lines") return read_lines(path);
  if (kind == "strings") return read_strings(path);
  return {read_file(path)};
}

}  // namespace danlu::test
