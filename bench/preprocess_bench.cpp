// bench/preprocess_bench.cpp: an Alpaca file to .bin/.idx, end to end, as `danlu preprocess` does
// it.
//
//   preprocess_bench ALPACA.json TOKENIZER_DIR [--template qwen] [--workers 0] [--repeats 5]
//
// Prints one JSON line: rows, tokens, median seconds (tokenizer loading, hashing, reading, writing
// and syncing included), rows/s, MB/s of the input file. The peer is bench/preprocess_peer.mjs: one
// pass of Hugging Face's tokenizers over the same rendered texts, nothing else.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/statistics.h"
#include "data/preprocess.h"
#include "flags.h"

namespace {

using namespace danlu;

int measure(int argc, char** argv) {
  using danlu::bench::WholeNumber;
  std::string chat_template = "qwen";
  int64_t workers = 0, repeats = 5;
  const auto words = danlu::bench::parse_flags(argc, argv,
                                               {{"--template", &chat_template},
                                                {"--workers", WholeNumber{&workers, 0}},
                                                {"--repeats", WholeNumber{&repeats}}},
                                               2);
  if (words.size() < 2) {
    throw UsageError(
        "usage: preprocess_bench ALPACA.json TOKENIZER_DIR [--template NAME] "
        "[--workers N] [--repeats N]");
  }
  const auto directory = std::filesystem::temp_directory_path() / "danlu-preprocess-bench";
  data::PreprocessSpec spec;
  spec.inputs = {words[0]};
  spec.output_prefix = directory / "alpaca";
  spec.num_workers = static_cast<size_t>(workers);
  spec.overwrite = true;
  spec.show_progress = false;
  const data::PreprocessText text{
      [&] { return text::Tokenizer::load(words[1]); },
      [&](auto tokenizer) { return text::ChatEncoder::create(tokenizer, chat_template); }};
  std::vector<double> seconds;
  data::PreprocessResult result;
  for (int64_t i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    result = data::preprocess(spec, text);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::filesystem::remove_all(directory);
  std::sort(seconds.begin(), seconds.end());
  const double median = danlu::bench::median(seconds);
  fmt::print(
      "{{\"bench\": \"preprocess\", \"rows\": {}, \"tokens\": {}, \"seconds\": {:.3f}, "
      "\"seconds_min\": {:.3f}, \"seconds_max\": {:.3f}, \"rows_per_s\": {:.0f}, \"mb_per_s\": "
      "{:.2f}}}\n",
      result.report.rows_read, result.report.lengths.sum, median, seconds.front(), seconds.back(),
      static_cast<double>(result.report.rows_read) / median,
      static_cast<double>(result.input_bytes) / 1e6 / median);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(argc, argv);
  } catch (const danlu::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
