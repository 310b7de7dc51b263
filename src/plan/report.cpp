#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

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
  std::string split = fmt::format("tp {} pp {}", request.mesh.tensor, request.mesh.pipeline);
  const int64_t runs = arch::stages_of(request.model, request.pipeline)[0].num_chunks();
  if (runs > 1) split += fmt::format(" vpp {}", runs);
  if (request.order == arch::PipelineOrder::kZeroBubble) split += " zero-bubble";
  if (context > 1) split += fmt::format(" cp {}", context);
  if (request.mesh.expert > 1) split += fmt::format(" ep {}", request.mesh.expert);
  return split + fmt::format(" dp {}", request.mesh.data);
}

std::string keeping_of(const Request& request) {
  return fmt::format("zero{}{}", static_cast<int>(request.sharding),
                     request.state_in_files ? "+offload" : "");
}

/// What takes a step's time beside the model's own operations, most first.
std::vector<std::pair<std::string, double>> costs_of(const Plan& plan) {
  std::vector<std::pair<std::string, double>> costs = {
      {tr("bubble"), plan.simulated.seconds * plan.simulated.bubble},
      {tr("tensor exchanges"), plan.parts.tensor},
      {tr("context exchanges"), plan.parts.context},
      {tr("exchanges of experts"), plan.parts.expert},
      {tr("recompute"), plan.parts.recompute},
      {tr("offload of activations"), plan.parts.offload},
      {tr("memory bandwidth"), plan.parts.moved},
      {tr("data exchanges"), plan.exposed_s},
      {tr("optimizer"), plan.optimizer_s}};
  std::stable_sort(costs.begin(), costs.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return costs;
}

std::string sent_text(const Sent& bytes) {
  if (bytes.network == 0) return gb(bytes.node);
  if (bytes.node == 0) return tr("{} by network", gb(bytes.network));
  return tr("{} in the node, {} by network", gb(bytes.node), gb(bytes.network));
}

/// Describes the experts of a model that has them.
template <typename Line>
void describe_experts(const Request& request, const Line& line) {
  if (!request.model.has_experts()) return;
  line(tr("experts"),
       tr("{} a layer and rank, {} rows of a pass{}",
          request.model.experts.count / request.expert_owners(), request.expert_rows(),
          request.expert_owners() > 1
              ? tr(" on the rank with the most ({:.3g} times the mean)", request.busiest_rank())
              : std::string()));
}

/// Describes what a sample has of pictures, and how unequal the stages are.
template <typename Line>
void describe_pictures(const Plan& plan, const Line& line) {
  const Request& request = plan.request;
  if (!request.model.vision) return;
  if (plan.stages.size() > 1) {
    std::vector<std::string> each;
    for (const StagePlan& one : plan.stages) each.push_back(gb(one.memory.total()));
    line(tr("a rank of each stage"), fmt::format("{}", fmt::join(each, ", ")));
  }
  const int64_t merge = request.model.vision->merge_size;
  std::string said = tr("{} visual tokens of a sample, {} patches",
                        request.patches / (merge * merge), request.patches);
  if (request.samples_looked_at > 0) {
    said += tr("; the most in {} samples of the data, whose mean is {:.1f} tokens",
               request.samples_looked_at, request.mean_visual_tokens);
  }
  line(tr("pictures"), said);
}

/// What the fullest rank holds, and a host.
template <typename Line>
void describe_memory(const Plan& plan, const Line& line) {
  const StagePlan& stage = plan.stages[plan.fullest];
  const Memory memory = stage.memory.in_parts();
  const int64_t rollout = stage.memory.rollout;
  line("  " + tr("weights"), gb(memory.weights));
  line("  " + tr("gradients"), gb(memory.gradients - memory.gradients_to_come));
  line("  " + tr("masters"), gb(memory.masters));
  line("  " + tr("moments"), gb(memory.moments));
  line("  " + tr("activations"), tr("{} of {} passes", gb(memory.activations), stage.in_flight));
  line("  " + tr("working"), gb(memory.working));
  line("  " + tr("communication"), gb(memory.communication));
  line("  " + tr("allocator"), gb(memory.allocator));
  if (rollout > 0) line("  " + tr("of a rollout"), tr("{} in place of passes", gb(rollout)));
  if (plan.host_bytes > 0)
    line(tr("memory of a host"),
         fmt::format("{} / {}", gb(plan.host_bytes), gb(plan.machine.host_bytes)));
}

}  // namespace

std::string Plan::limit() const {
  const Memory& memory = stages[fullest].memory;
  if (!fits()) {
    if (static_cast<double>(this->memory()) <= machine.memory_bytes) return tr("host memory");
    return memory.kept() > memory.total() / 2 ? tr("memory: state") : tr("memory: activations");
  }
  const auto [name, seconds] = costs_of(*this)[0];
  if (seconds < 0.1 * step_s) return tr("compute");
  return fmt::format("{} {:.0f} %", name, 100 * seconds / step_s);
}

