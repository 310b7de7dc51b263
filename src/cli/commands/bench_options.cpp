// `danlu bench`: its flags, and which processors it uses, which must be settled before libraries
// are loaded that count them.
#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/cpu_affinity.h"
#include "base/threads.h"
#include "cli/commands/commands.h"

namespace danlu::cli {

OptionTable bench_options() {
  const std::string what = "What", comparison = "Comparison", output = "Output";
  return OptionTable(
      "bench", "measure this machine, and how much of it training and decoding use",
      "danlu bench [--device NAME] [--quick] [--threads N] [--dtype TYPE,…] [--only PART,…] "
      "[--json]",
      {{.name = "quick",
        .type = OptionType::kBool,
        .default_text = "false",
        .help = "small shapes and few runs: some seconds instead of some minutes",
        .group = what},
       {.name = "threads",
        .type = OptionType::kInt,
        .help = "processors to use, the process is bound to them (default: all it may use); with "
                "1 processor seconds are measured, steadiest on a machine that others use",
        .range = at_least(1),
        .group = what,
        .scope = OptionScope::kMachine},
       {.name = "dtype",
        .type = OptionType::kList,
        .default_text = "fp32,bf16",
        .help = "types to compute in: fp32, bf16, fp16",
        .group = what},
       {.name = "device",
        .default_text = "cpu",
        .help = "cpu, cuda[:n], npu[:n]: of cards step and decode are measured, beside what their "
                "products and copies reach",
        .group = what},
       {.name = "only",
        .type = OptionType::kList,
        .help = "parts to measure: ops (each operation alone), step (training), decode, or limits "
                "(nothing but the machine); all without it",
        .group = what},
       {.name = "check",
        .help = "compare the shares with those recorded in this folder for this kind of processor, "
                "or in this file; exit code 5 if one is lower by more than --limit",
        .group = comparison},
       {.name = "limit",
        .type = OptionType::kFloat,
        .default_text = "1.1",
        .help = "recorded share over measured share that is too much",
        .range = above(1),
        .group = comparison},
       {.name = "record",
        .help = "write the figures into this folder, for --check; not if --check fails",
        .group = comparison},
       {.name = "json",
        .type = OptionType::kBool,
        .default_text = "false",
        .help = "print one JSON object: the machine, its limits, every row with all samples",
        .group = output}});
}

void choose_bench_processors(const Options& options) {
  const std::vector<int> allowed = allowed_cpus();
  const size_t count = options.has_value("threads")
                           ? static_cast<size_t>(options.get_int("threads"))
                           : default_thread_count();
  if (!allowed.empty() && count > allowed.size()) {
    const std::string asked_by =
        options.has_value("threads") ? options.given_as("threads") : "OMP_NUM_THREADS";
    throw UsageError(tr("[{}] {} threads, but this process may use {} processors", asked_by, count,
                        allowed.size()),
                     tr("threads that share a processor measure each other"));
  }
  if (!options.has_value("threads")) return;
  // The last ones: the first often has the machine's interrupts.
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  for (size_t i = 0; i < count && i < allowed.size(); ++i)
    CPU_SET(static_cast<size_t>(allowed[allowed.size() - 1 - i]), &chosen);
  if (!allowed.empty() && ::sched_setaffinity(0, sizeof chosen, &chosen) != 0)
    throw DeviceError(tr("[--threads] the process cannot be bound: {}", std::strerror(errno)));
  const std::string text = std::to_string(count);
  ::setenv("OMP_NUM_THREADS", text.c_str(), /*overwrite=*/1);
  ::setenv("OPENBLAS_NUM_THREADS", text.c_str(), /*overwrite=*/1);
}

}  // namespace danlu::cli
