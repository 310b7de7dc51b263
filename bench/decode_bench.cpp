// bench/decode_bench.cpp: seconds a step of decoding, by type of the weights.
//
//   decode_bench [MODEL] [--types fp32,bf16,fp16,q8_0,q4_0,file] [--sequences 1] [--tokens 16]
//                [--past 64]
//
// One model for each type answers in turn, so that ratios do not depend on what else the machine
// does; `file` computes as `danlu infer` does with blocks of a GGUF file. Every sequence is given
// `past` tokens first. Without a model: random weights of Qwen2.5-0.5B's shape. Prints one JSON
// line a type: median and least seconds a step, bytes of weights read a second, and as a share of
// what reading memory with all threads gave between the steps.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/cpu_class.h"
#include "half_billion.h"
#include "infer/kv_cache.h"
#include "infer/step.h"
#include "models/causal_lm.h"

namespace {

using danlu::bench::half_billion;

struct Settings {
  std::string model, types = "fp32,bf16,fp16";
  int sequences = 1, tokens = 16, past = 64;
};

double seconds_of(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Bytes a second that all threads read of memory that no cache holds.
class Bandwidth {
 public:
  double measure() {
    std::vector<int64_t> sums(static_cast<size_t>(at::get_num_threads()));
    const int64_t* data = memory_.data_ptr<int64_t>();
    const int64_t count = memory_.numel(), parts = static_cast<int64_t>(sums.size());
    const double seconds = seconds_of([&] {
      at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; ++part) {
          int64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
          for (int64_t i = count / parts * part; i + 8 <= count / parts * (part + 1); i += 8) {
            a += data[i], b += data[i + 1], c += data[i + 2], d += data[i + 3];
            e += data[i + 4], f += data[i + 5], g += data[i + 6], h += data[i + 7];
          }
          sums[static_cast<size_t>(part)] = a + b + c + d + e + f + g + h;
        }
      });
    });
    for (const int64_t sum : sums) kept_ = kept_ + sum;
    return static_cast<double>(count) * 8 / seconds;
  }

 private:
  at::Tensor memory_ = at::ones({int64_t{32} << 20}, at::kLong);
  volatile int64_t kept_ = 0;
};

struct Decoder {
  std::string name;
  std::unique_ptr<danlu::models::CausalLM> model;
  std::unique_ptr<danlu::infer::SequenceCache> cache;
  std::vector<danlu::infer::StepInput> next;
  std::vector<double> seconds, bandwidth;

  void step() {
    seconds.push_back(seconds_of([&] {
      const at::Tensor logits = danlu::infer::next_logits(*model, *cache, next);
      const at::Tensor best = logits.argmax(1);
      for (size_t i = 0; i < next.size(); ++i)
        next[i].ids = {static_cast<int32_t>(best[static_cast<int64_t>(i)].item<int64_t>())};
    }));
  }
};

std::unique_ptr<danlu::models::CausalLM> model_of(const Settings& settings,
                                                  const std::string& name) {
  using namespace danlu;
  const at::Device device(at::kCPU);
  const bool wide = name == "fp32" || name == "file";
  const at::ScalarType type = wide ? at::kFloat : name == "fp16" ? at::kHalf : at::kBFloat16;
  if (settings.model.empty()) {
    auto model =
        std::make_unique<models::CausalLM>(half_billion(), parallel::Mesh::single(), type, device);
    model->initialize(0);
    return model;
  }
  const auto source = weights::open_checkpoint_source(settings.model, {.all_tensors = true});
  models::Quantisation quantisation;
  if (name == "file") quantisation.blocks = source.blocks;
  if (name == "q8_0") quantisation.make = BlockType::kQ8_0;
  if (name == "q4_0") quantisation.make = BlockType::kQ4_0;
  return models::load_model(source, parallel::Mesh::single(), type, device, {}, {}, quantisation);
}

Decoder decoder(const Settings& settings, const std::string& name) {
  Decoder result;
  result.name = name;
  result.model = model_of(settings, name);
  result.cache = std::make_unique<danlu::infer::SequenceCache>(
      result.model->config(), result.model->dtype(), at::Device(at::kCPU));
  for (int s = 0; s < settings.sequences; ++s) {
    danlu::infer::StepInput input{result.cache->add(), {}};
    for (int i = 0; i < std::max(1, settings.past); ++i) input.ids.push_back(7 + i);
    result.next.push_back(input);
  }
  return result;
}

void report(const Decoder& each, const Settings& settings) {
  const std::vector<double> counted(each.seconds.begin() + 3, each.seconds.end());
  const double step = median(counted), memory = median(each.bandwidth);
  const auto bytes = static_cast<double>(each.model->held_bytes().all);
  fmt::print(
      "{{\"program\": \"danlu\", \"cpu\": \"{}\", \"type\": \"{}\", \"sequences\": {}, "
      "\"threads\": {}, \"step_s\": {:.5f}, \"step_least_s\": {:.5f}, \"gb_per_s\": {:.2f}, "
      "\"memory_gb_per_s\": {:.2f}, \"share\": {:.2f}}}\n",
      danlu::describe_cpu_class(), each.name, settings.sequences, at::get_num_threads(), step,
      *std::min_element(counted.begin(), counted.end()), bytes / step / 1e9, memory / 1e9,
      bytes / step / memory);
}

}  // namespace

int main(int argc, char** argv) {
  danlu::restart_constrained(argv);
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "1";
    if (flag == "--types") {
      settings.types = argv[++i];
    } else if (flag == "--sequences" || flag == "--tokens" || flag == "--past") {
      (flag == "--sequences" ? settings.sequences
       : flag == "--tokens"  ? settings.tokens
                             : settings.past) = std::max(1, std::atoi(value));
      ++i;
    } else {
      settings.model = flag;
    }
  }
  std::vector<Decoder> decoders;
  std::istringstream types(settings.types);
  for (std::string name; std::getline(types, name, ',');)
    decoders.push_back(decoder(settings, name));
  Bandwidth memory;
  // The first takes what is past, the next two warm up.
  for (int i = 0; i < settings.tokens + 3; ++i) {
    for (Decoder& each : decoders) {
      each.step();
      if (i > 2) each.bandwidth.push_back(memory.measure());
    }
  }
  for (const Decoder& each : decoders) report(each, settings);
  return 0;
}