std::string describe_head() {
  return fmt::format("{:<30} {:<13} {:<13} {:>10} {:>9} {:>10} {:>10} {:>6}  {}", tr("split"),
                     tr("recompute"), tr("shared"), tr("passes"), tr("memory"), tr("step time"),
                     tr("tokens/s"), "MFU", tr("limited by"));
}

std::string describe_line(const Plan& plan) {
  return fmt::format(
      "{:<30} {:<13} {:<13} {:>10} {:>9} {:>8.4g} s {:>10.4g} {:>4.1f} %  {}",
      split_of(plan.request), settings::recompute_text(plan.request.recompute),
      keeping_of(plan.request),
      fmt::format("{} x {}", plan.request.num_micro_batches, plan.request.micro_batch_size),
      fmt::format("{:.1f} GB", static_cast<double>(plan.memory()) / 1e9), plan.step_s,
      plan.tokens_per_s, 100 * plan.mfu, plan.limit());
}

std::string describe(const Plan& plan) {
  const StagePlan& stage = plan.stages[plan.fullest];
  const Request& request = plan.request;
  std::string out;
  const auto line = [&](const std::string& name, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "{:<22} {}\n", name, value);
  };
  line(tr("split"), fmt::format("{} {} recompute {} micro-batch {} x {}", split_of(request),
                                keeping_of(request), settings::recompute_text(request.recompute),
                                request.micro_batch_size, request.num_micro_batches));
  line(tr("samples"),
       tr("{} tokens each, {}", request.tokens, settings::precision_name(request.precision)));
  line(tr("machine"), fmt::format("{} x {}", plan.world(), plan.machine.name));
  line(tr("parameters"), fmt::format("{} ({} trained)", plan.parameters, plan.trained));
  describe_pictures(plan, line);
  describe_experts(request, line);
  line(tr("fullest rank"),
       tr("of stage {}: {} of {}, {}", plan.fullest, gb(stage.memory.total()),
          gb(plan.machine.memory_bytes), plan.fits() ? tr("fits") : tr("does not fit")));
  describe_memory(plan, line);
  line(tr("sent a step and rank"), gb(stage.data.all() + stage.tensor.all() + stage.context.all() +
                                      stage.expert.all() + stage.pipeline.all()));
  line("  " + tr("data axis"), sent_text(stage.data));
  line("  " + tr("tensor axis"), sent_text(stage.tensor));
  line("  " + tr("context axis"), sent_text(stage.context));
  if (request.mesh.expert > 1) line("  " + tr("expert axis"), sent_text(stage.expert));
  line("  " + tr("pipeline axis"), sent_text(stage.pipeline));
  line(tr("bubble"), fmt::format("{:.1f} %", 100 * plan.simulated.bubble));
  line(tr("step time"), tr("{:.4g} s: passes {:.4g}, data exchanges {:.4g}, optimizer {:.4g}",
                           plan.step_s, plan.simulated.seconds, plan.exposed_s, plan.optimizer_s));
  line("  " + tr("of the slowest stage"),
       tr("products {:.4g}, attention {:.4g}, memory bandwidth {:.4g}, recompute {:.4g}, tensor "
          "exchanges {:.4g}, context exchanges {:.4g}, offload of activations {:.4g}",
          plan.parts.products, plan.parts.attention, plan.parts.moved, plan.parts.recompute,
          plan.parts.tensor, plan.parts.context, plan.parts.offload));
  if (request.mesh.expert > 1)
    line("  " + tr("and of them"), tr("exchanges of experts {:.4g}", plan.parts.expert));
  line(tr("speed"),
       fmt::format("{:.4g} tokens/s, MFU {:.1f} %", plan.tokens_per_s, 100 * plan.mfu));
  line(tr("limited by"), plan.limit());
  line(tr("checkpoint"),
       tr("{}, written in {:.3g} s beside {:.1f} steps", gb(plan.checkpoint_bytes),
          plan.checkpoint_s, plan.checkpoint_s / plan.step_s));
  line(tr("restart"), tr("{} a node, read in {:.3g} s", gb(plan.restart_bytes), plan.restart_s));
  if (plan.save_steps > 0)
    line(tr("a failure"), tr("costs {:.3g} s on average, with a checkpoint every {} steps",
                             plan.failure_s(), plan.save_steps));
  return out;
}

