// bench/tokenize_bench.cpp: tokenising speed on one core.
//
//   tokenize_bench TOKENIZER FILE [--whole] [--repeats 5]
//
// Prints one JSON line: bytes, tokens, MB per second of CPU time (all threads of the process
// counted) over the file's lines, or over the file as one text: of the first pass, when nothing of
// the text has been seen, and the median of all; a hash of the ids; and the time to load the
// tokenizer. bench/tokenize.mjs runs it in turns with Hugging Face's tokenizers.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "flags.h"
#include "text/tokenizer.h"

namespace {

using namespace danlu;

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

/// As hash.mjs of tools/tokenizer_goldens.
class IdHash {
 public:
  void add(int32_t value) {
    low_ = (low_ ^ static_cast<uint32_t>(value)) * 0x01000193u;
    low_ ^= low_ >> 15;
    high_ = (high_ ^ static_cast<uint32_t>(value)) * 0x5bd1e995u;
    high_ ^= high_ >> 13;
  }
  std::string hex() const { return fmt::format("{:08x}{:08x}", high_, low_); }

 private:
  uint32_t low_ = 0x811c9dc5u, high_ = 0x27220a95u;
};

int measure(int argc, char** argv) {
  bool whole = false;
  int64_t repeats = 5;
  const auto words = danlu::bench::parse_flags(
      argc, argv, {{"--whole", &whole}, {"--repeats", danlu::bench::WholeNumber{&repeats}}}, 2);
  if (words.size() < 2) {
    throw UsageError("usage: tokenize_bench TOKENIZER FILE [--whole] [--repeats N]");
  }
  const double before_load = cpu_seconds();
  const auto tokenizer = text::Tokenizer::load(words[0]);
  const double load_s = cpu_seconds() - before_load;
  const MappedFile file(words[1]);
  std::vector<std::string_view> texts = {file.text()};
  if (!whole) texts = lines_of(file.text());
  std::vector<double> seconds;
  std::vector<text::TokenId> ids;
  size_t tokens = 0;
  for (int64_t i = 0; i < repeats; ++i) {
    tokens = 0;
    const double start = cpu_seconds();
    for (const std::string_view text : texts) {
      ids.clear();
      tokenizer->encode_append(text, true, ids);
      tokens += ids.size();
    }
    seconds.push_back(cpu_seconds() - start);
  }
  IdHash hash;
  for (const std::string_view text : texts) {
    ids.clear();
    tokenizer->encode_append(text, true, ids);
    for (const text::TokenId id : ids) hash.add(id);
    hash.add(-1);
  }
  const double megabytes = static_cast<double>(file.size()) / 1e6;
  const double first_s = seconds.front();
  std::sort(seconds.begin(), seconds.end());
  fmt::print(
      "{{\"bench\": \"tokenize\", \"bytes\": {}, \"tokens\": {}, \"ids\": \"{}\", "
      "\"load_s\": {:.3f}, \"mb_per_s_first\": {:.2f}, \"mb_per_s\": {:.2f}}}\n",
      file.size(), tokens, hash.hex(), load_s, megabytes / first_s,
      megabytes / seconds[seconds.size() / 2]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
