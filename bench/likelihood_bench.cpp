// bench/likelihood_bench.cpp: questions with four choices behind examples that all share, as a
// benchmark asks them: one forward for each question alone, batches, and batches that compute what
// is shared once.
//
//   likelihood_bench [MODEL_DIR] [--examples 700] [--question 100] [--questions 12] [--rounds 3]
//                    [--dtype bf16|fp32]
//
// The ways take turns. Without a directory: random weights of Qwen2.5-0.5B's shape. Prints one JSON
// line: median questions a second of each way, their ratios to the first, and the largest relative
// difference of a likelihood from it.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cpu_class.h"
#include "base/rng.h"
#include "bench/statistics.h"
#include "flags.h"
#include "half_billion.h"
#include "infer/likelihood.h"
#include "models/weight_files.h"

namespace {

using danlu::bench::half_billion;
using danlu::bench::median;
using danlu::infer::Likelihood;
using danlu::infer::LikelihoodSettings;
using danlu::infer::ScoredText;

/// Four choices of one token each behind a question.
std::vector<ScoredText> questions_of(int64_t examples, int64_t question, int64_t count,
                                     int64_t vocab) {
  std::vector<ScoredText> texts;
  const auto id = [&](uint64_t stream, int64_t place) {
    return static_cast<danlu::text::TokenId>(danlu::mix64(stream, static_cast<uint64_t>(place)) %
                                             static_cast<uint64_t>(vocab));
  };
  for (int64_t q = 0; q < count; ++q) {
    ScoredText text;
    for (int64_t i = 0; i < examples; ++i) text.ids.push_back(id(0, i));
    // No two questions are of one length.
    for (int64_t i = 0; i < question / 2 + (q * 37) % question; ++i)
      text.ids.push_back(id(static_cast<uint64_t>(q) + 1, i));
    text.num_context = static_cast<int64_t>(text.ids.size());
    text.ids.push_back(0);
    for (int choice = 0; choice < 4; ++choice) {
      text.ids.back() = 32 + choice;
      texts.push_back(text);
    }
  }
  return texts;
}

struct Way {
  std::string name;
  LikelihoodSettings settings;
  std::vector<double> seconds = {};
  std::vector<Likelihood> found = {};
};

void run(Way& way, const danlu::models::CausalLM& model, const std::vector<ScoredText>& texts) {
  way.found.assign(texts.size(), {});
  const double start_s = danlu::steady_now_s();
  danlu::infer::score_texts(model, texts, way.settings, [&](size_t index, const Likelihood& found) {
    way.found[index] = found;
  });
  way.seconds.push_back(danlu::steady_now_s() - start_s);
}

double worst_difference(const Way& way, const Way& from) {
  double worst = 0;
  for (size_t i = 0; i < way.found.size(); ++i) {
    const double expected = from.found[i].sum;
    worst = std::max(worst, std::abs(way.found[i].sum - expected) / std::abs(expected));
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  danlu::restart_constrained(argv);
  using danlu::bench::WholeNumber;
  std::string directory, dtype = "bf16";
  int64_t examples = 700, question = 100, count = 12, rounds = 3;
  const danlu::bench::Flags flags{{"--examples", WholeNumber{&examples}},
                                  {"--question", WholeNumber{&question}},
                                  {"--questions", WholeNumber{&count}},
                                  {"--rounds", WholeNumber{&rounds}},
                                  {"--dtype", &dtype}};
  for (const std::string& word : danlu::bench::parse_flags(argc, argv, flags, 1)) directory = word;
  if (dtype != "fp32" && dtype != "bf16")
    danlu::bench::refuse("likelihood_bench", "--dtype must be fp32 or bf16, got '" + dtype + "'");
  const at::ScalarType type = dtype == "fp32" ? at::kFloat : at::kBFloat16;
  const at::Device device(at::kCPU);
  std::unique_ptr<danlu::models::CausalLM> model;
  if (directory.empty()) {
    model = std::make_unique<danlu::models::CausalLM>(
        half_billion(), danlu::parallel::Mesh::single(), type, device);
    models::initialize(*model, 0);
  } else {
    model = danlu::models::load_model(directory, danlu::parallel::Mesh::single(), type, device);
  }
  const auto texts = questions_of(examples, question, count, model->config().vocab_size);
  std::vector<Way> ways = {
      {"alone", {.batch_size = 1, .share_prefixes = false}},
      {"batched", {.share_prefixes = false}},
      {"shared", {}},
  };
  for (int64_t round = 0; round < rounds; ++round)
    for (Way& way : ways) run(way, *model, texts);
  const double alone = median(ways[0].seconds);
  fmt::print("{{\"cpu\": \"{}\", \"dtype\": \"{}\"", danlu::describe_cpu_class(),
             type == at::kFloat ? "fp32" : "bf16");
  for (const Way& way : ways) {
    const double seconds = median(way.seconds);
    fmt::print(", \"{0}_questions_per_s\": {1:.3f}, \"{0}_ratio\": {2:.2f}, \"{0}_error\": {3:.1e}",
               way.name, static_cast<double>(count) / seconds, alone / seconds,
               worst_difference(way, ways[0]));
  }
  fmt::print("}}\n");
  return 0;
}
