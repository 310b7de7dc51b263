#include "settings/options/processes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace danlu::settings {
namespace processes_detail {

std::string sizes_that_fit(const std::string& flag, int64_t tensor, int64_t processes) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= processes; ++size) {
    if (processes % size == 0) sizes.push_back(size);
  }
  return tr("for {} processes {} may be {}; {} {} needs a multiple of {} processes, such as {}",
            processes, flag, fmt::join(sizes, ", "), flag, tensor, tensor,
            (processes / tensor + 1) * tensor);
}

}  // namespace processes_detail

void explain_processes(const Options& options, const RankPlace& place) {
  // A variable was for whoever started the ranks.
  if (!options.is_given("nproc") || options.get_int("nproc") == place.local_size) return;
  log::notice("{} {}: {} processes run on this machine, as they were started",
              options.given_as("nproc"), options.get_int("nproc"), place.local_size);
}

MeshShape mesh_from(const Options& options, int64_t processes) {
  for (const char* name : {"cp", "ep"}) {
    const int64_t size = options.get_int_or(name, 1);
    if (size == 1) continue;
    throw UsageError(tr("[train] {} {}: this version divides training by data, tensors and stages",
                        options.given_as(name), size),
                     tr("leave it out; --tensor-model-parallel-size divides every layer, "
                        "--pipeline-model-parallel-size the layers"));
  }
  MeshShape shape;
  shape.tensor = options.get_int_or("tp", 1);
  shape.pipeline = options.get_int_or("pp", 1);
  const int64_t copy = shape.tensor * shape.pipeline;
  const int64_t dp = options.get_int_or("dp", 1);
  if (const int64_t needed = copy * dp; processes == 1 && needed > 1) {
    std::vector<std::string> asked;
    for (const char* name : {"tp", "pp", "dp"}) {
      if (options.get_int_or(name, 1) > 1)
        asked.push_back(fmt::format("{} {}", options.given_as(name), options.get_int(name)));
    }
    throw UsageError(
        tr("[train] {}: for {} processes, and one runs", fmt::join(asked, ", "), needed),
        tr("add --nproc_per_node {} to the line: it starts them", needed));
  }
  if (processes % copy != 0) {
    std::vector<std::string> names, asked;
    for (const char* name : {"tp", "pp"}) {
      if (options.get_int_or(name, 1) == 1) continue;
      names.push_back(options.given_as(name));
      asked.push_back(fmt::format("{} {}", names.back(), options.get_int(name)));
    }
    throw UsageError(
        tr("[train] {}: {} processes are no multiple of it", fmt::join(asked, " × "), processes),
        processes_detail::sizes_that_fit(fmt::format("{}", fmt::join(names, " × ")), copy,
                                         processes));
  }
  shape.data = processes / copy;
  if (dp != 1 && dp != shape.data) {
    throw UsageError(tr("[train] {} {}: {} processes of {} a copy of the model make {}",
                        options.given_as("dp"), dp, processes, copy, shape.data),
                     tr("leave it out: it follows from the others"));
  }
  const bool asked =
      options.has_value("sequence_parallel") && options.get_bool("sequence_parallel");
  shape.sequence_parallel = shape.tensor > 1 && asked;
  return shape;
}

arch::PipelineSplit pipeline_from(const Options& options) {
  arch::PipelineSplit split;
  split.stages = options.get_int_or("pp", 1);
  if (split.stages == 1) return split;
  split.layer_list = options.get_int_list("num_layer_list");
  split.noop_layers = options.get_int_list("noop_layers");
  std::sort(split.noop_layers.begin(), split.noop_layers.end());
  return split;
}

}  // namespace danlu::settings
