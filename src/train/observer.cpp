#include "train/observer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "train/report/curve_picture.h"
#include "train/report/log_lines.h"
#include "train/report/metrics_log.h"
#include "train/report/sparkline.h"
#include "train/report/tfevents.h"

namespace danlu::train {
namespace observer_detail {

/// Numbers of a log line under TensorBoard's names.
std::vector<std::pair<std::string, double>> scalars_of(const Json& line,
                                                       const std::string& prefix) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [key, value] : line.items()) {
    if (value.is_number() && key != "global_step")
      scalars.emplace_back(prefix + key, value.get<double>());
  }
  return scalars;
}

class RunReporter : public RunObserver {
 public:
  RunReporter(const TrainConfig& config, const RunPlan& plan, int64_t start_step)
      : config_(config),
        run_dir_(config.output.directory),
        log_(run_dir_ / "logging.jsonl", start_step) {
    if (config.output.tensorboard) {
      fs::create_directories(run_dir_ / "runs");
      events_.emplace(run_dir_ / "runs", start_step);
    }
    if (is_terminal(STDERR_FILENO))
      bar_.emplace("Train", static_cast<uint64_t>(plan.total_steps), "step", 1e9);
  }

  Json on_step(const StepRecord& record) override {
    const Json line = config_.output.hf_log_format ? hf_step_json(record) : step_json(record);
    const std::string text = config_.output.hf_log_format ? line.dump() : step_line(record);
    if (bar_) {
      bar_->update(static_cast<uint64_t>(record.step),
                   fmt::format("loss {:.4f}  {:.0f} tok/s", record.loss, record.tokens_per_s));
    }
    if (!bar_ || config_.output.hf_log_format) log::info("{}", text);
    keep(step_json(record), record.step, "train/");
    return line;
  }

  Json on_evaluation(const Evaluation& evaluation, int64_t step, int64_t total_steps,
                     double epoch) override {
    EvalRecord record;
    record.step = step;
    record.total_steps = total_steps;
    record.epoch = epoch;
    record.loss = evaluation.loss;
    record.token_accuracy = evaluation.token_accuracy;
    record.num_samples = evaluation.num_samples;
    record.seconds = evaluation.seconds;
    log::info("{}", eval_line(record));
    const Json line = eval_json(record);
    keep(line, step, "eval/");
    return line;
  }

  void on_finish(const RunSummary& summary) override {
    if (bar_) bar_->finish();
    const double seconds = summary.train_seconds;
    Json line = {{"train_runtime", seconds},
                 {"train_samples", summary.samples},
                 {"train_tokens", summary.tokens},
                 {"train_samples_per_second",
                  seconds > 0 ? static_cast<double>(summary.samples) / seconds : 0.0},
                 {"train_steps_per_second",
                  seconds > 0 ? static_cast<double>(summary.steps) / seconds : 0.0},
                 {"train_loss", summary.mean_loss},
                 {"last_model_checkpoint", summary.last_checkpoint.string()},
                 {"best_model_checkpoint", summary.best_checkpoint.string()},
                 {"model_directory", summary.model_directory.string()}};
    log_.append(line);
    write_json_file(run_dir_ / "all_results.json", line);
    log::info("finished {} steps in {}, mean loss {:.4f}",
              format_count(static_cast<uint64_t>(summary.steps)), format_duration(seconds),
              summary.mean_loss);
    show_curve();
    if (!summary.best_checkpoint.empty())
      log::info("best_model_checkpoint: {} (eval loss {:.4f})", summary.best_checkpoint.string(),
                summary.best_eval_loss);
    if (!summary.last_checkpoint.empty())
      log::info("last_model_checkpoint: {}", summary.last_checkpoint.string());
    log::info("model: {}", summary.model_directory.string());
    log::info("next: {}", summary.next_command);
  }

 private:
  void keep(const Json& line, int64_t step, const std::string& prefix) {
    log_.append(line);
    if (events_) events_->add_scalars(step, scalars_of(line, prefix));
  }

  void show_curve() {
    const auto metrics = read_metrics(run_dir_ / "logging.jsonl");
    const auto loss = metrics.find("loss");
    if (loss != metrics.end()) {
      std::vector<double> values;
      for (const auto& [step, value] : loss->second) values.push_back(value);
      if (values.size() > 1)
        log::info("loss {:.4f} {} {:.4f}", values.front(), sparkline(values), values.back());
    }
    if (!config_.output.plot_loss) return;
    const auto pictures = draw_run_pictures(run_dir_ / "logging.jsonl", run_dir_ / "images");
    if (!pictures.empty())
      log::info("images_dir: {} ({})", (run_dir_ / "images").string(),
                pictures.front().filename().string());
  }

  const TrainConfig& config_;
  fs::path run_dir_;
  MetricsLog log_;
  std::optional<TfEventsWriter> events_;
  std::optional<ProgressBar> bar_;
};

}  // namespace observer_detail

std::unique_ptr<RunObserver> make_observer(const TrainConfig& config, const RunPlan& plan,
                                           int64_t start_step) {
  return std::make_unique<observer_detail::RunReporter>(config, plan, start_step);
}

}  // namespace danlu::train
