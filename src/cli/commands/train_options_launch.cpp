// Which processes train together, and where: the options of danlu launch and of every training
// command.
#include "cli/commands/train_options.h"

namespace danlu::cli {
namespace {

std::vector<OptionSpec> launch_rows() {
  return {
      {.name = "nproc",
       .type = OptionType::kInt,
       .help = "processes on this machine",
       .aliases = {"nproc_per_node"},
       .range = at_least(1).up_to(1024),
       .group = "Launch",
       .environment = "NPROC_PER_NODE"},
      {.name = "nnodes",
       .type = OptionType::kInt,
       .default_text = "1",
       .help = "machines; the command is started on each",
       .range = at_least(1).up_to(10000),
       .group = "Launch",
       .environment = "NNODES"},
      {.name = "node_rank",
       .type = OptionType::kInt,
       .default_text = "0",
       .help = "number of this machine",
       .range = at_least(0),
       .group = "Launch",
       .environment = "NODE_RANK"},
      {.name = "hostfile",
       .help = "machines, one a line: NAME slots=N; the command is started on each",
       .group = "Launch"},
      {.name = "max_restarts",
       .type = OptionType::kInt,
       .default_text = "0",
       .help = "how often a job that lost a rank begins again from its newest checkpoint",
       .range = at_least(0),
       .group = "Launch"},
      {.name = "min_ranks",
       .type = OptionType::kInt,
       .help = "with how many of its ranks a job that lost machines begins again (default: all)",
       .range = at_least(1),
       .group = "Launch"},
      {.name = "rdzv_timeout",
       .type = OptionType::kInt,
       .default_text = "60",
       .help = "seconds in which machines come back to a job that begins again",
       .range = at_least(1).up_to(86400),
       .group = "Launch"},
      {.name = "master_addr",
       .help = "address of machine 0 (default with one machine: its own)",
       .group = "Launch",
       .environment = "MASTER_ADDR"},
      {.name = "master_port",
       .type = OptionType::kInt,
       .help = "a free port of machine 0 (0, or default with one machine: any)",
       .range = at_least(0).up_to(65535),
       .group = "Launch",
       .environment = "MASTER_PORT"}};
}

}  // namespace

std::vector<OptionSpec> train_launch_options() {
  std::vector<OptionSpec> options = launch_rows();
  for (OptionSpec& option : options) option.scope = OptionScope::kMachine;
  return options;
}

}  // namespace danlu::cli
