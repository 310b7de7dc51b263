// bench/decode_bench.cpp: seconds a token of greedy decoding, by type of the weights.
//
//   decode_bench [MODEL] [--dtype fp32,bf16,fp16,q8_0,q4_0,file] [--tokens 16] [--sequences 1]
//     [--context 16] [--prefill 0] [--threads 0]
//
// One model for each type answers in turn, so that ratios do not depend on what else the machine
// does. MODEL: a directory or a GGUF file, whose blocks are used as they are by the type `file`;
// without one: random weights of Qwen2.5-0.5B's shape.
// Prints one JSON line a type: median seconds a token of all sequences, bytes of weights and keys
// read a second; of as many more tokens what the memory gave before and after each (others use it
// too, and what it gives halves within a second), and their share of that; with --prefill N tokens
// a second of reading N at once, the ids that each sequence came to, and what it began with.
// --threads 0: all.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cpu_class.h"
#include "bench/statistics.h"
#include "device/counted_memory.h"
#include "flags.h"
#include "half_billion.h"
#include "measure/decoding.h"
#include "measure/gauge.h"
#include "models/weight_files.h"

namespace {

using danlu::measure::Decoding;
using danlu::models::CausalLM;

constexpr int kWarmUp = 2;  ///< tokens that are not counted

const std::map<std::string, at::ScalarType> kTypes{
    {"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}};

struct Settings {
  std::string model, dtypes = "fp32,bf16,fp16";
  int64_t tokens = 16, sequences = 1, context = 16, prefill = 0, threads = 0;
};

[[noreturn]] void refuse(const std::string& why) { danlu::bench::refuse("decode_bench", why); }

Settings parse(int argc, char** argv) {
  Settings settings;
  using danlu::bench::WholeNumber;
  const danlu::bench::Flags flags{{"--dtype", &settings.dtypes},
                                  {"--tokens", WholeNumber{&settings.tokens}},
                                  {"--sequences", WholeNumber{&settings.sequences}},
                                  {"--context", WholeNumber{&settings.context}},
                                  {"--prefill", WholeNumber{&settings.prefill, 0}},
                                  {"--threads", WholeNumber{&settings.threads, 0}}};
  for (const std::string& word : danlu::bench::parse_flags(argc, argv, flags, 1))
    settings.model = word;
  return settings;
}

struct Decoder {
  std::string name;
  std::unique_ptr<CausalLM> model;
  std::unique_ptr<Decoding> decoding;
  std::vector<double> seconds, prefill_seconds;
  std::vector<double> memory_bytes;  ///< a second, that the memory gave around each token
  std::vector<double> shares;        ///< what the token read of that
};

double seconds_of(const std::function<void()>& work) {
  const double begin = danlu::steady_now_s();
  work();
  return danlu::steady_now_s() - begin;
}

std::unique_ptr<CausalLM> model_of(const Settings& settings, const std::string& name) {
  using namespace danlu;
  const bool is_quantised = name == "q8_0" || name == "q4_0" || name == "file";
  if (!is_quantised && !kTypes.count(name)) refuse("--dtype: unknown type '" + name + "'");
  if (settings.model.empty() && is_quantised) refuse("--dtype " + name + " needs a model");
  const at::ScalarType type = is_quantised ? at::kFloat : kTypes.at(name);
  if (settings.model.empty()) return measure::random_model(bench::half_billion(), type);
  const auto source = weights::open_checkpoint_source(settings.model, {.all_tensors = true});
  models::Quantisation quantisation;
  if (name == "file") quantisation.blocks = source.blocks;
  if (name == "q8_0") quantisation.make = BlockType::kQ8_0;
  if (name == "q4_0") quantisation.make = BlockType::kQ4_0;
  return models::load_model(source, parallel::Mesh::single(), type, at::Device(at::kCPU), {}, {},
                            quantisation);
}

Decoder decoder(const Settings& settings, const std::string& name) {
  Decoder result;
  result.name = name;
  result.model = model_of(settings, name);
  result.decoding = std::make_unique<Decoding>(*result.model, settings.sequences, settings.context);
  return result;
}

std::string lists(const std::vector<std::vector<int64_t>>& sequences) {
  std::vector<std::string> texts;
  for (const auto& ids : sequences) texts.push_back(fmt::format("[{}]", fmt::join(ids, ", ")));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

void time_tokens(std::vector<Decoder>& decoders, const Settings& settings) {
  for (int64_t i = 0; i < settings.tokens + kWarmUp; ++i)
    for (Decoder& each : decoders)
      each.seconds.push_back(seconds_of([&] { each.decoding->token(); }));
}

/// Tokens of their own: one after the memory was gauged takes a fiftieth longer.
void gauge_tokens(std::vector<Decoder>& decoders, const Settings& settings) {
  const auto threads = static_cast<size_t>(at::get_num_threads());
  danlu::measure::Gauge gauge(threads);
  const danlu::measure::Stopwatch watch(threads);
  double before = gauge.read_bandwidth();
  for (int64_t i = 0; i < settings.tokens; ++i) {
    for (Decoder& each : decoders) {
      const double bytes = each.decoding->work().bytes(), begin = watch.now();
      each.decoding->token();
      const double seconds = watch.now() - begin, after = gauge.read_bandwidth();
      each.memory_bytes.push_back((before + after) / 2);
      each.shares.push_back(bytes / seconds / each.memory_bytes.back());
      before = after;
    }
  }
}

void print(const Decoder& each, const Settings& settings) {
  const double median = danlu::bench::median({each.seconds.begin() + kWarmUp, each.seconds.end()});
  fmt::print(
      "{{\"program\": \"danlu\", \"cpu\": \"{}\", \"dtype\": \"{}\", \"sequences\": {}, "
      "\"token_s\": {:.5f}, \"tokens_per_s\": {:.2f}, \"gb_per_s\": {:.2f}, "
      "\"memory_gb_per_s\": {:.2f}, \"share\": {:.3f}",
      danlu::describe_cpu_class(), each.name, settings.sequences, median,
      static_cast<double>(settings.sequences) / median,
      each.decoding->work().bytes() / median / 1e9, danlu::bench::median(each.memory_bytes) / 1e9,
      danlu::bench::median(each.shares));
  if (settings.prefill > 0) {
    const double prefill = danlu::bench::median(each.prefill_seconds);
    fmt::print(", \"prefill_tokens_per_s\": {:.1f}, \"prefill_gflops\": {:.1f}",
               static_cast<double>(settings.prefill) / prefill,
               danlu::measure::prefill_work(*each.model, settings.prefill).flops / prefill / 1e9);
  }
  fmt::print(", \"ids\": {}, \"prompts\": {}}}\n", lists(each.decoding->chosen()),
             lists(each.decoding->prompts()));
}

}  // namespace

int main(int argc, char** argv) {
  danlu::restart_constrained(argv);
  danlu::device::count_host_memory();  // tensors lie where those of `danlu` do
  const Settings settings = parse(argc, argv);
  if (settings.threads > 0) at::set_num_threads(static_cast<int>(settings.threads));
  std::vector<Decoder> decoders;
  std::istringstream types(settings.dtypes);
  for (std::string name; std::getline(types, name, ',');)
    decoders.push_back(decoder(settings, name));
  time_tokens(decoders, settings);
  gauge_tokens(decoders, settings);
  for (int round = 0; round < 3 && settings.prefill > 0; ++round)
    for (Decoder& each : decoders) {
      each.prefill_seconds.push_back(
          seconds_of([&] { danlu::measure::prefill(*each.model, settings.prefill); }));
    }
  for (const Decoder& each : decoders) print(each, settings);
  return 0;
}
