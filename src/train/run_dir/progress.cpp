#include "train/run_dir/progress.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "device/select.h"

namespace danlu::train {
namespace {

Json window_json(const LogWindow& window) {
  Json metrics = Json::object();
  for (const auto& [name, metric] : window.metrics)
    metrics[name] = {{"sum", metric.sum}, {"steps", metric.steps}};
  Json json = {{"steps", window.steps},
               {"tokens", window.tokens},
               {"samples", window.samples},
               {"counted", window.counted},
               {"loss", window.loss},
               {"metrics", metrics},
               {"seconds", window.seconds},
               {"wait_s", window.wait_s},
               {"visual_tokens", window.visual_tokens}};
  if (!window.times.empty()) json["times"] = window.times;
  return json;
}

LogWindow window_from(const Json& saved) {
  LogWindow window;
  window.steps = saved.at("steps").get<int64_t>();
  window.tokens = saved.at("tokens").get<int64_t>();
  window.samples = saved.at("samples").get<int64_t>();
  window.counted = saved.at("counted").get<int64_t>();
  window.loss = saved.at("loss").get<double>();
  // Until the 28th of November 2026 there was one metric.
  if (saved.contains("accuracy"))
    window.metrics["token_acc"] = {saved["accuracy"].get<double>(), window.counted};
  const Json metrics = saved.value("metrics", Json::object());
  for (const auto& [name, metric] : metrics.items()) {
    // What is not finite is null in JSON.
    const Json& sum = metric.at("sum");
    window.metrics[name] = {sum.is_null() ? std::nan("") : sum.get<double>(),
                            metric.at("steps").get<int64_t>()};
  }
  window.seconds = saved.at("seconds").get<double>();
  window.wait_s = saved.at("wait_s").get<double>();
  window.visual_tokens = saved.value("visual_tokens", int64_t{0});
  window.times = saved.value("times", std::map<std::string, double>());
  return window;
}

/// What is not finite is null in JSON.
Json loss_json(double loss) { return std::isfinite(loss) ? Json(loss) : Json(nullptr); }

double loss_from(const Json& saved, const char* key, double otherwise) {
  if (!saved.contains(key)) return otherwise;
  return saved.at(key).is_null() ? std::numeric_limits<double>::infinity()
                                 : saved.at(key).get<double>();
}

}  // namespace

void LogWindow::add(const StepResult& result, double step_s, double data_wait_s,
                    const std::map<std::string, double>& step_times) {
  ++steps;
  tokens += result.num_tokens;
  samples += result.num_samples;
  seconds += step_s;
  wait_s += data_wait_s + result.pixels_wait_s;
  visual_tokens += result.num_visual_tokens;
  for (const auto& [name, time_s] : step_times) times[name] += time_s;
  if (result.skipped) return;
  ++counted;
  loss += result.loss;
  for (const auto& [name, value] : result.metrics) {
    metrics[name].sum += value;
    ++metrics[name].steps;
  }
}

Json trainer_state(const RunProgress& progress, const TrainState& state, const RunPlan& plan,
                   const Json& identity, double epoch) {
  Json saved = {{"global_step", state.step},
                {"max_steps", plan.total_steps},
                {"epoch", epoch},
                {"best_metric",
                 std::isfinite(progress.best_loss) ? Json(progress.best_value()) : Json(nullptr)},
                {"best_global_step", progress.best_step},
                {"best_model_checkpoint",
                 progress.best_step > 0 ? Json(fmt::format("checkpoint-{}", progress.best_step))
                                        : Json(nullptr)},
                {"optimizer_updates", state.optimizer->updates()},
                {"loss_scaler", state.loss_scaler.state()},
                {"bad_steps_in_row", state.bad_steps_in_row},
                {"skipped_steps", state.skipped_steps},
                {"num_input_tokens_seen", state.tokens_seen},
                {"train_seconds", progress.train_seconds},
                {"arithmetic", device::arithmetic_of(state.model->device(), state.model->dtype())},
                {"evaluations_since_best", progress.evaluations_since_best},
                {"lowest_eval_loss", loss_json(progress.lowest_loss)},
                {"lowest_eval_loss_when_saved", loss_json(progress.lowest_when_saved)},
                {"saved_as_best", progress.saved_as_best},
                {"loss_sum", progress.loss_sum},
                {"loss_steps", progress.loss_steps},
                {"log_window", window_json(progress.window)},
                {"rng",
                 {{"scheme", "mix64(seed, step, sample, position, module, column)"},
                  {"seed", identity.at("seed")}}},
                {"identity", identity},
                {"log_history", progress.log_history}};
  if (!progress.best_metric.empty()) saved["metric_for_best_model"] = progress.best_metric;
  return saved;
}

void restore_progress(const Json& saved, RunProgress& progress, TrainState& state) {
  try {
    state.step = saved.at("global_step").get<int64_t>();
    state.loss_scaler.load_state(saved.at("loss_scaler"));
    state.bad_steps_in_row = saved.at("bad_steps_in_row").get<int64_t>();
    state.skipped_steps = saved.at("skipped_steps").get<int64_t>();
    state.tokens_seen = saved.at("num_input_tokens_seen").get<int64_t>();
    // Figures of two kinds are not compared.
    const bool is_of_same =
        saved.value("metric_for_best_model", std::string()) == progress.best_metric;
    if (is_of_same && !saved.at("best_metric").is_null()) {
      const auto best = saved.at("best_metric").get<double>();
      progress.best_loss = progress.best_is_greatest ? -best : best;
    }
    if (is_of_same) progress.best_step = saved.at("best_global_step").get<int64_t>();
    progress.evaluations_since_best = saved.value("evaluations_since_best", int64_t{0});
    progress.lowest_loss = loss_from(saved, "lowest_eval_loss", progress.best_loss);
    progress.lowest_when_saved =
        loss_from(saved, "lowest_eval_loss_when_saved", progress.lowest_loss);
    progress.saved_as_best = saved.value("saved_as_best", std::vector<int64_t>());
    progress.train_seconds = saved.at("train_seconds").get<double>();
    progress.loss_sum = saved.at("loss_sum").get<double>();
    progress.loss_steps = saved.at("loss_steps").get<int64_t>();
    // Checkpoints from before it was kept: their first record covers fewer steps.
    if (saved.contains("log_window")) progress.window = window_from(saved.at("log_window"));
    progress.log_history = saved.at("log_history");
  } catch (const Json::exception& error) {
    throw IoError(tr("trainer_state.json is damaged: {}", error.what()));
  }
  const auto before = json_get<std::string>(saved, "arithmetic");
  const std::string now = device::arithmetic_of(state.model->device(), state.model->dtype());
  if (before && *before != now) {
    log::warning(
        "the steps before were computed on {}, the next are on {}: equal to rounding, not bit for "
        "bit",
        translated(*before), translated(now));
  }
}

Json data_state(const PreparedData& data, int64_t consumed_samples, Json stream) {
  Json state{{"consumed_samples", consumed_samples},
             {"num_samples", data.train->size()},
             {"content_hash", fmt::format("{:016x}", data.content_hash)}};
  if (!stream.is_null()) state["stream"] = std::move(stream);
  return state;
}

}  // namespace danlu::train
