#include "train/report/log_lines.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "base/message.h"
#include "base/progress.h"

namespace danlu::train {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

double rounded(double value, int decimals) {
  const double scale = std::pow(10.0, decimals);
  return std::isfinite(value) && std::abs(value) < 1e9 ? std::round(value * scale) / scale : value;
}

double percent_done(const StepRecord& r) {
  return r.total_steps > 0
             ? 100.0 * static_cast<double>(r.step) / static_cast<double>(r.total_steps)
             : 0;
}

/// A nan has a sign, which means nothing and would be printed.
double unsigned_nan(double value) { return std::isnan(value) ? std::fabs(value) : value; }

constexpr std::string_view kTokenAccuracy = "token_acc";  // ms-swift 2's "acc"

void put_metrics(const std::map<std::string, double>& metrics, const std::string& before,
                 Json& json) {
  for (const auto& [name, value] : metrics) {
    json[before + name] = rounded(value, 8);
    if (name == kTokenAccuracy) json[before + "acc"] = rounded(value, 8);
  }
}

/// "  acc 0.986  margin 0.1234"
std::string metrics_text(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += name == kTokenAccuracy ? fmt::format("  acc {:.3f}", value)
                                   : fmt::format("  {} {:.4g}", name, value);
  }
  return text;
}

std::string whole_count(double number) {
  return format_count(static_cast<uint64_t>(std::max(0.0, number) + 0.5));
}

/// "  mem 42.1/64.0GiB"; "" where nobody counts it.
std::string memory_text(const StepRecord& r, uint64_t limit_bytes) {
  if (r.memory_bytes == 0) return "";
  std::string text = fmt::format("  mem {:.1f}", static_cast<double>(r.memory_bytes) / kGiB);
  if (limit_bytes > 0) text += fmt::format("/{:.1f}", static_cast<double>(limit_bytes) / kGiB);
  return text + "GiB";
}

std::string fraction(int64_t step, int64_t total) { return fmt::format("{}/{}", step, total); }

}  // namespace

std::string spelled_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  const int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
  std::string text;
  if (days > 0) text += fmt::format("{}d ", days);
  if (days > 0 || hours > 0) text += fmt::format("{}h ", hours);
  if (days > 0 || hours > 0 || minutes > 0) text += fmt::format("{}m ", minutes);
  return text + fmt::format("{}s", whole % 60);
}

Json step_json(const StepRecord& r) {
  Json json;
  json["loss"] = rounded(r.loss, 8);
  put_metrics(r.metrics, "", json);
  json["grad_norm"] = rounded(r.grad_norm, 8);
  json["learning_rate"] = r.lr;
  json["epoch"] = rounded(r.epoch, 8);
  json["global_step"] = r.step;
  json["global_step/max_steps"] = fraction(r.step, r.total_steps);
  json["percentage"] = fmt::format("{:.2f}%", percent_done(r));
  json["elapsed_time"] = spelled_duration(r.elapsed_s);
  json["remaining_time"] = spelled_duration(r.remaining_s);
  if (r.memory_bytes > 0)
    json["memory(GiB)"] = rounded(static_cast<double>(r.memory_bytes) / kGiB, 2);
  if (r.host_memory_bytes > 0)
    json["host_memory(GiB)"] = rounded(static_cast<double>(r.host_memory_bytes) / kGiB, 2);
  json["train_speed(s/it)"] = rounded(r.step_s, 6);
  json["train_speed(iter/s)"] = r.step_s > 0 ? rounded(1.0 / r.step_s, 6) : 0.0;
  json["tokens_per_second"] = rounded(r.tokens_per_s, 2);
  if (r.visual_tokens_per_s > 0) {
    json["visual_tokens_per_second"] = rounded(r.visual_tokens_per_s, 2);
    json["text_tokens_per_second"] = rounded(r.tokens_per_s - r.visual_tokens_per_s, 2);
  }
  json["samples_per_second"] = rounded(r.samples_per_s, 4);
  if (r.mfu >= 0) json["mfu"] = rounded(r.mfu, 6);
  json["data_wait"] = rounded(r.data_wait, 6);
  for (const auto& [name, seconds] : r.times) json["time/" + name] = rounded(seconds, 6);
  if (r.loss_scale != 1) json["loss_scale"] = r.loss_scale;
  if (r.skipped_steps > 0) json["skipped_steps"] = r.skipped_steps;
  return json;
}

