// train/report/run_reporter.h: everything a run tells about itself, behind one door.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "train/report/console.h"
#include "train/report/log_lines.h"
#include "train/report/metrics_log.h"
#include "train/report/model_card.h"
#include "train/report/step_record.h"
#include "train/report/tfevents.h"

namespace danlu::train {

struct ReportOptions {
  std::filesystem::path run_dir;
  int64_t total_steps = 0;
  int64_t start_step = 0;      ///< > 0: an earlier session's files are continued from there
  bool tensorboard = true;     ///< runs/
  bool pictures = true;        ///< images/*.png and a line of blocks at the end
  bool hf_log_format = false;  ///< the line on the terminal is the dict that HF's Trainer prints
  uint64_t memory_limit_bytes = 0;
  int64_t num_devices = 1;
};

/// What the end of a run adds.
struct RunClosing {
  Json summary = Json::object();  ///< last line of logging.jsonl
  ModelCard card;
  /// Shown on the terminal in this order, e.g. {"best checkpoint", "…"}.
  std::vector<std::pair<std::string, std::string>> lines;
  std::string next_command;
};

/// Terminal, logging.jsonl, TensorBoard, pictures, model card in a run directory. Errors: IoError.
class RunReporter {
 public:
  explicit RunReporter(const ReportOptions& options);
  /// Returns the record as logging.jsonl holds it.
  Json on_step(const StepRecord& record);
  Json on_evaluation(const EvalRecord& record);
  void on_finish(RunClosing closing);

 private:
  void add_scalars(int64_t step, const Json& record);
  void draw_pictures(RunClosing& closing);
  ReportOptions options_;
  MetricsLog log_;
  std::optional<TfEventsWriter> events_;
  TrainConsole console_;
  double elapsed_s_ = 0, remaining_s_ = 0;
};

}  // namespace danlu::train
