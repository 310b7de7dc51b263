#include "train/report/banner.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/cpu_affinity.h"
#include "base/message.h"
#include "base/progress.h"
#include "data/preprocess_report.h"
#include "device/select.h"
#include "parallel/agree.h"
#include "train/precision.h"
#include "train/report/shown_sample.h"

namespace danlu::train {
namespace {

void add_line(std::string& out, const char* label, const std::string& text) {
  out += fmt::format("{:>11}  {}\n", translated(label), text);
}

/// A sample as the model sees it, where rows were not reported by the data pipeline.
std::string first_sample(const PreparedText& text, const PreparedData& data) {
  if (!data.report.sample.empty()) return data.report.sample;
  data::Sample sample = data.train->get(data.order(0));
  constexpr size_t kShown = 256;
  if (sample.ids.size() > kShown) sample.ids.resize(kShown);
  if (sample.labels.size() > kShown) sample.labels.resize(kShown);
  return data::describe_sample(text.tokenizer.get(), sample.ids, sample.labels);
}

std::string reasons(const std::vector<data::ReasonCount>& counts) {
  std::string text;
  for (const data::ReasonCount& count : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        format_count(static_cast<uint64_t>(count.count)),
                        translated_filled(count.reason));
    if (!count.examples.empty()) text += " (" + translated_filled(count.examples.front()) + ")";
  }
  return text;
}

std::string profile_line(const ProfileInForce& profile) {
  if (profile.by.empty()) return profile.name;
  return tr("{}, chosen by {}: {} settings, which --print_config shows", profile.name, profile.by,
            profile.num_values) +
         (profile.by == "--profile" ? std::string() : tr("; --profile NAME chooses others"));
}

std::string optimizer_line(const TrainConfig& config, const RunPlan& plan) {
  const auto& schedule = plan.schedule;
  if (const auto& muon = config.adamw.muon) {
    return tr(
        "Muon (momentum {:.3g}{}, {} steps {}, scale {} x {:.3g}), AdamW of vectors, "
        "embeddings and head; lr {:.3g} {}, warm-up {:.6g} steps, min {:.3g}, decay {:.3g}, "
        "clip {:.3g}",
        muon->momentum, muon->nesterov ? ", Nesterov" : "", muon->num_steps, muon->coefficients,
        muon->scale_mode, muon->extra_scale, schedule.lr, settings::schedule_name(schedule.kind),
        schedule.warmup_steps, schedule.min_lr, config.adamw.groups.weight_decay,
        config.max_grad_norm);
  }
  const std::string named = settings::optimizer_words(config.adamw);
  if (!named.empty()) {
    return tr("{}; lr {:.3g} {}, warm-up {:.6g} steps, min {:.3g}, decay {:.3g}, clip {:.3g}",
              named, schedule.lr, settings::schedule_name(schedule.kind), schedule.warmup_steps,
              schedule.min_lr, config.adamw.groups.weight_decay, config.max_grad_norm);
  }
  return tr("AdamW lr {:.3g} {}, warm-up {:.6g} steps, min {:.3g}, decay {:.3g}, clip {:.3g}",
            schedule.lr, settings::schedule_name(schedule.kind), schedule.warmup_steps,
            schedule.min_lr, config.adamw.groups.weight_decay, config.max_grad_norm);
}

/// "12", or "11.5" where an epoch has no whole number of steps.
std::string steps_of_an_epoch(double steps) {
  const auto whole = static_cast<uint64_t>(std::llround(steps));
  return std::abs(steps - static_cast<double>(whole)) < 0.05 ? format_count(whole)
                                                             : fmt::format("{:.1f}", steps);
}

void add_run(const TrainConfig& config, bool all, std::string& out) {
  const std::string run =
      fmt::format("danlu {} · {} · {}", config.verb, stage_name(config), tuner_name(config.tuner));
  add_line(out, "run", all ? run : tr("{}, output {}", run, config.output.directory.string()));
  if (all || !config.profile.by.empty()) add_line(out, "defaults", profile_line(config.profile));
}

void add_device(const TrainConfig& config, const at::Device& device, bool all, std::string& out) {
  const std::string binding = describe_binding();
  const std::string line = tr("{}, {} threads, {}", device::name_of(device), at::get_num_threads(),
                              precision_name(config.precision)) +
                           (binding.empty() ? "" : "; " + binding);
  const std::string processor = device::describe_products(device, scalar_type_of(config.precision));
  add_line(out, "device", all || processor.empty() ? line : line + "; " + processor);
  if (all && !processor.empty()) add_line(out, "processor", processor);
}

void add_model(const TrainConfig& config, const arch::ModelConfig& model,
               const std::string& weights, bool all, std::string& out) {
  const std::string shape =
      tr("({}, {} layers, hidden {}, vocabulary {})", model.family, model.num_layers,
         model.hidden_size, format_count(static_cast<uint64_t>(model.vocab_size)));
  const auto& place = config.model.from_scratch ? config.model.companions : config.model.path;
  // What was loaded names its place itself.
  const std::string named = place.empty() ? tr("described by flags") : place.string();
  if (all || config.model.from_scratch) add_line(out, "model", named + " " + shape);
  add_line(out, "weights", all || config.model.from_scratch ? weights : weights + " " + shape);
}

/// "" where no rows were read.
std::string counts_of(const data::PreprocessReport& report) {
  if (report.rows_read == 0) return "";
  return tr("{} read, {} kept, {} dropped", format_count(static_cast<uint64_t>(report.rows_read)),
            format_count(static_cast<uint64_t>(report.rows_kept)),
            format_count(static_cast<uint64_t>(report.rows_dropped())));
}

void add_validation(const data::PreprocessReport& report, std::string& out) {
  std::string line = counts_of(report);
  if (line.empty()) return;
  if (!report.dropped.empty()) line += tr("; dropped: {}", reasons(report.dropped));
  if (!report.truncated.empty()) line += tr("; truncated: {}", reasons(report.truncated));
  add_line(out, "held out", line);
}

void add_data(const TrainConfig& config, const PreparedData& data, bool all, std::string& out) {
  // They were said when they were opened.
  for (size_t i = 0; all && i < data.report.datasets.size(); ++i)
    add_line(out, "data", translated_filled(data.report.datasets[i]));
  const std::string rows = counts_of(data.report);
  add_line(out, "samples",
           all || rows.empty() ? data.description : tr("{}; rows: {}", data.description, rows));
  if (all && !rows.empty()) add_line(out, "rows", rows);
  if (!data.report.dropped.empty()) add_line(out, "dropped", reasons(data.report.dropped));
  if (!data.report.truncated.empty()) add_line(out, "truncated", reasons(data.report.truncated));
  add_validation(data.validation_report, out);
  add_line(
      out, "lengths",
      tr("mean {:.1f} ± {:.1f}, min {}, max {} tokens; limit {}", data.lengths.mean(),
         data.lengths.deviation(), data.lengths.min, data.lengths.max, config.data.max_length));
}

}  // namespace

