#include "settings/options/sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "settings/options/deepspeed.h"
#include "settings/options/idle_flags.h"

namespace danlu::settings {
namespace {

namespace fs = std::filesystem;

/// What HF Trainer's words mean. Errors: UsageError for another one.
std::optional<Sharding> of_fsdp(const std::string& text) {
  static const std::map<std::string, std::optional<Sharding>> known = {
      {"full_shard", Sharding::kParameters},
      {"hybrid_shard", Sharding::kParameters},
      {"shard_grad_op", Sharding::kGradients},
      {"hybrid_shard_zero2", Sharding::kGradients},
      {"no_shard", Sharding::kNone},
      {"auto_wrap", std::nullopt},
      {"offload", std::nullopt}};
  std::optional<Sharding> sharding;
  std::string first;
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    const auto found = known.find(word);
    if (found == known.end()) {
      std::vector<std::string> names;
      for (const auto& [name, meaning] : known) names.push_back(name);
      std::string hint;
      if (const auto near = nearest_name(word, names)) hint = tr("did you mean {}?", *near);
      throw UsageError(
          tr("[train] --fsdp: unknown word '{}'; known: {}", word, fmt::join(names, ", ")), hint);
    }
    if (!found->second || word == first) continue;
    if (sharding) {
      throw UsageError(tr("[train] --fsdp \"{}\": {} and {} are two ways to divide one training; "
                          "give one",
                          text, first, word),
                       tr("auto_wrap and offload may stand beside it"));
    }
    sharding = found->second;
    first = word;
  }
  return sharding;
}

/// MeshShape::sharers by FSDP's hybrid words: the processes of each machine share, and machines
/// keep copies. Errors: UsageError where machines do not hold whole copies.
int64_t sharers_from(const std::string& fsdp, const Processes& processes) {
  const RankPlace& place = processes.place;
  const MeshShape& mesh = processes.mesh;
  if (fsdp.find("hybrid") == std::string::npos) return mesh.sharers;
  const int64_t here = place.local_size, tensor = mesh.tensor;
  if (!place.says_local_size) {
    throw UsageError(tr("[train] --fsdp {}: how many processes each machine has is not said", fsdp),
                     tr("set LOCAL_WORLD_SIZE for every process (Slurm: --ntasks-per-node)"));
  }
  if (here % tensor != 0 || place.size % here != 0) {
    throw UsageError(tr("[train] --fsdp {}: {} processes a machine, {} in all and --tp {}: no "
                        "machine holds whole copies of the model",
                        fsdp, here, place.size, tensor),
                     tr("as many processes on every machine, a multiple of --tp; or full_shard"));
  }
  const int64_t sharers = std::min(here / tensor, mesh.model_copies());
  if (mesh.model_copies() % sharers != 0 || here / tensor % sharers != 0) {
    throw UsageError(tr("[train] --fsdp {}: {} processes a machine, {} copies of the model: they "
                        "do not share alike",
                        fsdp, here, mesh.model_copies()),
                     tr("as many copies on every machine; or full_shard"));
  }
  if (sharers == mesh.model_copies() && mesh.model_copies() > 1) {
    say_always(
        tr("--fsdp \"{}\": all processes are on one machine and share one copy, as without hybrid",
           fsdp));
  }
  return sharers;
}

/// What was asked for, and by which flag.
struct Asked {
  std::string flag;
  Sharding sharding;
};

std::vector<Asked> asked(const Options& options) {
  std::vector<Asked> all;
  if (options.is_given("shard")) {
    const std::string name = options.get_string("shard");
    const int64_t stage = name == "none" ? 0 : name.back() - '0';
    all.push_back({options.given_as("shard") + " " + name, sharding_of_stage(stage, "--shard")});
  }
  if (const std::string fsdp = options.get_string_or("fsdp", ""); !fsdp.empty()) {
    if (const auto sharding = of_fsdp(fsdp)) all.push_back({"--fsdp \"" + fsdp + "\"", *sharding});
  }
  if (const std::string text = options.get_string_or("deepspeed", ""); !text.empty()) {
    if (const auto stage = deepspeed_stage(text)) {
      all.push_back(
          {fmt::format("--deepspeed: stage {}", *stage), sharding_of_stage(*stage, "--deepspeed")});
    }
  }
  if (options.get_bool_or("use_distributed_optimizer", false))
    all.push_back({options.given_as("use_distributed_optimizer"), Sharding::kState});
  if (options.get_string_or("optim", "") == "dist_muon")
    all.push_back({options.given_as("optim") + " dist_muon", Sharding::kState});
  return all;
}

/// Errors: UsageError for two that disagree.
std::vector<Asked> asked_alike(const Options& options) {
  std::vector<Asked> all = asked(options);
  for (const Asked& one : all) {
    if (one.sharding == all.front().sharding) continue;
    throw UsageError(tr("[train] {} means {}, {} means {}; give one", all.front().flag,
                        sharding_name(all.front().sharding), one.flag,
                        sharding_name(one.sharding)));
  }
  return all;
}

/// Megatron's flags of the optimizer's state, of which a part cannot be elsewhere here: it is a
/// matter of memory, no number depends on it.
bool has_state_on_cpu(const Options& options) {
  const double part = options.get_float_or("optimizer_offload_fraction", 1);
  if (!options.get_bool_or("optimizer_cpu_offload", false) || part == 0) return false;
  if (part < 1) {
    say_always(tr("{} {}: the whole state of the optimizer is in host memory",
                  options.given_as("optimizer_offload_fraction"), part));
  }
  return true;
}

/// --offload optimizer, params; without --offload_dir to the memory of the host, where a CPU has
/// them anyway.
void read_offload(const Options& options, const SharingOf& of, SharingOptions& sharing) {
  std::vector<std::string> what = options.get_list("offload");
  for (const std::string& word : what) {
    if (word != "optimizer" && word != "params")
      throw UsageError(tr("[train] --offload {}: expected optimizer or params", word),
                       tr("it says what is kept in host memory: --offload optimizer,params"));
  }
  if (has_state_on_cpu(options)) what.emplace_back("optimizer");
  const bool is_fsdps = options.get_string_or("fsdp", "").find("offload") != std::string::npos;
  const bool activations = of.activations_to == OffloadTo::kFile;
  const auto is_named = [&](const char* word) {
    return std::find(what.begin(), what.end(), word) != what.end();
  };
  sharing.wants_state_in_host = is_named("optimizer") || is_fsdps;
  sharing.wants_parameters_in_host = is_named("params");
  if (!options.has_value("offload_dir")) {
    if (of.is_planned) return;
    if (activations) {
      throw UsageError(tr("[train] --activation_offload file: no directory was named"),
                       tr("--offload_dir DIR has a file of that directory hold them"));
    }
    const bool has_state_alone = sharing.wants_state_in_host && !is_fsdps && !is_named("params");
    if (has_state_alone) {
      log::notice("the optimizer's state is in host memory; --offload_dir DIR has a file hold it");
    } else if (!what.empty() || is_fsdps) {
      log::notice(
          "offload: parameters and state are in host memory; --offload_dir DIR has files "
          "hold them");
    }
    return;
  }
  const fs::path directory = options.get_string("offload_dir");
  if (!of.is_planned && !fs::is_directory(directory)) {
    throw UsageError(tr("[train] --offload_dir {}: no such directory", directory.string()),
                     did_you_mean_path(directory));
  }
  if (activations) sharing.activations_in = directory;
  // The state alone is the larger part and is read once a step.
  if ((what.empty() && !activations) || is_named("optimizer")) sharing.keeping.state_in = directory;
  if (is_named("params")) sharing.keeping.parameters_in = directory;
}

}  // namespace

