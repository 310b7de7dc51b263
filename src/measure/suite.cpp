#include "measure/suite.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/stream.h"
#include "measure/decoding.h"
#include "measure/ops_table.h"
#include "measure/training_step.h"

namespace danlu::measure {
namespace {

using bench::Row;

constexpr double kSlowedBy = 0.2;

const char* name_of(at::ScalarType type) {
  return type == at::kBFloat16 ? "bf16" : type == at::kHalf ? "fp16" : "fp32";
}

StepShape step_shape(bool quick) {
  if (!quick) return {};
  // Large enough that gradients and weights are not in a cache.
  return {.vocab = 32000,
          .hidden = 384,
          .layers = 2,
          .heads = 6,
          .kv_heads = 2,
          .ffn = 1024,
          .batch = 2,
          .sequence = 64};
}

OpShapes op_shapes(bool quick) {
  if (!quick) return {};
  return {.tokens = 128,
          .sequences = 2,
          .long_tokens = 256,
          .head_tokens = 32,
          .cold_bytes = 16e6,
          .hidden = 256,
          .ffn = 704,
          .heads = 4,
          .kv_heads = 2,
          .vocab = 8000};
}

std::string id_of(const std::string& name, at::ScalarType type) {
  return name + "." + name_of(type);
}

/// What rows in succession share: there as long as one of them is.
template <typename T>
std::function<std::shared_ptr<T>()> shared_by_rows(std::function<std::shared_ptr<T>()> make) {
  return [make = std::move(make), kept = std::make_shared<std::weak_ptr<T>>()] {
    std::shared_ptr<T> held = kept->lock();
    if (!held) *kept = held = make();
    return held;
  };
}

/// The whole update belongs to a step, and is measured there.
std::vector<OpMaker> steps_of(bool quick, at::ScalarType type, const at::Device& device) {
  const auto shared = shared_by_rows<TrainingStep>(
      [=] { return std::make_shared<TrainingStep>(step_shape(quick), type, device); });
  const auto of = [=](const char* name, const char* group,
                      bench::Work (TrainingStep::*work)() const, double tokens_of,
                      std::function<void(TrainingStep&)> run) {
    return OpMaker{name, group, type,
                   [=] {
                     const auto held = shared();

                     return Op{name,
                               group,
                               type,
                               ((*held).*work)(),
                               [=]() -> std::function<void()> { return [=] { run(*held); }; },
                               tokens_of * held->tokens()};
                   },
                   /*shares_model=*/true};
  };
  return {of("step", bench::kTraining, &TrainingStep::work, 1, [](TrainingStep& s) { s.run(); }),
          of("adamw", bench::kOptimizer, &TrainingStep::update_work, 0,
             [](TrainingStep& s) { s.update(); }),
          of("gradient_norm", bench::kOptimizer, &TrainingStep::norm_work, 0,
             [](TrainingStep& s) { s.gradient_norm(); })};
}

std::vector<OpMaker> decodes_of(bool quick, at::ScalarType type, const at::Device& device) {
  const int64_t context = quick ? 16 : 64, many = 16, prompt = quick ? 64 : 512;
  const auto model_of = shared_by_rows<models::CausalLM>([=] {
    return std::shared_ptr<models::CausalLM>(
        random_model(config_of(step_shape(quick)), type, device));
  });
  const auto decode = [=](const std::string& name, int64_t sequences) {
    return OpMaker{name, bench::kDecoding, type,
                   [=] {
                     const auto model = model_of();
                     const auto decoding = std::make_shared<Decoding>(*model, sequences, context);
                     return Op{name,
                               bench::kDecoding,
                               type,
                               decoding->work(),
                               [model, decoding]() -> std::function<void()> {
                                 return [decoding] { decoding->token_again(); };
                               },
                               static_cast<double>(sequences)};
                   },
                   /*shares_model=*/true};
  };
  return {decode("decode", 1),
          decode("decode_16_sequences", many),
          {"prefill", bench::kDecoding, type,
           [=] {
             const auto model = model_of();
             return Op{"prefill",
                       bench::kDecoding,
                       type,
                       prefill_work(*model, prompt),
                       [=]() -> std::function<void()> { return [=] { prefill(*model, prompt); }; },
                       static_cast<double>(prompt)};
           },
           /*shares_model=*/true}};
}

std::vector<OpMaker> all_makers(const SuiteOptions& options) {
  std::vector<OpMaker> all;
  const auto wants = [&](const char* part) {
    return std::find(options.parts.begin(), options.parts.end(), part) != options.parts.end();
  };
  const auto add = [&](std::vector<OpMaker> more) {
    for (OpMaker& maker : more) {
      const std::string id = id_of(maker.name, maker.type);
      if (options.only.empty() ||
          std::find(options.only.begin(), options.only.end(), id) != options.only.end())
        all.push_back(std::move(maker));
    }
  };
  for (const at::ScalarType type : options.types) {
    if (wants("ops")) add(ops_of_a_step(op_shapes(options.quick), type));
    if (wants("step")) add(steps_of(options.quick, type, options.device));
    if (wants("decode")) add(decodes_of(options.quick, type, options.device));
  }
  return all;
}

/// Seconds of one call: of as many as fill a moment the fastest, as of the gauge's slices the best
/// counts; a neighbour who fills the caches or the memory's channels for a while slows the others.
double timed(const Op& op, const Stopwatch& watch, double at_least_s, double slowed_by,
             const at::Device& device) {
  constexpr size_t kMostCalls = 500;
  double fastest = 1e30;
  size_t calls = 0;
  double all = 0;
  do {
    const std::function<void()> run = op.prepare();
    const device::Stream stream = device::Stream::current(device);
    stream.synchronize();
    const double begin = watch.now();
    run();
    stream.synchronize();
    double seconds = watch.now() - begin;
    const double until = begin + seconds * (1 + slowed_by);
    while (slowed_by > 0 && watch.now() < until) seconds = until - begin;
    fastest = std::min(fastest, seconds);
    ++calls;
    all += seconds;
  } while (all < at_least_s && calls < kMostCalls);
  return fastest;
}

Row measured(const Op& op, const SuiteOptions& options, Gauge& gauge,
             std::vector<bench::Limits>& readings) {
  // A thread that waits for a card takes no processor seconds.
  const Stopwatch watch(options.device.is_cpu() ? options.threads : 2);
  const bool is_slowed =
      !options.slowed.empty() && id_of(op.name, op.type).rfind(options.slowed, 0) == 0;
  const double slowed_by = is_slowed ? kSlowedBy : 0;
  const double moment_s = options.quick ? 0.003 : 0.02;
  // The first calls fill caches, of memory and of kernels that are made at run time.
  const auto run = [&](double at_least_s, double slowed) {
    return timed(op, watch, at_least_s, slowed, options.device);
  };
  double once = run(0, 0);
  for (double all = once; all < 0.1 && all < 3 * once; all += once) once = run(0, 0);
  bench::Sampling sampling;
  sampling.samples = options.quick || once > 0.5 ? 3 : once > 0.005 ? 5 : 9;
  sampling.attempts = options.quick ? 1 : 4;
  Row row{op.name, op.group, name_of(op.type), op.work, op.tokens, {}};
  row.samples = bench::take_samples(
      op.work, [&] { return run(moment_s, slowed_by); },
      [&] {
        readings.push_back(gauge.read());
        return readings.back();
      },
      sampling);
  return row;
}

}  // namespace

bool belongs(const bench::Row& row, const SuiteOptions& options) {
  const bool is_step = row.group == bench::kTraining || row.group == bench::kOptimizer;
  const std::string part = is_step ? "step" : row.group == bench::kDecoding ? "decode" : "ops";
  const auto has = [](const auto& list, const auto& is) {
    return std::any_of(list.begin(), list.end(), is);
  };
  return has(options.parts, [&](const std::string& wanted) { return wanted == part; }) &&
         has(options.types, [&](at::ScalarType type) { return name_of(type) == row.dtype; });
}

bench::Report run_suite(const SuiteOptions& options, Gauge& gauge, const Progress& progress) {
  const std::vector<OpMaker> makers = all_makers(options);
  if (!options.slowed.empty() && options.only.empty() &&
      std::none_of(makers.begin(), makers.end(), [&](const OpMaker& maker) {
        return id_of(maker.name, maker.type).rfind(options.slowed, 0) == 0;
      })) {
    throw UsageError(
        tr("[DANLU_BENCH_SLOW] nothing that is measured begins with '{}'", options.slowed));
  }
  bench::Report report;
  // Limits of their own, also where nothing else is measured.
  for (int i = 0; i < 5; ++i) report.readings.push_back(gauge.read());
  Op op;
  for (size_t i = 0; i < makers.size(); ++i) {
    progress(id_of(makers[i].name, makers[i].type), i, makers.size());
    if (!makers[i].shares_model) op = {};  // before the next takes memory
    op = makers[i].make();
    report.rows.push_back(measured(op, options, gauge, report.readings));
  }
  if (!makers.empty()) progress("", makers.size(), makers.size());
  return report;
}

}  // namespace danlu::measure
