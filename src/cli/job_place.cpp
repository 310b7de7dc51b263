#include "cli/job_place.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/control_group.h"
#include "base/error.h"
#include "base/free_port.h"
#include "cli/commands/train_options.h"
#include "cli/hostfile.h"

namespace danlu::cli {

namespace {

/// The device of a command, or of the one that `danlu launch` starts.
std::string device_of(const Options& options) {
  if (options.names(OptionScope::kRun).count("device") > 0)
    return options.get_string_or("device", "");
  const std::vector<std::string>& words = options.positional();
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with("--device=")) return words[i].substr(std::strlen("--device="));
    if (words[i] == "--device" && i + 1 < words.size()) return words[i + 1];
  }
  return "";
}

/// A process for each of a machine's NPUs, as scripts for Ascend name their number; where the line
/// trains on NPUs and says nothing itself. Errors: UsageError for what is no number of processes.
std::optional<int64_t> npus_of_node(const Options& options) {
  const char* const said = std::getenv("NPUS_PER_NODE");
  if (!said || !*said || device_of(options) != "npu") return {};  // npu:3 names one card
  constexpr int64_t kMost = 1024;
  int64_t number = 0;
  const char* const end = said + std::strlen(said);
  const auto read = std::from_chars(said, end, number);
  if (read.ec == std::errc() && read.ptr == end && number >= 1 && number <= kMost) return number;
  throw UsageError(tr("[launch] NPUS_PER_NODE={} is no number of processes", said),
                   tr("1 to 1024, or unset it"));
}

int64_t processes_here(const Options& options) {
  if (options.has_value("nproc")) return options.get_int("nproc");
  return npus_of_node(options).value_or(1);
}

JobPlace place_by_numbers(const Options& options) {
  const int64_t nnodes = options.get_int("nnodes"), node_rank = options.get_int("node_rank");
  if (node_rank >= nnodes) {
    throw UsageError(tr("[launch] {} {}: machines are counted from 0, and --nnodes is {}",
                        options.given_as("node_rank"), node_rank, nnodes));
  }
  const int64_t nproc = processes_here(options);
  return {.nproc = nproc,
          .first_rank = node_rank * nproc,
          .world = nnodes * nproc,
          .node = node_rank,
          .nodes = nnodes};
}

JobPlace place_in_hostfile(const Options& options) {
  const std::string file = options.get_string("hostfile");
  for (const char* other : {"nproc", "nnodes", "node_rank"}) {
    if (!options.is_given(other)) continue;
    throw UsageError(tr("[launch] {} and --hostfile both say which processes run; give one",
                        options.given_as(other)));
  }
  const std::vector<Host> hosts = read_hostfile(file);
  const size_t own = find_own_host(file, hosts, own_names());
  JobPlace place{.nproc = hosts[own].slots,
                 .world = 0,
                 .node = static_cast<int64_t>(own),
                 .nodes = static_cast<int64_t>(hosts.size()),
                 // Alone it need not know its own name.
                 .master_address = hosts.size() > 1 ? hosts[0].name : ""};
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (i < own) place.first_rank += hosts[i].slots;
    place.world += hosts[i].slots;
  }
  return place;
}

/// Processes that another launcher started would each train all of the job.
void refuse_inside_a_job() {
  const char *rank = std::getenv("RANK"), *size = std::getenv("WORLD_SIZE");
  if (!rank || !size || !*rank || !*size || std::string(size) == "1") return;
  throw UsageError(
      tr("[launch] RANK={} and WORLD_SIZE={} say that this is one of several processes already; "
         "each of them would start a job of its own",
         rank, size),
      tr("for {0} machines: NNODES={0} NODE_RANK={1}, with MASTER_ADDR and MASTER_PORT; to start "
         "processes here alone, unset RANK and WORLD_SIZE",
         size, rank));
}

/// What a process takes that has loaded the engine and read no model: 58 MB, measured.
constexpr uint64_t kLeastMegabytes = 50;

