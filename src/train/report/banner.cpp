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

namespace danlu::train {
namespace banner_detail {

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
  return tr("AdamW lr {:.3g} {}, warm-up {} steps, min {:.3g}, decay {:.3g}, clip {:.3g}",
            schedule.lr, settings::schedule_name(schedule.kind), schedule.warmup_steps,
            schedule.min_lr, config.adamw.groups.weight_decay, config.max_grad_norm);
}

/// "12", or "11.5" where an epoch has no whole number of steps.
std::string steps_of_an_epoch(double steps) {
  const auto whole = static_cast<uint64_t>(std::llround(steps));
  return std::abs(steps - static_cast<double>(whole)) < 0.05 ? format_count(whole)
                                                             : fmt::format("{:.1f}", steps);
}

}  // namespace banner_detail

std::string data_banner(const TrainConfig& config, const at::Device& device,
                        const arch::ModelConfig& model, const std::string& weights,
                        const PreparedText& text, const PreparedData& data, const RunPlan& plan) {
  using banner_detail::add_line;
  std::string out;
  add_line(out, "run",
           fmt::format("danlu {} · {} · {}", config.verb, stage_name(config.stage),
                       tuner_name(config.tuner)));
  add_line(out, "defaults", banner_detail::profile_line(config.profile));
  const std::string binding = describe_binding();
  add_line(out, "device",
           tr("{}, {} threads, {}", device.str(), at::get_num_threads(),
              precision_name(config.precision)) +
               (binding.empty() ? "" : "; " + binding));
  const std::string processor = device::describe_products(device, scalar_type_of(config.precision));
  if (!processor.empty()) add_line(out, "processor", processor);
  add_line(out, "model",
           tr("{} ({}, {} layers, hidden {}, vocabulary {})",
              (config.model.from_scratch ? config.model.companions : config.model.path).string(),
              model.family, model.num_layers, model.hidden_size,
              format_count(static_cast<uint64_t>(model.vocab_size))));
  add_line(out, "weights", weights);
  if (data.all_tokenised_with_one) {
    add_line(out, "template", tr("{} (of the tokenised files)", data.tokenised_with));
  } else if (text.encoder) {
    add_line(out, "template", text.encoder->description());
  }
  for (const std::string& dataset : data.report.datasets)
    add_line(out, "data", translated_filled(dataset));
  add_line(out, "samples", data.description);
  if (data.report.rows_read > 0) {
    add_line(out, "rows",
             tr("{} read, {} kept, {} dropped",
                format_count(static_cast<uint64_t>(data.report.rows_read)),
                format_count(static_cast<uint64_t>(data.report.rows_kept)),
                format_count(static_cast<uint64_t>(data.report.rows_dropped()))));
  }
  if (!data.report.dropped.empty())
    add_line(out, "dropped", banner_detail::reasons(data.report.dropped));
  if (!data.report.truncated.empty())
    add_line(out, "truncated", banner_detail::reasons(data.report.truncated));
  add_line(
      out, "lengths",
      tr("mean {:.1f} ± {:.1f}, min {}, max {} tokens; limit {}", data.lengths.mean(),
         data.lengths.deviation(), data.lengths.min, data.lengths.max, config.data.max_length));
  add_line(out, "batch",
           plan.batch_arithmetic + (config.data.share_passes
                                        ? tr("; forward passes of up to {} tokens",
                                             config.data.max_length * plan.micro_batch_size)
                                        : ""));
  add_line(
      out, "steps",
      tr("{} ({} an epoch; {:.2f} epochs)", format_count(static_cast<uint64_t>(plan.total_steps)),
         banner_detail::steps_of_an_epoch(plan.steps_of_an_epoch), plan.epochs()));
  add_line(out, "optimizer", banner_detail::optimizer_line(config, plan));
  add_line(out, "output", config.output.directory.string());
  out += tr("one sample, as trained on (masked spans in brackets):\n") +
         banner_detail::first_sample(text, data);
  return out;
}

std::string parameter_line(const models::CausalLM& model) {
  int64_t all = 0, trainable = 0;
  for (const auto& list : {model.parameters(), model.adapter_parameters()}) {
    for (const auto& parameter : list) {
      if (model.stage().is_copy(parameter.spec)) continue;
      all += parameter.whole_numel();
      if (parameter.trainable) trainable += parameter.whole_numel();
    }
  }
  all = parallel::sum_of(model.mesh().pipeline(), all);
  trainable = parallel::sum_of(model.mesh().pipeline(), trainable);
  return tr("trainable params: {} || all params: {} || trainable%: {:.4f}",
            format_count(static_cast<uint64_t>(trainable)),
            format_count(static_cast<uint64_t>(all)),
            all ? 100.0 * static_cast<double>(trainable) / static_cast<double>(all) : 0.0);
}

}  // namespace danlu::train
