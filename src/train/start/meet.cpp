#include "train/start/meet.h"

#include "base/descriptor.h"
#include "base/log.h"
#include "settings/options/system_message.h"

namespace danlu::train {

Ranks connect(const TrainConfig& config) {
  Json settings = config.args;
  for (const std::string& name : config.of_machine) settings.erase(name);
  if (config.mesh.sharers > 0) settings["nproc_per_node"] = config.place.local_size;
  return config.dry_run ? Ranks({}, {}, config.dist_timeout_s, settings)
                        : Ranks(config.place, config.mesh, config.dist_timeout_s, settings);
}

namespace {

void leave_speaking_to_first(const std::filesystem::path& run_dir, const Ranks& ranks) {
  const std::string host = ranks.from_first(host_name());
  if (ranks.rank() == ranks.lead() && host != host_name()) {
    log::info("[ranks] ranks from {} of {} train here; rank 0 on {} speaks for all: {}",
              ranks.rank(), ranks.size(), host, (run_dir / "train.log").string());
  }
  if (!ranks.is_first()) log::set_level(log::Level::kError);
}

}  // namespace

TrainConfig agree(const TrainConfig& own, const Ranks& ranks) {
  TrainConfig config = own;
  config.output.directory = ranks.from_first(own.output.directory.string());
  leave_speaking_to_first(config.output.directory, ranks);
  config.output.resume = ranks.from_first(own.output.resume);
  // Each rank has read it from its own disk.
  ranks.require_same("system message", settings::short_form(own.data.system), host_name());
  // Whoever answers with the model needs the text: its file may be gone, or on another machine.
  if (!own.data.system.empty()) config.args["system"] = own.data.system;
  return config;
}

}  // namespace danlu::train