Json hf_step_json(const StepRecord& r) {
  return {{"loss", rounded(r.loss, 4)},
          {"grad_norm", r.grad_norm},
          {"learning_rate", r.lr},
          {"epoch", rounded(r.epoch, 2)}};
}

Json eval_json(const EvalRecord& r) {
  Json json;
  if (r.has_loss) json["eval_loss"] = rounded(r.loss, 8);
  put_metrics(r.metrics, "eval_", json);
  json["eval_runtime"] = rounded(r.seconds, 4);
  if (r.num_samples > 0 && r.seconds > 0) {
    json["eval_samples_per_second"] = rounded(static_cast<double>(r.num_samples) / r.seconds, 4);
  }
  if (r.num_batches > 0 && r.seconds > 0) {
    json["eval_steps_per_second"] = rounded(static_cast<double>(r.num_batches) / r.seconds, 4);
  }
  json["epoch"] = rounded(r.epoch, 8);
  json["global_step"] = r.step;
  json["global_step/max_steps"] = fraction(r.step, r.total_steps);
  return json;
}

std::string step_line(const StepRecord& r, uint64_t memory_limit_bytes, int64_t num_devices) {
  std::string line = tr("step {}  {:.2f}%  loss {:.4f}", fraction(r.step, r.total_steps),
                        percent_done(r), unsigned_nan(r.loss));
  line += metrics_text(r.metrics);
  line += std::isfinite(r.grad_norm) ? fmt::format("  gnorm {:.3f}", r.grad_norm)
                                     : tr("  gnorm skipped");
  line += fmt::format("  lr {:.3g}", r.lr);
  if (r.loss_scale != 1) line += fmt::format("  scale {:g}", r.loss_scale);
  line += memory_text(r, memory_limit_bytes);
  line += fmt::format("  {} tok/s", whole_count(r.tokens_per_s));
  if (num_devices > 1)
    line +=
        fmt::format(" ({}/dev)", whole_count(r.tokens_per_s / static_cast<double>(num_devices)));
  if (r.visual_tokens_per_s > 0) {
    line += tr(" = {} visual + {} text", whole_count(r.visual_tokens_per_s),
               whole_count(r.tokens_per_s - r.visual_tokens_per_s));
  }
  if (r.mfu >= 0) line += fmt::format("  mfu {:.1f}%", 100 * r.mfu);
  line += fmt::format("  data {:.1f}%", 100 * r.data_wait);
  for (const auto& [name, seconds] : r.times)
    line += fmt::format("  {} {:.1f}%", name, r.step_s > 0 ? 100 * seconds / r.step_s : 0.0);
  line += fmt::format("  {}<{}", format_duration(r.elapsed_s), format_duration(r.remaining_s));
  if (r.skipped_steps > 0) line += tr("  skipped {}", r.skipped_steps);
  return line;
}

std::string eval_line(const EvalRecord& r) {
  const std::string at = fraction(r.step, r.total_steps);
  std::string line =
      r.has_loss ? tr("eval {}  loss {:.4f}", at, unsigned_nan(r.loss)) : tr("eval {}", at);
  line += metrics_text(r.metrics);
  if (r.has_loss && r.is_of_tokens && std::isfinite(r.loss) && r.loss < 20)
    line += fmt::format("  ppl {:.3f}", std::exp(r.loss));
  if (r.num_samples > 0)
    line += tr("  {} samples", format_count(static_cast<uint64_t>(r.num_samples)));
  return line + "  " + format_duration(r.seconds);
}

}  // namespace danlu::train
