// bench/tokenize_bench.cpp: tokenising speed on one core.
//
//   tokenize_bench TOKENIZER FILE [--whole] [--repeats 5]
//
// Prints one JSON line: bytes, tokens, median MB per second of CPU time (all threads of the process
// counted) over the file's lines, or over the file as one text; and the time to load the tokenizer.
// bench/tokenize.mjs runs it in turns with Hugging Face's tokenizers.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
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

int bench(const std::vector<std::string>& words) {
  if (words.size() < 2) {
    throw UsageError("usage: tokenize_bench TOKENIZER FILE [--whole] [--repeats N]");
  }
  bool whole = false;
  size_t repeats = 5;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == "--whole") whole = true;
    if (words[i] == "--repeats" && i + 1 < words.size()) repeats = std::stoul(words[i + 1]);
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
  for (size_t i = 0; i < std::max<size_t>(1, repeats); ++i) {
    tokens = 0;
    const double start = cpu_seconds();
    for (const std::string_view text : texts) {
      ids.clear();
      tokenizer->encode_append(text, true, ids);
      tokens += ids.size();
    }
    seconds.push_back(cpu_seconds() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  fmt::print(
      "{{\"bench\": \"tokenize\", \"bytes\": {}, \"tokens\": {}, \"load_s\": {:.3f}, "
      "\"mb_per_s\": {:.1f}, \"mb_per_s_best\": {:.1f}}}\n",
      file.size(), tokens, load_s,
      static_cast<double>(file.size()) / 1e6 / seconds[seconds.size() / 2],
      static_cast<double>(file.size()) / 1e6 / seconds.front());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return bench({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
