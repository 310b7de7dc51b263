#include "train/options/one_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"

namespace danlu::train {
namespace {

void refuse_unless_one(const std::string& what, const std::string& value) {
  if (value.empty() || value == "1") return;
  throw UsageError(
      tr("[train] {}={}: this version trains in one process, and each of these would train the "
         "whole",
         what, value),
      tr("leave it out, or set it to 1; one process uses every CPU core (or one accelerator)"));
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void explain_fsdp(const std::string& text) {
  static const std::set<std::string> known = {"full_shard",   "shard_grad_op",      "no_shard",
                                              "hybrid_shard", "hybrid_shard_zero2", "auto_wrap",
                                              "offload"};
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    if (!known.count(word)) {
      std::vector<std::string> names(known.begin(), known.end());
      std::string hint;
      if (const auto near = nearest_name(word, names)) hint = tr("did you mean {}?", *near);
      throw UsageError(
          tr("[train] --fsdp: unknown word '{}'; known: {}", word, fmt::join(known, ", ")), hint);
    }
  }
  log::notice(
      "--fsdp \"{}\": ignored, one process holds all parameters; the numbers are those of a "
      "sharded run",
      text);
}

void explain_sharding(const Options& options) {
  const bool has_fsdp = options.has_value("fsdp") && !options.get_string("fsdp").empty();
  if (has_fsdp && !options.get_string_or("deepspeed", "").empty()) {
    throw UsageError(tr("[train] {} and {} are two ways to divide one training; give one",
                        options.given_as("fsdp"), options.given_as("deepspeed")),
                     tr("with one process both give the same numbers; the DeepSpeed file may also "
                        "set batch sizes and the schedule"));
  }
  if (has_fsdp) explain_fsdp(options.get_string("fsdp"));
  if (options.get_string("shard") != "none")
    log::notice("--shard {}: ignored, one process holds everything", options.get_string("shard"));
  if (!options.get_list("offload").empty())
    log::notice("--offload: ignored, parameters and state are where the device is");
}

/// How many copies of the model the line's processes are: Megatron's data-parallel size.
int64_t replicas_from(const Options& options) {
  std::vector<std::string> divided;
  for (const char* name : {"nproc", "tp", "pp", "cp", "ep", "dp"}) {
    if (options.get_int_or(name, 1) > 1)
      divided.push_back(fmt::format("{} {}", options.given_as(name), options.get_int(name)));
  }
  if (divided.empty()) return 1;
  log::notice("{}: this version trains in one process", fmt::join(divided, ", "));
  if (options.get_int("dp") > 1) return options.get_int("dp");
  const int64_t processes = options.get_int_or("nproc", 1);
  const int64_t of_one_copy = options.get_int("tp") * options.get_int("pp") * options.get_int("cp");
  if (processes > 1 && processes % of_one_copy != 0) {
    throw UsageError(tr("[train] {} {}: not a multiple of tensor × pipeline × context = {}",
                        options.given_as("nproc"), processes, of_one_copy),
                     tr("both may be left out: training runs in one process"));
  }
  return std::max<int64_t>(1, processes / of_one_copy);
}

}  // namespace

int64_t replicas_in_one_process(const Options& options) {
  if (options.has_value("nnodes"))
    refuse_unless_one(options.given_as("nnodes"), std::to_string(options.get_int("nnodes")));
  for (const char* name : {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"})
    refuse_unless_one(name, environment(name));
  explain_sharding(options);
  return replicas_from(options);
}

}  // namespace danlu::train