std::string data_banner(const BannerFacts& facts, bool all) {
  const auto& [config, device, model, weights, text, data, plan] = facts;
  std::string out;
  add_run(config, all, out);
  add_device(config, device, all, out);
  add_model(config, model, weights, all, out);
  if (data.all_tokenised_with_one) {
    add_line(out, "template", tr("{} (of the tokenised files)", data.tokenised_with));
  } else if (text.encoder) {
    add_line(out, "template", text.encoder->description());
  }
  add_data(config, data, all, out);
  add_line(out, "batch",
           plan.batch_arithmetic + (config.shares_passes()
                                        ? tr("; forward passes of up to {} tokens",
                                             config.longest_sample() * plan.micro_batch_size)
                                        : ""));
  const std::string steps =
      tr("{} ({} an epoch; {:.2f} epochs)", format_count(static_cast<uint64_t>(plan.total_steps)),
         steps_of_an_epoch(plan.steps_of_an_epoch), plan.epochs());
  add_line(out, "steps", all ? steps : steps + "; " + optimizer_line(config, plan));
  if (all) add_line(out, "optimizer", optimizer_line(config, plan));
  if (all) add_line(out, "output", config.output.directory.string());
  const std::string sample = first_sample(text, data);
  return out + tr("one sample, as trained on (masked spans in brackets):\n") +
         (all ? sample : shown_sample(sample));
}

std::string parameter_line(const models::CausalLM& model) {
  struct Counts {
    int64_t common = 0, of_experts = 0;
  } every, trained;
  for (const auto& list : {model.parameters(), model.adapter_parameters()}) {
    for (const auto& parameter : list) {
      if (model.stage().is_copy(parameter.spec)) continue;
      for (Counts* counts : {&every, &trained}) {
        if (counts == &trained && !parameter.trainable) continue;
        const int64_t fixed = counts == &trained && parameter.fixed
                                  ? parameter.fixed->rows * parameter.fixed->cols
                                  : 0;
        (parameter.spec.expert < 0 ? counts->common : counts->of_experts) +=
            parameter.whole_numel() - fixed;
      }
    }
  }
  const int64_t all = model.mesh().sum_over_stages(every.common, every.of_experts),
                trainable = model.mesh().sum_over_stages(trained.common, trained.of_experts);
  return tr("trainable params: {} || all params: {} || trainable%: {:.4f}",
            format_count(static_cast<uint64_t>(trainable)),
            format_count(static_cast<uint64_t>(all)),
            all ? 100.0 * static_cast<double>(trainable) / static_cast<double>(all) : 0.0);
}

std::string stage_name(const TrainConfig& config) {
  return config.objective.name.empty() ? task_name(config.task) : config.objective.name;
}

}  // namespace danlu::train
