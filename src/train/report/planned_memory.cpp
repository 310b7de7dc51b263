#include "train/report/planned_memory.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "device/memory.h"
#include "device/select.h"
#include "ops/attention.h"
#include "ops/quantized_weight.h"
#include "parallel/agree.h"
#include "plan/fit.h"
#include "train/precision.h"

namespace danlu::train {
namespace {

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<uint64_t>(bytes)); }

/// Which of the stages the fullest is.
size_t index_of_fullest(const std::vector<plan::StageMemory>& stages) {
  size_t fullest = 0;
  for (size_t s = 1; s < stages.size(); ++s) {
    if (stages[s].memory.total() > stages[fullest].memory.total()) fullest = s;
  }
  return fullest;
}

Json planned_json(const plan::Memory& planned) {
  const plan::Memory memory = planned.in_parts();
  return {{"weights", memory.weights},
          {"gradients", memory.gradients},
          {"optimizer", memory.masters + memory.moments},
          {"activations", memory.activations},
          {"working", memory.working},
          {"gradients_to_come", memory.gradients_to_come},
          {"communication", memory.communication},
          {"rollout", planned.rollout},
          {"total", planned.total()}};
}

int64_t bytes_of_parameters(const TrainState& state) {
  const parallel::ParameterStore& store = state.gradients->store();
  int64_t bytes = store.kept_bytes();
  for (const auto& list : {state.model->parameters(), state.model->adapter_parameters()}) {
    for (const auto& parameter : list) {
      if (store.unit_of(parameter.name())) continue;
      bytes += parameter.quantized ? parameter.quantized->size_bytes()
                                   : static_cast<int64_t>(parameter.tensor.nbytes());
    }
  }
  return bytes;
}

}  // namespace

plan::Request plan_request(const TrainConfig& config, const arch::ModelConfig& model,
                           int64_t longest, const at::Device& device) {
  plan::Request request = plan::request_of(config, model, longest);
  request.widens = !device::multiplies_natively(device, scalar_type_of(config.precision));
  request.packed_columns = ops::packed_columns(scalar_type_of(config.precision));
  return request;
}

std::string memory_line(const plan::Request& request, uint64_t available_bytes) {
  const std::vector<plan::StageMemory> stages = plan::memory_by_stage(request);
  const size_t fullest = index_of_fullest(stages);
  const plan::Memory& whole = stages[fullest].memory;
  const plan::Memory memory = whole.in_parts();
  std::string line =
      tr("memory: weights {} + gradients {} + optimizer {} + activations {} + working {} = {}",
         bytes_text(memory.weights), bytes_text(memory.gradients - memory.gradients_to_come),
         bytes_text(memory.masters + memory.moments), bytes_text(memory.activations),
         bytes_text(memory.working + memory.communication), bytes_text(whole.total()));
  if (stages.size() > 1) line += tr(" (stage {} of {}, which needs most)", fullest, stages.size());
  if (available_bytes > 0) line += tr("; {} available", format_bytes(available_bytes));
  return line;
}

std::string memory_table(const plan::Request& request) {
  std::string table = tr("planned for a rank of each stage:");
  table += fmt::format("\n  {:<6}{:<16}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}", tr("stage"),
                       tr("layers"), tr("weights"), tr("gradients"), tr("optimizer"),
                       tr("activations"), tr("working"), tr("exchange"), tr("total"));
  const std::vector<plan::StageMemory> stages = plan::memory_by_stage(request);
  for (size_t s = 0; s < stages.size(); ++s) {
    const plan::Memory memory = stages[s].memory.in_parts();
    std::string layers;
    for (int64_t chunk = 0; chunk < stages[s].stage.num_chunks(); ++chunk) {
      const arch::LayerRange range = stages[s].stage.layers_of(chunk);
      if (range.end > range.first)
        layers += fmt::format("{}{}-{}", layers.empty() ? "" : ",", range.first, range.end - 1);
    }
    table += fmt::format("\n  {:<6}{:<16}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}", s, layers,
                         bytes_text(memory.weights),
                         bytes_text(memory.gradients - memory.gradients_to_come),
                         bytes_text(memory.masters + memory.moments),
                         bytes_text(memory.activations), bytes_text(memory.working),
                         bytes_text(memory.communication), bytes_text(stages[s].memory.total()));
  }
  return table;
}

ChosenRecompute choose_recompute(const TrainConfig& config, const plan::Request& request,
                                 uint64_t available_bytes) {
  if (available_bytes == 0) {
    throw UsageError(tr("[train] {} auto: how much memory there is, is not known here",
                        config.flag("recompute")),
                     tr("danlu plan --machine NAME --recompute auto says what fits a machine; "
                        "give --recompute what it says"));
  }
  // What is no tensor, such as libraries' buffers and what an allocator cannot use: 0.5 GB were
  // seen beside 2.4 planned.
  constexpr uint64_t kOfNoTensor = uint64_t{256} << 20;
  const uint64_t room = available_bytes - available_bytes / 8;
  const auto available = static_cast<int64_t>(room > kOfNoTensor ? room - kOfNoTensor : 0);
  const plan::RecomputeChoice choice = plan::least_recompute(request, available);
  return {choice.flags, tr("recompute auto: {}", plan::explain(choice, available))};
}