std::string sharding_name(Sharding sharding) {
  return sharding == Sharding::kNone ? "none" : fmt::format("ZeRO-{}", static_cast<int>(sharding));
}

Sharding sharding_of_stage(int64_t stage, const std::string& flag) {
  if (stage < 0 || stage > 3)
    throw UsageError(tr("[train] {}: ZeRO has the stages 0 to 3, not {}", flag, stage));
  return static_cast<Sharding>(stage);
}

Sharding sharding_from(const Options& options) {
  const std::vector<Asked> all = asked_alike(options);
  return all.empty() ? Sharding::kNone : all.front().sharding;
}

SharingOptions sharing_from(const Options& options, const SharingOf& of) {
  const bool has_fsdp = !options.get_string_or("fsdp", "").empty();
  if (has_fsdp && !options.get_string_or("deepspeed", "").empty()) {
    throw UsageError(tr("[train] {} and {} are two ways to divide one training; give one",
                        options.given_as("fsdp"), options.given_as("deepspeed")),
                     tr("both give the same numbers; the DeepSpeed file may also set batch sizes "
                        "and the schedule"));
  }
  const std::vector<Asked> all = asked_alike(options);
  SharingOptions sharing;
  sharing.sharers = of.processes.mesh.sharers;
  read_offload(options, of, sharing);
  if (all.empty() || all.front().sharding == Sharding::kNone) return sharing;
  sharing.sharers = sharers_from(options.get_string_or("fsdp", ""), of.processes);
  const int64_t copies = of.processes.mesh.model_copies();
  if (copies > 1 && sharing.sharers != 1) {
    sharing.keeping.sharding = all.front().sharding;
    return sharing;
  }
  log::notice("{}: there is one copy of the model{}, and nobody to share it with", all.front().flag,
              copies > 1 ? tr(" on each machine") : "");
  return sharing;
}

}  // namespace danlu::settings
