#include <fmt/format.h>

#include <iterator>

#include "base/in_english.h"
#include "base/message.h"
#include "plan/estimate.h"

namespace danlu::plan {
namespace {

std::string gb(double bytes) {
  return bytes >= 1e8 ? fmt::format("{:.2f} GB", bytes / 1e9)
                      : fmt::format("{:.3f} MB", bytes / 1e6);
}
std::string gb(int64_t bytes) { return gb(static_cast<double>(bytes)); }

std::string split_of(const Request& request) {
  const int64_t context = request.mesh.context.size();
  return fmt::format("tp {} pp {}{} dp {} zero{} recompute {} micro-batch {} x {}",
                     request.mesh.tensor, request.mesh.pipeline,
                     context > 1 ? fmt::format(" cp {}", context) : "", request.mesh.data,
                     static_cast<int>(request.sharding), settings::recompute_text(request.recompute),
                     request.micro_batch_size, request.num_micro_batches);
}

}  // namespace

std::string Plan::limit() const {
  const Memory& memory = stages[fullest].memory;
  if (!fits())
    return memory.kept() > memory.total() / 2 ? tr("memory: state") : tr("memory: activations");
  const double pipeline = simulated.seconds * simulated.bubble;
  const auto layers = static_cast<double>(stages[fullest].stage.layers().size());
  const double tensor = request.mesh.tensor == 1
                            ? 0
                            : layers * stages[fullest].traffic.tensor_of_layer /
                                  machine.link(request.mesh.tensor).bytes_per_s *
                                  static_cast<double>(request.num_micro_batches);
  const double most = std::max({pipeline, tensor, exposed_s, optimizer_s});
  if (most < 0.1 * step_s) return tr("compute");
  if (most == pipeline) return tr("bubble");
  if (most == tensor) return tr("tensor exchanges");
  return most == exposed_s ? tr("data exchanges") : tr("optimizer");
}

std::string describe_line(const Plan& plan) {
  return fmt::format("{:<58} {:>10}  {:>9.4g} s {:>10.4g} tok/s  MFU {:>4.1f} %  {}",
                     split_of(plan.request), gb(plan.memory()), plan.step_s, plan.tokens_per_s,
                     100 * plan.mfu, plan.limit());
}

std::string describe(const Plan& plan) {
  const StagePlan& stage = plan.stages[plan.fullest];
  const Memory& memory = stage.memory;
  std::string out;
  const auto line = [&](const std::string& name, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "{:<22} {}\n", name, value);
  };
  line(tr("split"), split_of(plan.request));
  line(tr("machine"), fmt::format("{} x {}", plan.world(), plan.machine.name));
  line(tr("parameters"), fmt::format("{} ({} trained)", plan.parameters, plan.trained));
  line(tr("fullest rank"),
       tr("of stage {}: {} of {}, {}", plan.fullest, gb(memory.total()),
          gb(plan.machine.memory_bytes), plan.fits() ? tr("fits") : tr("does not fit")));
  line("  " + tr("weights"), gb(memory.weights));
  line("  " + tr("gradients"), gb(memory.gradients));
  line("  " + tr("masters"), gb(memory.masters));
  line("  " + tr("moments"), gb(memory.moments));
  line("  " + tr("activations"), tr("{} of {} passes", gb(memory.activations), stage.in_flight));
  line("  " + tr("working"), gb(memory.working));
  line("  " + tr("communication"), gb(memory.communication));
  line("  " + tr("allocator"), gb(memory.allocator));
  line(tr("sent a step and rank"),
       tr("data {}, tensor {}, context {}, pipeline {}", gb(stage.traffic.data),
          gb(stage.traffic.tensor), gb(stage.traffic.context), gb(stage.traffic.pipeline)));
  line(tr("bubble"), fmt::format("{:.1f} %", 100 * plan.simulated.bubble));
  line(tr("step"), tr("{:.4g} s: passes {:.4g}, data exchanges {:.4g}, optimizer {:.4g}",
                      plan.step_s, plan.simulated.seconds, plan.exposed_s, plan.optimizer_s));
  line(tr("speed"),
       fmt::format("{:.4g} tokens/s, MFU {:.1f} %", plan.tokens_per_s, 100 * plan.mfu));
  line(tr("limited by"), plan.limit());
  line(tr("checkpoint"), fmt::format("{}, {:.3g} s", gb(plan.checkpoint_bytes), plan.checkpoint_s));
  return out;
}

Json to_json(const Plan& plan) {
  const InEnglish stored;
  const Request& request = plan.request;
  Json json = {{"machine", plan.machine.name},
               {"devices", plan.world()},
               {"tp", request.mesh.tensor},
               {"pp", request.mesh.pipeline},
               {"cp", request.mesh.context.size()},
               {"dp", request.mesh.data},
               {"zero", static_cast<int>(request.sharding)},
               {"recompute", settings::recompute_text(request.recompute)},
               {"micro_batch_size", request.micro_batch_size},
               {"num_micro_batches", request.num_micro_batches},
               {"parameters", plan.parameters},
               {"trained", plan.trained},
               {"fits", plan.fits()},
               {"memory_bytes", plan.memory()},
               {"bubble", plan.simulated.bubble},
               {"step_s", plan.step_s},
               {"exposed_s", plan.exposed_s},
               {"optimizer_s", plan.optimizer_s},
               {"tokens_per_s", plan.tokens_per_s},
               {"mfu", plan.mfu},
               {"limit", plan.limit()},
               {"checkpoint_bytes", plan.checkpoint_bytes},
               {"checkpoint_s", plan.checkpoint_s}};
  json["stages"] = Json::array();
  for (const StagePlan& stage : plan.stages) {
    const Memory& memory = stage.memory;
    json["stages"].push_back({{"layers", stage.stage.layers().size()},
                              {"in_flight", stage.in_flight},
                              {"weights", memory.weights},
                              {"gradients", memory.gradients},
                              {"masters", memory.masters},
                              {"moments", memory.moments},
                              {"activations", memory.activations},
                              {"working", memory.working},
                              {"communication", memory.communication},
                              {"allocator", memory.allocator},
                              {"sent_data", stage.traffic.data},
                              {"sent_tensor", stage.traffic.tensor},
                              {"sent_context", stage.traffic.context},
                              {"sent_pipeline", stage.traffic.pipeline}});
  }
  return json;
}

}  // namespace danlu::plan
