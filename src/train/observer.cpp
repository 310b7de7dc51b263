#include "train/observer.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "train/report/banner.h"
#include "train/report/console.h"
#include "train/report/curve_picture.h"
#include "train/report/log_lines.h"
#include "train/report/megatron_line.h"
#include "train/report/metrics_log.h"
#include "train/report/model_card.h"
#include "train/report/sparkline.h"
#include "train/report/tfevents.h"

namespace danlu::train {
namespace {

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
  RunReporter(const TrainConfig& config, const RunPlan& plan, int64_t start_step,
              RunDescription description, DirectoryHold hold)
      : config_(config),
        plan_(plan),
        description_(std::move(description)),
        hold_(std::move(hold)),
        run_dir_(config.output.directory),
        log_(run_dir_ / "logging.jsonl", start_step),
        console_(plan.total_steps) {
    begin_events(start_step);
  }

  Json on_step(const StepRecord& record) override {
    console_.line(console_text(record), record.step, record.elapsed_s, record.remaining_s);
    const Json line = step_json(record);
    keep(line, record.step, "train/");
    return line;
  }

  Json on_evaluation(const Evaluation& evaluation, int64_t step, int64_t total_steps,
                     double epoch) override {
    EvalRecord record;
    record.step = step;
    record.total_steps = total_steps;
    record.epoch = epoch;
    record.loss = evaluation.loss;
    record.has_loss = !evaluation.is_of_rewards;
    record.is_of_tokens = config_.objective.kind == settings::ObjectiveKind::kLanguage;
    record.metrics = evaluation.metrics;
    record.num_samples = evaluation.num_samples;
    record.seconds = evaluation.seconds;
    log::info("{}", eval_line(record));
    const Json line = eval_json(record);
    keep(line, step, "eval/");
    return line;
  }

  std::string console_text(const StepRecord& record) const {
    switch (config_.output.log_format) {
      case settings::LogFormat::kDanlu:
        break;
      case settings::LogFormat::kHf:
        return hf_step_json(record).dump();
      case settings::LogFormat::kMegatron:
        return megatron_step_line(record, plan_.global_batch_size, std::time(nullptr));
    }
    return step_line(record);
  }

  void on_slow(const std::string& line) override {
    console_.finish();
    log::info("{}", line);
  }

  void look_after_directory(const Json& history, bool needed) override {
    const auto is_gone = [&] {
      std::error_code unknown;
      return !fs::exists(run_dir_ / "args.json", unknown);
    };
    if (log_.is_there() && !is_gone() && hold_.is_ours()) return;
    // Whoever removes it may be in the middle of it.
    if (!is_lost_) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const bool all = is_gone() || !hold_.is_ours();
    try {
      if (!is_gone() && all) throw IoError(tr("another run has begun there"));
      if (all) hold_.make_again();
      log_.write_again(history);
      if (all) begin_events(0);
    } catch (const std::exception& error) {
      if (needed) throw IoError(lost(all, tr("it cannot be made again: {}", error.what())));
      if (!std::exchange(is_lost_, true)) {
        console_.finish();
        log::warning("{}", lost(all, tr("it cannot be made again: {}; until it can, nothing is "
                                        "logged there",
                                        error.what())));
      }
      return;
    }
    is_lost_ = false;
    console_.finish();
    log::warning("{}", lost(all, tr("it is made again, with all that was logged, and the training "
                                    "goes on")));
  }