namespace {

/// " instead of --use-distributed-optimizer": what of the line says otherwise than `fit`.
std::string in_place_of(const TrainConfig& config, const plan::Request& request,
                        const plan::Fit& fit) {
  std::vector<std::string> flags;
  const auto name = [&](std::initializer_list<const char*> options) {
    for (const char* option : options) {
      if (config.given_as.count(option)) flags.push_back(config.flag(option));
    }
  };
  if (fit.request.sharding != request.sharding)
    name({"use_distributed_optimizer", "deepspeed", "fsdp"});
  if (fit.request.recompute != request.recompute)
    name({"gradient_checkpointing", "recompute_activations"});
  return flags.empty() ? "" : tr(" instead of {}", fmt::format("{}", fmt::join(flags, ", ")));
}

}  // namespace

void require_memory(const TrainConfig& config, const plan::Request& request,
                    uint64_t available_bytes) {
  if (available_bytes == 0) return;
  const auto available = static_cast<int64_t>(available_bytes);
  const int64_t needed = plan::fullest_of(request).memory.total();
  if (needed <= available) return;
  plan::Fit least;
  const std::optional<plan::Fit> fit =
      plan::nearest_fit(request, available, /*may_adapt=*/!config.model.from_scratch, &least);
  const std::string forced = tr("--no-plan-check starts it all the same");
  throw MemoryError(
      tr("[train] a process will need {}, and {} are available to it", bytes_text(needed),
         bytes_text(available)),
      fit ? tr("{}{} fits, in {}; {}", fit->flags, in_place_of(config, request, *fit),
               bytes_text(fit->bytes), forced)
          : tr("the least that settings of a pass leave is {} ({}): share the model out over more "
               "processes (--tp, --pp, --shard zero3), or take a smaller one; {}",
               bytes_text(least.bytes), least.flags.empty() ? tr("as it is") : least.flags,
               forced));
}

std::string allocator_words(const device::AllocatorFigures& figures) {
  std::string words = tr("; its allocator held {}", bytes_text(figures.held));
  if (figures.retries > 0) {
    words += tr(", and gave memory back {} times to find room: it is in pieces, or nearly full",
                figures.retries);
  }
  return words;
}

CountedMemory::CountedMemory(const at::Device& device)
    : device_(device), counts_(device::count_memory(device)) {}

void CountedMemory::begin_step(const TrainState& state) {
  if (!counts_) return;
  weights_ = bytes_of_parameters(state);
  gradients_ = state.gradients->kept_bytes();
  optimizer_ = state.optimizer->state_bytes();
  before_ = device::memory(device_) + state.gradients->absent_bytes();
  device::reset_peak_memory(device_);
}

void CountedMemory::end_step(int64_t steps, const plan::Request& request, const TrainState& state,
                             const Ranks& ranks, const std::filesystem::path& run_dir) {
  if (!counts_) return;
  counts_ = false;
  const auto of_all = [&](int64_t number) { return parallel::numbers_of_all(ranks.all(), number); };
  const auto weights = of_all(weights_), gradients = of_all(gradients_),
             optimizer = of_all(optimizer_), before = of_all(before_),
             peak = of_all(device::peak_memory(device_)),
             stage = of_all(state.model->mesh().stage());
  const auto allocator = device::allocator_figures(device_);
  const auto held = of_all(allocator ? allocator->held : 0),
             retries = of_all(allocator ? allocator->retries : 0);
  if (!ranks.is_first()) return;
  const std::vector<plan::StageMemory> stages = plan::memory_by_stage(request);
  Json json = Json::array();
  for (size_t rank = 0; rank < peak.size(); ++rank) {
    json.push_back({{"rank", rank},
                    {"stage", stage[rank]},
                    {"planned", planned_json(stages[static_cast<size_t>(stage[rank])].memory)},
                    {"counted",
                     {{"weights", weights[rank]},
                      {"gradients", gradients[rank]},
                      {"optimizer", optimizer[rank]},
                      {"pass", peak[rank] - before[rank]},
                      {"total", peak[rank]}}}});
    if (allocator) json.back()["allocator"] = {{"held", held[rank]}, {"retries", retries[rank]}};
  }
  write_json_file(run_dir / "memory.json", {{"ranks", json}});
  const auto most = static_cast<size_t>(std::max_element(peak.begin(), peak.end()) - peak.begin());
  const plan::Memory& planned = stages[static_cast<size_t>(stage[most])].memory;
  const std::string figures =
      allocator ? allocator_words({held[most], retries[most]}) : std::string();
  if (steps == 1) {
    log::info("memory: the first step took {}, planned {}{}", bytes_text(peak[most]),
              bytes_text(planned.total()), figures);
  } else {
    log::info("memory: the first {} steps and rollouts took {}, planned {}{}", steps,
              bytes_text(peak[most]), bytes_text(planned.total()), figures);
  }
}

}  // namespace danlu::train
