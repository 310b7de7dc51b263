#include "train/options/processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/rank_place.h"

namespace danlu::train {
namespace {

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
      "--fsdp \"{}\": ignored, every process holds all parameters; the numbers are those of a "
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
    log::notice("--shard {}: ignored, every process holds everything", options.get_string("shard"));
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
  log::notice("{}: one process trains; danlu launch --nproc N COMMAND starts several",
              fmt::join(divided, ", "));
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
  explain_sharding(options);
  if (const RankPlace place = rank_place_from_environment(); place.size > 1) {
    const int64_t asked = options.get_int_or("nproc", place.local_size);
    if (asked != place.local_size) {
      log::notice("{} {}: {} processes run on this machine, as they were started",
                  options.given_as("nproc"), asked, place.local_size);
    }
    return 1;
  }
  if (options.get_int_or("nnodes", 1) > 1) {
    throw UsageError(tr("[train] {} {}: this process is alone", options.given_as("nnodes"),
                        options.get_int("nnodes")),
                     tr("on every machine: danlu launch --nproc N --nnodes N --node_rank I "
                        "--master_addr ADDRESS --master_port PORT COMMAND"));
  }
  return replicas_from(options);
}

parallel::MeshShape mesh_from(const Options& options, int64_t processes) {
  for (const char* name : {"pp", "cp", "ep"}) {
    const int64_t size = options.get_int_or(name, 1);
    if (size == 1) continue;
    throw UsageError(tr("[train] {} {}: this version divides training by data and by tensors only",
                        options.given_as(name), size),
                     tr("leave it out; --tensor-model-parallel-size divides every layer"));
  }
  parallel::MeshShape shape;
  shape.tensor = options.get_int_or("tp", 1);
  if (processes % shape.tensor != 0) {
    throw UsageError(tr("[train] {} {}: {} processes are no multiple of it", options.given_as("tp"),
                        shape.tensor, processes));
  }
  shape.data = processes / shape.tensor;
  const int64_t dp = options.get_int_or("dp", 1);
  if (dp != 1 && dp != shape.data) {
    throw UsageError(tr("[train] {} {}: {} processes of {} a copy of the model make {}",
                        options.given_as("dp"), dp, processes, shape.tensor, shape.data),
                     tr("leave it out: it follows from the others"));
  }
  const bool asked =
      options.has_value("sequence_parallel") && options.get_bool("sequence_parallel");
  shape.sequence_parallel = shape.tensor > 1 && asked;
  return shape;
}

}  // namespace danlu::train