/// A digit too many would take the machine's other programs with it before any rank says anything.
void refuse_more_than_memory_holds(int64_t nproc) {
  const uint64_t available = available_memory_bytes(static_cast<uint64_t>(nproc));
  if (available == 0 || available >= kLeastMegabytes * 1'000'000) return;
  throw MemoryError(tr("[launch] {} processes on this machine: each takes {} MB before it reads a "
                       "model, and there are {} MB for each",
                       nproc, kLeastMegabytes, available / 1'000'000),
                    tr("one process for each device, or for a few processors"));
}

void put_restarts(const Options& options, JobPlace& place) {
  place.max_restarts = options.get_int("max_restarts");
  place.rejoin_s = static_cast<double>(options.get_int("rdzv_timeout"));
  place.min_ranks = options.get_int_or("min_ranks", place.world);
  const auto refuse = [&](const std::string& why) {
    throw UsageError(tr("[launch] {} {}: {}", options.given_as("min_ranks"), place.min_ranks, why));
  };
  if (place.min_ranks > place.world) refuse(tr("the job has {} ranks", place.world));
  if (options.has_value("min_ranks") && place.max_restarts == 0)
    refuse(tr("a job that lost a machine begins again only with --max_restarts N"));
}

/// The flags among `words` that `table` has, with their values.
std::vector<std::string> words_known_to(const OptionTable& table,
                                        const std::vector<std::string>& words) {
  std::vector<std::string> known;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--")) continue;
    const std::string flag = words[i].substr(0, words[i].find('='));
    if (!table.find_spec(flag.substr(2))) continue;
    known.push_back(words[i]);
    if (flag == words[i] && i + 1 < words.size()) known.push_back(words[++i]);
  }
  return known;
}

}  // namespace

bool says_how_many(const Options& options) {
  return options.has_value("nproc") || options.has_value("hostfile") ||
         npus_of_node(options).has_value();
}

bool asks_for_processes(const Options& options) {
  // Whoever starts ranks says so in each of them; a cluster that starts one program a machine does
  // not.
  if (const char* rank = std::getenv("LOCAL_RANK"); rank && *rank) return false;
  return processes_here(options) > 1 || options.get_int("nnodes") > 1 ||
         options.has_value("hostfile") || options.get_int("max_restarts") > 0;
}

JobPlace job_place_from(const Options& options) {
  const bool listed = options.has_value("hostfile");
  JobPlace place = listed ? place_in_hostfile(options) : place_by_numbers(options);
  put_restarts(options, place);
  const bool alone = place.world == place.nproc;
  if (alone && !listed) refuse_inside_a_job();
  refuse_more_than_memory_holds(place.nproc);
  // A variable that another job left is not this machine's address.
  if (options.has_value("master_addr") &&
      !(alone && options.source("master_addr") == OptionSource::kEnvironment))
    place.master_address = options.get_string("master_addr");
  if (!alone && place.master_address.empty()) {
    throw UsageError(tr("[launch] several machines must know machine 0: --master_addr"),
                     tr("an address of machine 0 that the others reach"));
  }
  if (place.master_address.empty()) place.master_address = "127.0.0.1";
  place.master_port = options.get_int_or("master_port", 0);
  if (place.master_port > 0) return place;
  if (!alone) {
    throw UsageError(tr("[launch] several machines must agree on a port: --master_port"),
                     tr("a port that is free on machine 0, the same in every machine's line"));
  }
  const std::optional<int64_t> port = free_port();
  if (!port) throw IoError(tr("[launch] there is no free port: {}", std::strerror(errno)));
  place.master_port = *port;
  return place;
}

RankPlace place_despite(const std::vector<std::string>& unread) {
  const RankPlace started = rank_place_from_environment();
  if (started.size > 1) return started;
  const OptionTable table("launch", "", "", train_launch_options());
  const Options options = table.parse(words_known_to(table, unread), /*accepts_config=*/false);
  if (options.get_int("nnodes") == 1 && !options.has_value("hostfile")) return {};
  const JobPlace job = job_place_from(options);
  // Launchers that meet say themselves whom they wait for.
  if (job.nodes == 1 || job.meets()) return {};
  return {.rank = job.first_rank,
          .size = job.world,
          .local_size = job.nproc,
          .master_address = job.master_address,
          .master_port = job.master_port};
}

}  // namespace danlu::cli
