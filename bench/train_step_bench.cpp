// bench/train_step_bench.cpp: the time of one full fine-tuning step (forward, backward, AdamW).
//
//   train_step_bench [--dtype fp32|bf16|fp16[,…]] [--batch 4] [--seq 256] [--steps 8] [--lora 0]
//     [--threads 0] [--layers 12] [--vocab 32000] [--hidden 768] [--heads 12] [--kv 4] [--ffn 2048]
//
// Prints one JSON line for each type with the keys of the PyTorch peer it is compared with
// (bench/README.md): median step seconds after two warm-ups, tokens/s, GFLOP/s at 6N per token,
// peak resident memory in MiB (of all types together), last loss and norm of its gradients. Several
// types take steps in turn, so that their ratio does not depend on what else the machine does.
// Default shape: 100.1 M parameters, tied embeddings, biases on q, k, v. --lora R trains rank-R
// adapters on every linear layer of the blocks, and nothing else; --threads 0: all there are.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>

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
#include "measure/training_step.h"

namespace {

using danlu::measure::StepShape;
using danlu::measure::TrainingStep;

constexpr const char* kProgram = "train_step_bench";
const std::map<std::string, at::ScalarType> kTypes{
    {"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}};

struct Settings {
  std::vector<std::string> dtypes;
  StepShape shape;
  int64_t steps = 8, threads = 0;
};

std::vector<std::string> types_in(const std::string& list) {
  std::vector<std::string> result;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');) {
    if (!kTypes.count(word)) danlu::bench::refuse(kProgram, "--dtype: unknown type '" + word + "'");
    result.push_back(word);
  }
  if (result.empty()) danlu::bench::refuse(kProgram, "--dtype needs a type");
  return result;
}

Settings parse(int argc, char** argv) {
  using danlu::bench::WholeNumber;
  Settings settings;
  StepShape& shape = settings.shape;
  std::string dtypes = "fp32";
  danlu::bench::parse_flags(argc, argv,
                            {{"--dtype", &dtypes},
                             {"--vocab", WholeNumber{&shape.vocab}},
                             {"--hidden", WholeNumber{&shape.hidden}},
                             {"--layers", WholeNumber{&shape.layers}},
                             {"--heads", WholeNumber{&shape.heads}},
                             {"--kv", WholeNumber{&shape.kv_heads}},
                             {"--ffn", WholeNumber{&shape.ffn}},
                             {"--batch", WholeNumber{&shape.batch}},
                             {"--seq", WholeNumber{&shape.sequence}},
                             {"--lora", WholeNumber{&shape.lora_rank, 0}},
                             {"--steps", WholeNumber{&settings.steps}},
                             {"--threads", WholeNumber{&settings.threads, 0}}});
  settings.dtypes = types_in(dtypes);
  return settings;
}

struct Run {
  std::string dtype;
  TrainingStep step;
  std::vector<double> seconds = {};
  double loss = 0, gradient_norm = 0;

  void take() {
    const double begin = danlu::steady_now_s();
    loss = step.run();
    seconds.push_back(danlu::steady_now_s() - begin);
    gradient_norm = step.gradient_norm();
  }
  void print() const {
    const double step_s = danlu::bench::median({seconds.begin() + 2, seconds.end()});
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print(
        "{{\"program\": \"danlu\", \"cpu\": \"{}\", \"dtype\": \"{}\", \"params\": {}, "
        "\"trained\": {}, \"step_s\": {:.4f}, \"tokens_per_s\": {:.1f}, \"gflops_6N\": {:.1f}, "
        "\"peak_rss_mib\": {}, \"loss\": {:.6f}, \"gradient_norm\": {:.6g}}}\n",
        danlu::describe_cpu_class(), dtype, static_cast<int64_t>(step.parameters()),
        static_cast<int64_t>(step.trained_parameters()), step_s, step.tokens() / step_s,
        6 * step.parameters() * step.tokens() / step_s / 1e9, usage.ru_maxrss / 1024, loss,
        gradient_norm);
  }
};

}  // namespace

int main(int argc, char** argv) {
  danlu::restart_constrained(argv);
  danlu::device::count_host_memory();  // tensors lie where those of `danlu` do
  const Settings settings = parse(argc, argv);
  if (settings.threads > 0) at::set_num_threads(static_cast<int>(settings.threads));
  std::vector<std::unique_ptr<Run>> runs;
  for (const std::string& dtype : settings.dtypes)
    runs.push_back(std::unique_ptr<Run>(new Run{dtype, {settings.shape, kTypes.at(dtype)}}));
  for (int64_t step = 0; step < settings.steps + 2; ++step)
    for (const auto& run : runs) run->take();
  for (const auto& run : runs) run->print();
  return 0;
}