  void on_finish(const RunSummary& summary) override {
    console_.finish();
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
    write_card(summary);
    log::info("finished {} steps in {}, mean loss {:.4f}",
              format_count(static_cast<uint64_t>(summary.steps)), format_duration(seconds),
              summary.mean_loss);
    show_curve();
    if (!summary.best_checkpoint.empty())
      log::info("best_model_checkpoint: {} ({})", summary.best_checkpoint.string(),
                best_of(summary));
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

  void begin_events(int64_t start_step) {
    if (!config_.output.tensorboard) return;
    const fs::path events = run_dir_ / "runs" / config_.output.run_name;
    fs::create_directories(events);
    events_.emplace(events, start_step);
  }

  /// `all`: of the directory, not of its log only.
  std::string lost(bool all, const std::string& then) const {
    return all ? tr("{}: the directory was removed or replaced during the training; the "
                    "checkpoints "
                    "and TensorBoard files in it are lost; {}",
                    run_dir_.string(), then)
               : tr("{}: the file was removed or replaced during the training; {}",
                    (run_dir_ / "logging.jsonl").string(), then);
  }

  /// Rewards are kept as losses, of which the least is best.
  double best_figure(const RunSummary& summary) const {
    if (!summary.best_metric.empty()) return summary.best_eval_loss;
    return config_.objective.is_rewarded() ? -summary.best_eval_loss : summary.best_eval_loss;
  }
  std::string best_of(const RunSummary& summary) const {
    if (!summary.best_metric.empty())
      return fmt::format("eval {} {:.4f}", summary.best_metric, best_figure(summary));
    return config_.objective.is_rewarded() ? tr("eval reward {:.4f}", best_figure(summary))
                                           : tr("eval loss {:.4f}", best_figure(summary));
  }

  void write_card(const RunSummary& summary) {
    ModelCard card;
    card.title = directory_name();
    card.base_model = description_.from_scratch ? "" : config_.model.path.string();
    card.adapter = config_.tuner == Tuner::kLora;
    card.task = stage_name(config_);
    for (const std::string& name : config_.data.train)
      card.datasets.push_back({name, description_.num_train_samples, description_.data_hash});
    card.hyperparameters = {
        {"learning rate",
         fmt::format("{:g} ({})", plan_.schedule.lr, settings::schedule_name(plan_.schedule.kind))},
        {"warm-up steps", fmt::format("{:.6g}", plan_.schedule.warmup_steps)},
        {"steps", std::to_string(summary.steps)},
        {"global batch size", std::to_string(plan_.global_batch_size)},
        {"maximum length", std::to_string(config_.data.max_length)},
        {"optimizer",
         (config_.adamw.muon
              ? fmt::format("Muon (momentum {:g}, {} Newton-Schulz steps) and ",
                            config_.adamw.muon->momentum, config_.adamw.muon->num_steps)
          : config_.adamw.is_plain()
              ? std::string()
              : fmt::format("{}, ", settings::optimizer_words(config_.adamw))) +
             fmt::format("AdamW (betas {:g}, {:g}; weight decay {:g})", config_.adamw.beta1,
                         config_.adamw.beta2, config_.adamw.groups.weight_decay)},
        {"precision", precision_name(config_.precision)},
        {"seed", std::to_string(config_.seed)}};
    card.results = {{"training loss (mean)", fmt::format("{:.4f}", summary.mean_loss)}};
    if (summary.best_step > 0)
      card.results.emplace_back(
          !summary.best_metric.empty()      ? "best evaluation " + summary.best_metric
          : config_.objective.is_rewarded() ? "best evaluation reward"
                                            : "best evaluation loss",
          fmt::format("{:.4f} (step {})", best_figure(summary), summary.best_step));
    if (config_.output.plot_loss) card.loss_picture = "images/train_loss.png";
    card.version = DANLU_VERSION;
    card.next_command = summary.next_command;
    write_model_card(run_dir_ / "README.md", card);
  }

  std::string directory_name() const {
    return fs::absolute(run_dir_).lexically_normal().filename().string();
  }
  std::string run_title() const {
    return config_.output.run_name.empty() ? directory_name() : config_.output.run_name;
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
    const auto pictures =
        draw_run_pictures(run_dir_ / "logging.jsonl", run_dir_ / "images", run_title());
    if (!pictures.empty())
      log::info("images_dir: {} ({})", (run_dir_ / "images").string(),
                pictures.front().filename().string());
  }

  const TrainConfig& config_;
  const RunPlan& plan_;
  RunDescription description_;
  DirectoryHold hold_;
  bool is_lost_ = false;
  fs::path run_dir_;
  MetricsLog log_;
  std::optional<TfEventsWriter> events_;
  TrainConsole console_;
};

}  // namespace

std::unique_ptr<RunObserver> make_observer(const TrainConfig& config, const RunPlan& plan,
                                           int64_t start_step, const RunDescription& description,
                                           DirectoryHold hold) {
  return std::make_unique<RunReporter>(config, plan, start_step, description, std::move(hold));
}

std::unique_ptr<RunObserver> make_silent_observer(DirectoryHold hold) {
  class Silent : public RunObserver {
   public:
    explicit Silent(DirectoryHold hold) : hold_(std::move(hold)) {}
    Json on_step(const StepRecord&) override { return Json::object(); }
    Json on_evaluation(const Evaluation&, int64_t, int64_t, double) override {
      return Json::object();
    }
    void on_slow(const std::string&) override {}
    void on_finish(const RunSummary&) override {}
    void look_after_directory(const Json&, bool) override { hold_.make_again(); }

   private:
    DirectoryHold hold_;
  };
  return std::make_unique<Silent>(std::move(hold));
}

}  // namespace danlu::train
