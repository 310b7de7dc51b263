#include "train/report/run_reporter.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "train/report/curve_picture.h"
#include "train/report/sparkline.h"

namespace danlu::train {

RunReporter::RunReporter(const ReportOptions& options)
    : options_(options),
      log_(options.run_dir / "logging.jsonl", options.start_step),
      console_(options.total_steps) {
  if (options.tensorboard) events_.emplace(options.run_dir / "runs", options.start_step);
}

void RunReporter::add_scalars(int64_t step, const Json& record) {
  if (!events_) return;
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& item : record.items()) {
    if (!item.value().is_number() || item.key() == "global_step") continue;
    const bool eval = item.key().starts_with("eval_");
    scalars.emplace_back(eval ? "eval/" + item.key().substr(5) : "train/" + item.key(),
                         item.value().get<double>());
  }
  events_->add_scalars(step, scalars);
}

Json RunReporter::on_step(const StepRecord& record) {
  const Json json = step_json(record);
  elapsed_s_ = record.elapsed_s;
  remaining_s_ = record.remaining_s;
  console_.line(options_.hf_log_format
                    ? hf_step_json(record).dump()
                    : step_line(record, options_.memory_limit_bytes, options_.num_devices),
                record.step, elapsed_s_, remaining_s_);
  log_.append(json);
  add_scalars(record.step, json);
  return json;
}

Json RunReporter::on_evaluation(const EvalRecord& record) {
  const Json json = eval_json(record);
  console_.line(eval_line(record), record.step, elapsed_s_, remaining_s_);
  log_.append(json);
  add_scalars(record.step, json);
  return json;
}

void RunReporter::draw_pictures(RunClosing& closing) {
  const fs::path images = options_.run_dir / "images";
  const auto pictures = draw_run_pictures(options_.run_dir / "logging.jsonl", images);
  if (pictures.empty()) return;
  if (pictures.front().filename() == "train_loss.png")
    closing.card.loss_picture = "images/train_loss.png";
  const auto series = read_metrics(options_.run_dir / "logging.jsonl");
  if (const auto loss = series.find("loss"); loss != series.end() && loss->second.size() > 1) {
    std::vector<double> values;
    for (const auto& point : loss->second) values.push_back(point.second);
    log::info("loss {:.4f} {} {:.4f}", values.front(), sparkline(values), values.back());
  }
  log::info("loss picture: {}", pictures.front().string());
}

void RunReporter::on_finish(RunClosing closing) {
  console_.finish();
  if (options_.pictures) draw_pictures(closing);
  log_.append(closing.summary);
  write_model_card(options_.run_dir / "README.md", closing.card);
  for (const auto& [name, value] : closing.lines) log::info("{}: {}", name, value);
  if (!closing.next_command.empty()) log::info("next: {}", closing.next_command);
}

}  // namespace danlu::train
