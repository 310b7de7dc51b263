#include "train/options/one_process.h"

#include <fmt/format.h>

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
      tr("[train] {}={}: this version trains in one process", what, value),
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

}  // namespace

void require_one_process(const Options& options) {
  for (const char* name : {"tp", "pp", "cp", "ep", "dp", "nproc", "nnodes"}) {
    if (options.has_value(name))
      refuse_unless_one(options.given_as(name), std::to_string(options.get_int(name)));
  }
  for (const char* name : {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"})
    refuse_unless_one(name, environment(name));
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

}  // namespace danlu::train
