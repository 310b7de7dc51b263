#include "settings/options/deepspeed.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "settings/options/deepspeed_keys.h"
#include "settings/options/sharding.h"
#include "settings/run_plan.h"

namespace danlu::settings {
namespace {

/// Contents of the presets as ms-swift 2.x ships them, as far as one process can tell them apart.
Json preset(const std::string& name) {
  const std::map<std::string, int> stages = {
      {"default-zero2", 2}, {"default-zero3", 3}, {"zero0", 0},
      {"zero1", 1},         {"zero2", 2},         {"zero3", 3},
      {"zero2_offload", 2}, {"zero3_offload", 3}, {"zero3-offload", 3}};
  const auto at = stages.find(name);
  if (at == stages.end()) return nullptr;
  Json json = {{"zero_optimization", {{"stage", at->second}}},
               {"fp16",
                {{"enabled", "auto"},
                 {"loss_scale", 0},
                 {"loss_scale_window", 1000},
                 {"initial_scale_power", 16},
                 {"hysteresis", 2},
                 {"min_loss_scale", 1}}},
               {"bf16", {{"enabled", "auto"}}},
               {"gradient_clipping", "auto"},
               {"train_batch_size", "auto"},
               {"train_micro_batch_size_per_gpu", "auto"},
               {"gradient_accumulation_steps", "auto"}};
  if (name.find("offload") != std::string::npos)
    json["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}};
  // The 2024 presets carry their own scheduler, which outweighs --lr_scheduler_type.
  if (name.starts_with("default-")) {
    json["scheduler"] = {{"type", "WarmupDecayLR"},
                         {"params",
                          {{"total_num_steps", "auto"},
                           {"warmup_min_lr", "auto"},
                           {"warmup_max_lr", "auto"},
                           {"warmup_num_steps", "auto"}}}};
  }
  return json;
}

/// Warns about keys written twice: the parser keeps the last value, as Python's json does.
void warn_duplicates(const std::string& text, const std::string& origin) {
  std::vector<std::set<std::string>> objects;
  const auto callback = [&](int, nlohmann::ordered_json::parse_event_t event,
                            nlohmann::ordered_json& parsed) {
    using Event = nlohmann::ordered_json::parse_event_t;
    if (event == Event::object_start) objects.emplace_back();
    if (event == Event::object_end) objects.pop_back();
    if (event == Event::key && !objects.back().insert(parsed.get<std::string>()).second) {
      log::warning("{}: key \"{}\" is written twice; the last value is taken", origin,
                   parsed.get<std::string>());
    }
    return true;
  };
  const Json ignored = Json::parse(text, callback, false);
}

Json read(const std::string& text, bool warns = true) {
  if (const Json known = preset(text); !known.is_null()) return known;
  const bool inline_json = text.find('{') != std::string::npos;
  if (!inline_json && !fs::exists(text)) {
    throw UsageError(tr("[deepspeed] '{}' is neither a file nor a preset", text),
                     tr("presets: default-zero2, default-zero3, zero0, zero1, zero2, zero3, "
                        "zero2_offload, zero3_offload"));
  }
  if (!inline_json && fs::is_directory(text))
    throw UsageError(
        tr("[deepspeed] '{}' is a directory: its file, or a preset, is expected", text));
  const std::string content = inline_json ? text : read_file(text);
  const std::string origin = inline_json ? "--deepspeed" : text;
  Json json = parse_json(content, origin);
  if (!json.is_object()) throw UsageError(tr("[deepspeed] {}: an object is expected", origin));
  if (warns) warn_duplicates(content, origin);
  return json;
}

/// A number at /a/b/c; empty if absent, null or "auto". Integers may be written 2e8.
std::optional<double> number_at(const Json& json, const std::string& pointer) {
  const Json::json_pointer at(pointer);
  if (!json.contains(at) || json.at(at).is_null() || json.at(at) == "auto") return std::nullopt;
  if (!json.at(at).is_number())
    throw UsageError(
        tr("[deepspeed] {} must be a number or \"auto\", got {}", pointer, json.at(at).dump()));
  return json.at(at).get<double>();
}

/// A count at /a/b/c.
std::optional<double> count_at(const Json& json, const std::string& pointer, double least) {
  constexpr double kMost = 1e15;  // exact in a double
  const auto value = number_at(json, pointer);
  if (!value || (*value >= least && *value <= kMost && *value == std::floor(*value))) return value;
  throw UsageError(
      tr("[deepspeed] {} must be a whole number of at least {}, got {}", pointer, least, *value));
}

/// The object under `key`; empty if absent or null.
Json object_at(const Json& json, const char* key) {
  if (!json.contains(key) || json.at(key).is_null()) return Json::object();
  if (!json.at(key).is_object())
    throw UsageError(tr("[deepspeed] /{} must be an object, got {}", key, json.at(key).dump()));
  return json.at(key);
}

/// True, false or unsaid.
std::optional<bool> flag_at(const Json& json, const std::string& pointer) {
  const Json::json_pointer at(pointer);
  if (!json.contains(at) || !json.at(at).is_boolean()) return std::nullopt;
  return json.at(at).get<bool>();
}

class Applier {
 public:
  Applier(const Json& json, const Options& options, TrainConfig& config)
      : json_(json), options_(options), config_(config) {}

  void run() {
    refuse_other_schedulers();  // whose keys are none of ours
    for (const std::string& key : ignored_deepspeed_keys(json_)) list(ignored_, key);
    batch();
    refuse_other_training();
    optimizer();
    scheduler();
    precision();
    sharing();
    if (!mismatches_.empty()) {
      throw UsageError(tr("[deepspeed] the file disagrees with the flags: {}", mismatches_),
                       tr("write \"auto\" in the file, or make both equal"));
    }
    const std::string honoured = honoured_.empty() ? tr("nothing (all \"auto\")") : honoured_;
    if (ignored_.empty()) return log::info("--deepspeed: honoured: {}", honoured);
    log::info("--deepspeed: honoured: {}; ignored: {}", honoured, ignored_);
  }

 private:
  static void list(std::string& to, const std::string& item) {
    to += (to.empty() ? "" : ", ") + item;
  }

  /// Takes `pointer`'s value over into `target`, unless the user's own flag says otherwise.
  template <typename T>
  void take(const std::string& pointer, const char* option, T& target) {
    const auto value =
        std::is_integral_v<T> ? count_at(json_, pointer, 1) : number_at(json_, pointer);
    if (!value) return;
    const T wanted = static_cast<T>(*value);
    if (options_.is_given(option) &&
        std::abs(static_cast<double>(target) - *value) > 1e-12 * std::abs(*value)) {
      list(mismatches_,
           fmt::format("{} {} vs {} {}", pointer, *value, options_.given_as(option), target));
      return;
    }
    target = wanted;
    config_.args[option] = wanted;
    if (!options_.is_given(option)) config_.given_as[option] = "--deepspeed's " + pointer.substr(1);
    list(honoured_, fmt::format("{} {}", pointer.substr(1), *value));
  }

  void batch() {
    take("/train_micro_batch_size_per_gpu", "batch_size", config_.batch.micro_batch_size);
    take("/gradient_accumulation_steps", "accum", config_.batch.accumulation);
    take("/gradient_clipping", "max_grad_norm", config_.max_grad_norm);
    if (!json_.contains("gradient_clipping") && config_.max_grad_norm > 0) {
      log::notice(
          "--deepspeed: the file has no gradient_clipping: gradients are scaled down to norm {:g} "
          "here, by DeepSpeed never (--max_grad_norm 0)",
          config_.max_grad_norm);
    }
    BatchConfig& batch = config_.batch;
    const auto given = count_at(json_, "/train_batch_size", 1);
    // What a profile says of the global batch gives way to the file.
    const bool is_typed = options_.is_given("global_batch_size");
    if (!is_typed && (given || number_at(json_, "/gradient_accumulation_steps")))
      batch.global_batch_size = 0;
    if (!given || !mismatches_.empty()) return;
    const auto total = static_cast<int64_t>(*given);
    if (is_typed && batch.global_batch_size != total) {
      list(mismatches_,
           fmt::format("/train_batch_size {} vs {} {}", total,
                       options_.given_as("global_batch_size"), batch.global_batch_size));
      return;
    }
    const int64_t together = batch.micro_batch_size * batch.ranks;
    const std::string micro = config_.said("batch_size", batch.micro_batch_size);
    const std::string hint =
        tr("write \"auto\", or name the processes that it is for: --nproc_per_node N");
    if (batch.accumulation == 0 && total % together != 0) {
      throw UsageError(tr("[deepspeed] train_batch_size {}: must be a multiple of {} × {} = {}",
                          total, micro, config_.said_ranks(), together),
                       hint);
    }
    if (batch.accumulation == 0) {
      batch.accumulation = total / together;
      config_.given_as["accum"] = tr("--deepspeed's train_batch_size: accumulation");
    }
    if (together * batch.accumulation != total) {
      throw UsageError(tr("[deepspeed] train_batch_size {} ≠ {} × {} × {} = {}", total, micro,
                          config_.said("accum", batch.accumulation), config_.said_ranks(),
                          together * batch.accumulation),
                       hint);
    }
    list(honoured_, fmt::format("train_batch_size {}", total));
  }

  void optimizer() {
    const std::string params = "/optimizer/params";
    take(params + "/lr", "lr", config_.schedule.shape.lr);
    take(params + "/eps", "adam_epsilon", config_.adamw.eps);
    take(params + "/weight_decay", "weight_decay", config_.adamw.groups.weight_decay);
    take(params + "/betas/0", "adam_beta1", config_.adamw.beta1);
    take(params + "/betas/1", "adam_beta2", config_.adamw.beta2);
    const Json type = json_.value(Json::json_pointer("/optimizer/type"), Json("AdamW"));
    if (type != "AdamW" && type != "Adam")
      throw UsageError(tr("[deepspeed] optimizer {}: only AdamW is built in", type.dump()));
  }

  /// Errors: UsageError for what would train another model with DeepSpeed.
  void refuse_other_training() const {
    struct Other {
      const char *key, *instead;
      std::function<bool(const Json&)> matters;
    };
    const auto is_true = [](const Json& value) { return value == true; };
    const auto is_several = [](const Json& value) { return value.is_number() && value > 1; };
    const auto is_there = [](const Json& value) { return !value.empty(); };
    const Other others[] = {
        {"/optimizer/params/adam_w_mode", "", [](const Json& value) { return value == false; }},
        {"/curriculum_learning/enabled", "", is_true},
        {"/data_efficiency/enabled", "", is_true},
        {"/progressive_layer_drop/enabled", "", is_true},
        {"/quantize_training/enabled", "", is_true},
        {"/compression_training", "", is_there},
        {"/sparse_attention", "", is_there},
        {"/amp/enabled", "--fp16 true", is_true},
        {"/tensor_parallel/autotp_size", "--tp N", is_several},
        {"/pipeline/stages", "", is_several}};
    for (const auto& [key, instead, matters] : others) {
      const Json::json_pointer at(key);
      if (!json_.contains(at) || !matters(json_.at(at))) continue;
      throw UsageError(
          tr("[deepspeed] {} {}: this version does not train so", key + 1, json_.at(at).dump()),
          *instead ? tr("take it out of the file, and give {}", instead)
                   : tr("take it out of the file"));
    }
  }

  std::string scheduler_type() const {
    const Json scheduler = object_at(json_, "scheduler");
    return scheduler.empty() ? "" : json_get<std::string>(scheduler, "type").value_or("");
  }

  /// Errors: UsageError with what comes nearest.
  void refuse_other_schedulers() const {
    if (object_at(json_, "scheduler").empty()) return;
    const std::string type = scheduler_type();
    if (type == "WarmupLR" || type == "WarmupDecayLR" || type == "WarmupCosineLR") return;
    std::string hint;
    if (type == "OneCycle") {
      hint =
          tr("a rise and a fall: \"WarmupCosineLR\" in the file, or no scheduler there and "
             "--lr_scheduler cosine --warmup_ratio 0.3");
    } else if (type == "LRRangeTest") {
      hint =
          tr("it looks for a rate and trains nothing: take it out of the file, and give --lr and "
             "--lr_scheduler constant");
    }
    throw UsageError(
        tr("[deepspeed] scheduler '{}': WarmupLR, WarmupDecayLR and WarmupCosineLR are built in",
           type),
        hint);
  }

  void scheduler() {
    const std::string type = scheduler_type();
    if (type.empty()) return;
    ScheduleChoice& schedule = config_.schedule;
    schedule.shape.kind = schedule_from_name(type);
    config_.args["lr_scheduler"] = type;
    const std::string params = "/scheduler/params";
    const Json ramp = json_.value(Json::json_pointer(params + "/warmup_type"), Json("log"));
    schedule.shape.warmup_ramp = ramp == "linear" ? Ramp::kLinear : Ramp::kLog;
    if (type == "WarmupCosineLR") {
      cosine(params);
    } else {
      take(params + "/warmup_max_lr", "lr", schedule.shape.lr);
      if (!json_.contains(Json::json_pointer(params + "/warmup_max_lr"))) {
        log::notice(
            "--deepspeed: {} has no warmup_max_lr: the rate rises to {:g} here, in DeepSpeed to "
            "0.001 (--lr 0.001)",
            type, schedule.shape.lr);
      }
      if (const auto low = number_at(json_, params + "/warmup_min_lr"))
        schedule.shape.start_lr = *low;
    }
    if (const auto steps = count_at(json_, params + "/warmup_num_steps", 0)) {
      schedule.warmup_steps = static_cast<int64_t>(*steps);
    } else if (!json_.contains(Json::json_pointer(params + "/warmup_num_steps")) &&
               !options_.is_given("warmup_steps") && !options_.is_given("warmup_ratio")) {
      schedule.warmup_steps = 1000;  // "auto" alone means what the flags say
    }
    if (schedule.warmup_steps) config_.args["warmup_steps"] = *schedule.warmup_steps;
    if (const auto steps = count_at(json_, params + "/total_num_steps", 1)) {
      schedule.decay_total_steps = static_cast<int64_t>(*steps);
      config_.args["lr_decay_iters"] = *schedule.decay_total_steps;
    }
    list(honoured_, "scheduler " + type);
    if (options_.is_given("lr_scheduler") && options_.get_string("lr_scheduler") != type) {
      log::warning("--deepspeed: its scheduler {} counts, as with DeepSpeed, not {} {}", type,
                   options_.given_as("lr_scheduler"), options_.get_string("lr_scheduler"));
    }
  }

  /// A part of the peak at /a/b/c, which is the optimizer's rate.
  double ratio_at(const std::string& pointer, double otherwise) const {
    const double ratio = number_at(json_, pointer).value_or(otherwise);
    if (ratio >= 0 && ratio <= 1) return ratio;
    throw UsageError(tr("[deepspeed] {} must be a number from 0 to 1, got {:g}", pointer, ratio));
  }

  void cosine(const std::string& params) {
    ScheduleConfig& shape = config_.schedule.shape;
    shape.start_lr = shape.lr * ratio_at(params + "/warmup_min_ratio", 0);
    const std::string low = params + "/cos_min_ratio";
    const double least = shape.lr * ratio_at(low, kCosineMinRatio);
    const bool is_typed = options_.is_given("min_lr");
    if (is_typed && number_at(json_, low) && std::abs(shape.min_lr - least) > 1e-12 * least)
      list(mismatches_, fmt::format("{} {:g} ({:g}) vs {} {:g}", low, *number_at(json_, low), least,
                                    options_.given_as("min_lr"), shape.min_lr));
    if (!is_typed) shape.min_lr = least;
    config_.args["min_lr"] = shape.min_lr;
  }

  void precision() {
    const auto fp16 = flag_at(json_, "/fp16/enabled");
    // bfloat16: its older name.
    const auto bf16 =
        flag_at(json_, json_.contains("bf16") ? "/bf16/enabled" : "/bfloat16/enabled");
    const auto check = [&](std::optional<bool> enabled, Precision kind, const char* name) {
      if (!enabled || !*enabled) return;
      const bool chosen =
          options_.is_given("dtype") || options_.is_given("bf16") || options_.is_given("fp16");
      if (chosen && config_.precision != kind) {
        list(mismatches_, tr("{}.enabled true vs {}", name, precision_name(config_.precision)));
      }
      config_.precision = kind;
      config_.args["dtype"] = name;
      list(honoured_, std::string(name));
    };
    check(fp16, Precision::kF16, "fp16");
    check(bf16, Precision::kBF16, "bf16");
    if (config_.precision != Precision::kF16) return;
    leave_profiles_scale();
    take("/fp16/loss_scale", "loss_scale", config_.loss_scale.fixed_scale);
    take("/fp16/loss_scale_window", "loss_scale_window", config_.loss_scale.window);
    take("/fp16/hysteresis", "hysteresis", config_.loss_scale.hysteresis);
    take("/fp16/min_loss_scale", "min_loss_scale", config_.loss_scale.min_scale);
    if (number_at(json_, "/fp16/initial_scale_power")) initial_scale();
  }

  /// Under DeepSpeed its own rules hold where the file is silent, not those of the Trainer's
  /// scaler.
  void leave_profiles_scale() {
    const LossScaleConfig own;
    if (options_.source("loss_scale_window") == OptionSource::kProfile)
      config_.loss_scale.window = own.window;
    if (options_.source("hysteresis") == OptionSource::kProfile)
      config_.loss_scale.hysteresis = own.hysteresis;
  }

  /// DeepSpeed takes the power for a scale that is not fixed.
  void initial_scale() {
    const std::string pointer = "/fp16/initial_scale_power";
    const double power = *number_at(json_, pointer), scale = std::exp2(power);
    if (!(power >= 0 && power <= 127)) {
      throw UsageError(
          tr("[deepspeed] {} must be a number from 0 to 127, got {:g}", pointer, power));
    }
    double& initial = config_.loss_scale.initial_scale;
    const char* option = "initial_loss_scale";
    if (options_.is_given(option) && initial != scale) {
      list(mismatches_, fmt::format("{} {:g} (2^{:g} = {:g}) vs {} {:g}", pointer, power, power,
                                    scale, options_.given_as(option), initial));
      return;
    }
    initial = scale;
    config_.args[option] = scale;
    if (!options_.is_given(option)) config_.given_as[option] = "--deepspeed's " + pointer.substr(1);
    list(honoured_, fmt::format("{} {:g} (2^{:g} = {:g})", pointer.substr(1), power, power, scale));
  }

  /// `directory`: where --offload_dir has files hold it. True: it asks for host memory.
  bool offload(const char* key, fs::path& directory) {
    const Json given = object_at(object_at(json_, "zero_optimization"), key);
    const std::string device = json_get<std::string>(given, "device").value_or("none");
    if (device == "none") return false;
    if (device != "cpu" && device != "nvme") {
      throw UsageError(tr("[deepspeed] {}/device \"{}\": expected none, cpu or nvme", key, device));
    }
    const auto path = json_get<std::string>(given, "nvme_path");
    if (device != "nvme" || !path) {
      const bool counts = config_.is_planned && &directory == &config_.keeping.state_in;
      if (counts) list(honoured_, key);
      if (!counts)
        list(ignored_, tr("{} (it is in host memory; --offload_dir DIR has files hold it)", key));
      return true;
    }
    if (!config_.is_planned && !fs::is_directory(*path))
      throw UsageError(tr("[deepspeed] {}/nvme_path {}: no such directory", key, *path));
    if (directory.empty()) directory = *path;
    list(honoured_, tr("{} in {}", key, directory.string()));
    return false;
  }

  void sharing() {
    if (config_.keeping.sharding != Sharding::kNone)
      list(honoured_, sharding_name(config_.keeping.sharding));
    config_.wants_state_in_host |= offload("offload_optimizer", config_.keeping.state_in);
    offload("offload_param", config_.keeping.parameters_in);
  }

  const Json& json_;
  const Options& options_;
  TrainConfig& config_;
  std::string honoured_, ignored_, mismatches_;
};

/// body(), whose errors about JSON are those of settings, not of data.
template <typename Body>
auto as_settings(const Body& body) {
  try {
    return body();
  } catch (const DataError& error) {
    throw UsageError(
        tr("[deepspeed] {}", error.what()),
        tr("the file is JSON, as DeepSpeed's documentation of its configuration says"));
  }
}

}  // namespace

std::optional<int64_t> deepspeed_stage(const std::string& text) {
  return as_settings([&]() -> std::optional<int64_t> {
    const auto stage = count_at(read(text, /*warns=*/false), "/zero_optimization/stage", 0);
    if (!stage) return std::nullopt;
    return static_cast<int64_t>(*stage);
  });
}

TrainConfig with_deepspeed(const std::string& text, const Options& options, TrainConfig config) {
  if (text.empty()) return config;
  as_settings([&] {
    const Json json = read(text);
    Applier(json, options, config).run();
  });
  return config;
}

}  // namespace danlu::settings