namespace {

Json sent_json(const Sent& bytes) { return {{"node", bytes.node}, {"network", bytes.network}}; }

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

const char* name_of_order(arch::PipelineOrder order) {
  if (order == arch::PipelineOrder::kZeroBubble) return "zero_bubble";
  return order == arch::PipelineOrder::kInterleaved ? "interleaved" : "1f1b";
}

Json recompute_json(const settings::RecomputeFlags& flags) {
  return {{"granularity", flags.granularity},
          {"method", flags.method},
          {"num_layers", or_null(flags.num_layers)},
          {"activation_function", flags.activation_function},
          {"activation_function_num_layers", or_null(flags.activation_function_num_layers)},
          {"norm", flags.norm},
          {"norm_num_layers", or_null(flags.norm_num_layers)}};
}

Json offload_json(const settings::ActivationOffload& leaves) {
  const char* to = leaves.to == settings::OffloadTo::kNone   ? "none"
                   : leaves.to == settings::OffloadTo::kHost ? "host"
                                                             : "file";
  return {{"to", to},
          {"num_layers", or_null(leaves.num_layers)},
          {"input_norm", leaves.input_norm},
          {"self_attention", leaves.self_attention},
          {"post_attention_norm", leaves.post_attention_norm},
          {"mlp", leaves.mlp}};
}

/// All that a plan is made of beside the model and the machine.
Json request_json(const Request& request, int64_t runs) {
  const settings::MeshShape& mesh = request.mesh;
  return {
      {"tp", mesh.tensor},
      {"sequence_parallel", mesh.sequence_parallel},
      {"pp", mesh.pipeline},
      {"vpp", runs},
      {"order", name_of_order(request.order)},
      {"layer_list", request.pipeline.layer_list},
      {"noop_layers", request.pipeline.noop_layers},
      {"cp", mesh.context.size()},
      {"cp_ulysses", mesh.context.ulysses},
      {"cp_ring", mesh.context.ring},
      {"cp_window", mesh.context.window},
      {"dp", mesh.data},
      {"ep", mesh.expert},
      {"expert_imbalance", request.expert_imbalance},
      {"sharers", mesh.sharers},
      {"zero", static_cast<int>(request.sharding)},
      {"recompute", settings::recompute_text(request.recompute)},
      {"recompute_flags", recompute_json(request.recompute)},
      {"offload_optimizer", request.state_in_files},
      {"offload_parameters", request.parameters_in_files},
      {"activation_offload", offload_json(request.offload)},
      {"dtype", settings::precision_name(request.precision)},
      {"lora_rank", request.adapters ? Json(request.adapters->rank) : Json(nullptr)},
      {"lora_target", request.adapters ? Json(request.adapters->target_modules) : Json(nullptr)},
      {"freeze", request.freeze},
      {"tokens", request.tokens},
      {"patches", request.patches},
      {"micro_batch_size", request.micro_batch_size},
      {"num_micro_batches", request.num_micro_batches}};
}

}  // namespace

Json to_json(const Plan& plan) {
  const InEnglish stored;
  Json json = request_json(plan.request, plan.stages[0].stage.num_chunks());
  json.update({{"machine", plan.machine.name},
               {"devices", plan.world()},
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
               {"checkpoint_s", plan.checkpoint_s},
               {"restart_bytes", plan.restart_bytes},
               {"restart_s", plan.restart_s},
               {"failure_s", plan.failure_s()},
               {"host_bytes", plan.host_bytes},
               {"products_s", plan.parts.products},
               {"attention_s", plan.parts.attention},
               {"memory_bandwidth_s", plan.parts.moved},
               {"recompute_s", plan.parts.recompute},
               {"offload_s", plan.parts.offload},
               {"tensor_s", plan.parts.tensor},
               {"context_s", plan.parts.context},
               {"expert_s", plan.parts.expert}});
  json["stages"] = Json::array();
  for (const StagePlan& stage : plan.stages) {
    const Memory memory = stage.memory.in_parts();
    int64_t blocks = 0;
    for (int64_t chunk = 0; chunk < stage.stage.num_chunks(); ++chunk) {
      const arch::LayerRange range = stage.stage.blocks_of(chunk);
      blocks += range.end - range.first;
    }
    json["stages"].push_back({{"layers", stage.stage.layers().size()},
                              {"blocks", blocks},
                              {"in_flight", stage.in_flight},
                              {"weights", memory.weights},
                              {"gradients", memory.gradients},
                              {"masters", memory.masters},
                              {"moments", memory.moments},
                              {"activations", memory.activations},
                              {"working", memory.working},
                              {"gradients_to_come", memory.gradients_to_come},
                              {"communication", memory.communication},
                              {"rollout", stage.memory.rollout},
                              {"allocator", memory.allocator},
                              {"sent_data", sent_json(stage.data)},
                              {"sent_tensor", sent_json(stage.tensor)},
                              {"sent_context", sent_json(stage.context)},
                              {"sent_expert", sent_json(stage.expert)},
                              {"sent_pipeline", sent_json(stage.pipeline)}});
  }
  return json;
}

}  // namespace danlu::plan
