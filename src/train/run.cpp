#include "train/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/control_group.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/shell_quote.h"
#include "checkpoint/checkpoint.h"
#include "device/counted_memory.h"
#include "device/dtype.h"
#include "device/select.h"
#include "models/adapters.h"
#include "models/training_memory.h"
#include "models/weight_files.h"
#include "settings/identity.h"
#include "train/choose_device.h"
#include "train/loop.h"
#include "train/precision.h"
#include "train/ranks.h"
#include "train/report/banner.h"
#include "train/report/planned_memory.h"
#include "train/run_dir/continued.h"
#include "train/run_dir/held_out.h"
#include "train/run_dir/resume.h"
#include "train/run_dir/resume_everywhere.h"
#include "train/run_dir/run_dir.h"
#include "train/run_dir/save.h"
#include "train/run_dir/storage.h"
#include "train/throughput.h"
#include "weights/lora/peft.h"

namespace danlu::train {
namespace {

/// What can be wrong with the model is found here, before data are tokenised: its config and
/// headers. Completes config.model by what is found.
weights::CheckpointSource open_checked(TrainConfig& config) {
  refuse_other_format(config.output.directory);
  weights::CheckpointSource opened = open_model(config.model);
  ModelSource& model = config.model;
  model.companions = opened.companions;
  if (opened.megatron) {
    // What is written down must mean these weights when the tracker has moved on.
    if (model.tokenizer == model.path) model.tokenizer = opened.megatron->place.directory;
    model.path = opened.megatron->place.directory;
  }
  return opened;
}

data::BatchStreamOptions stream_options(const TrainConfig& config, const RunPlan& plan,
                                        const PreparedData& data, int64_t vocab_size) {
  data::BatchStreamOptions options;
  options.micro_batch_size = plan.micro_batch_size;
  options.accumulation_steps = plan.accumulation;
  options.dp_rank = config.mesh.data_rank(config.place.rank);
  options.dp_size = config.mesh.data;
  options.last_batch = data.last_batch;
  options.max_tokens_per_micro_batch =
      config.data.share_passes ? config.data.max_length * plan.micro_batch_size : 0;
  options.vocab_size = vocab_size;
  return options;
}

std::unique_ptr<models::CausalLM> make_model(const TrainConfig& config,
                                             const weights::CheckpointSource& source,
                                             const at::Device& device,
                                             const std::optional<checkpoint::Loaded>& checkpoint,
                                             const parallel::Mesh& mesh) {
  const at::ScalarType dtype = scalar_type_of(config.precision);
  const bool lora = config.tuner == Tuner::kLora;
  const auto settle = [&](models::CausalLM& model) {
    if (lora) model.freeze({"."});  // as adapters will
    if (!config.freeze.empty()) model.freeze(config.freeze);
    models::keep(model, config.keeping, /*holds_values=*/false);
  };
  const arch::Stage stage =
      arch::stages_of(source.config, config.pipeline)[static_cast<size_t>(mesh.stage())];
  std::unique_ptr<models::CausalLM> model;
  if (config.model.from_scratch && !checkpoint) {
    model = std::make_unique<models::CausalLM>(source.config, stage, mesh, dtype, device);
    settle(*model);
    models::initialize(*model, config.seed);
  } else if (checkpoint && !lora) {
    // A full checkpoint holds the model; adapters go on top of the base.
    model = models::load_model(
        weights::open_checkpoint_source(checkpoint->directory, {.all_tensors = true}), mesh, dtype,
        device, settle, stage);
  } else {
    model = models::load_model(source, mesh, dtype, device, settle, stage);
  }
  if (model->lora() && (!lora || checkpoint || !config.model.adapter.empty())) {
    throw ModelError(
        tr("[train] {}: a model with LoRA adapters on it", config.model.path.string()),
        tr("train them further with --tuner lora, or convert --to hf merges them first"));
  }
  if (lora && !model->lora()) {
    const fs::path adapter = checkpoint ? checkpoint->directory : config.model.adapter;
    if (adapter.empty()) {
      models::add_lora(*model, config.lora, config.seed);
    } else {
      if (!checkpoint) weights::report_other_base(adapter, config.model.path);
      models::load_adapter(*model, adapter, config.model.adapter_alpha);
    }
  }
  model->memory().set_recompute(config.recompute);
  model->memory().set_activation_offload(config.activation_offload);
  return model;
}

TrainState make_state(const TrainConfig& config, std::unique_ptr<models::CausalLM> model) {
  TrainState state;
  state.model = std::move(model);
  const auto trained = static_cast<int64_t>(state.model->trainable_parameters().size());
  if (parallel::sum_of(state.model->mesh().pipeline(), trained) == 0)
    throw UsageError(tr("[train] every parameter is frozen: nothing to train"));
  parallel::ParameterStore& store = models::keep(*state.model, config.keeping);
  state.gradients = std::make_unique<optim::GradBuffer>(store);
  state.optimizer = std::make_unique<optim::AdamW>(store, config.adamw);
  state.links = std::make_unique<StageLinks>(*state.model);
  if (config.precision == Precision::kF16) state.loss_scaler = optim::LossScaler(config.loss_scale);
  return state;
}

std::string next_command(const TrainConfig& config) {
  const std::string run = shell_quoted(config.output.directory.string());
  if (config.task == Task::kPretrain) return "danlu infer --model " + run + " --raw --prompt \"…\"";
  const bool own_template =
      config.data.template_name == "auto" || config.data.template_name == "hf";
  const std::string named =
      own_template ? "" : " --template " + shell_quoted(config.data.template_name);
  if (config.tuner == Tuner::kLora)
    return "danlu chat --model " + shell_quoted(config.model.path.string()) + " --adapters " + run +
           named;
  return "danlu chat --model " + run + named;
}

fs::path checkpoint_of(const Run& run, int64_t step) {
  return run.config.output.directory / fmt::format("checkpoint-{}", step);
}

/// The finished model in the run directory itself.
void publish(Run& run) {
  const OutputConfig& output = run.config.output;
  const DType trained = device::dtype_of(run.state.model->dtype());
  const DType wanted = output.final_dtype.value_or(trained);
  const bool best = output.load_best_at_end && run.progress.best_step > 0 &&
                    run.progress.best_step != run.state.step;
  const fs::path checkpoint = checkpoint_of(run, best ? run.progress.best_step : run.state.step);
  // Ranks agree on what only rank 0 needs to see.
  const bool saved =
      run.ranks.from_first(fs::exists(checkpoint / "DONE") ? "saved" : "") == "saved";
  if (best && !saved)
    log::warning("{}, the best, is gone: the last step's weights are taken", checkpoint.string());
  if (saved && (wanted == trained || run.config.tuner == Tuner::kLora)) {
    if (run.ranks.is_first()) publish_model(checkpoint, output.directory);
  } else if (best && saved) {
    if (!run.ranks.is_first()) return;
    const auto model = models::load_model(checkpoint, parallel::Mesh::single(),
                                          run.state.model->dtype(), at::kCPU);
    write_model_files(*model, run.config, wanted, output.directory);
  } else {
    run.state.model->memory().settle();
    write_model_files(*run.state.model, run.config, wanted, output.directory);
  }
}

RunSummary summarise(const Run& run) {
  RunSummary summary;
  summary.steps = run.state.step;
  summary.samples = run.stream.consumed();
  summary.tokens = run.state.tokens_seen;
  summary.skipped_steps = run.state.skipped_steps;
  summary.train_seconds = run.progress.train_seconds;
  summary.mean_loss = run.progress.loss_steps > 0
                          ? run.progress.loss_sum / static_cast<double>(run.progress.loss_steps)
                          : 0;
  summary.best_eval_loss = run.progress.best_loss;
  summary.best_step = run.progress.best_step;
  summary.model_directory = run.config.output.directory;
  if (fs::exists(checkpoint_of(run, run.state.step)))
    summary.last_checkpoint = checkpoint_of(run, run.state.step);
  if (run.progress.best_step > 0)
    summary.best_checkpoint = checkpoint_of(run, run.progress.best_step);
  std::error_code unknown;  // nothing may have been saved there, or somebody has removed it
  if (!fs::exists(summary.best_checkpoint / "DONE", unknown)) summary.best_checkpoint.clear();
  summary.next_command = next_command(run.config);
  return summary;
}

/// Files tokenised beforehand decided the template; chat and infer need its name.
void record_tokenised_template(const std::string& tokenised_with, TrainConfig& config) {
  const auto names = text::ChatEncoder::names(config.data.templates_file);
  if (std::find(names.begin(), names.end(), tokenised_with) != names.end()) {
    config.args["template"] = tokenised_with;
    config.data.template_name = tokenised_with;
  }
}

/// The base's record does not go with this run: what it named is named again in the run's own.
void record_template(const text::TemplateChoice& choice, TrainConfig& config) {
  if (choice.origin != text::TemplateOrigin::kRecord) return;
  const bool is_file = choice.name.ends_with(".jinja");
  config.args["template"] = is_file ? fs::absolute(choice.name).string() : choice.name;
  if (!choice.templates_file.empty())
    config.args["templates_file"] = fs::absolute(choice.templates_file).string();
}

/// train.log receives every line while it exists; of other ranks than the first, rank-N.log.
class LogFile {
 public:
  explicit LogFile(const TrainConfig& config) {
    const int64_t rank = config.place.rank;
    const std::string name = rank == 0 ? "train.log" : fmt::format("rank-{}.log", rank);
    path_ = config.output.directory / name;
    if (!config.dry_run) begin();
  }
  ~LogFile() {
    set_last_words("");
    // What ends the program is said last, by who started it: in the log too.
    if (std::uncaught_exceptions() == 0) log::tee_to_file("");
  }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  /// Where its directory, but not the file, is there.
  void begin_again() const {
    std::error_code unknown;
    if (!fs::exists(path_, unknown) && fs::exists(path_.parent_path(), unknown)) begin();
  }

 private:
  void begin() const {
    log::tee_to_file(path_.c_str());
    set_last_words(tr("[train] ended at once by a second signal: what came behind the newest "
                      "checkpoint is lost"),
                   log::file_descriptor());
  }

  fs::path path_;
};

/// Writes what describes this run.
void prepare_run_directory(const TrainConfig& config, const PreparedText& text,
                           const PreparedData& data) {
  const fs::path& run_dir = config.output.directory;
  mark_unfinished(run_dir);
  write_run_settings(config);
  const bool from_the_split = config.task == Task::kSft && config.data.validation.empty();
  if (from_the_split && data.validation && text.tokenizer)
    write_held_out(run_dir, *data.validation, *text.tokenizer);
}

/// Bytes that each rank may take: the least of all, read by each before any takes some. 0: unknown.
uint64_t memory_of_a_rank(const TrainConfig& config, const Ranks& ranks, const at::Device& device) {
  const auto sharers = static_cast<uint64_t>(config.place.local_size);
  const uint64_t own = device.is_cpu() ? available_memory_bytes(sharers) : 0;
  const std::vector<int64_t> of_all =
      parallel::numbers_of_all(ranks.all(), static_cast<int64_t>(own));
  return static_cast<uint64_t>(*std::min_element(of_all.begin(), of_all.end()));
}

/// What the run will be, and what it will need; chooses what of that is left to choose.
/// Errors: MemoryError where it would not fit.
void announce(TrainConfig& config, const BannerFacts& facts, const Ranks& ranks,
              const at::Device& device, plan::Request& request) {
  const uint64_t available = memory_of_a_rank(config, ranks, device);
  // One of the processors may need more than others.
  request.widens = parallel::largest_of(ranks.all(), request.widens ? 1 : 0) > 0;
  const bool chooses = config.recompute.granularity == "auto";
  log::info("{}", data_banner(facts, log::verbose()));
  // The file has all of it.
  if (!log::verbose()) log::write(log::Level::kDebug, data_banner(facts, /*all=*/true));
  if (chooses) log::info("{}", choose_recompute(config, request, available));
  log::info("{}", memory_line(request, available));
  if (config.dry_run) {
    log::info("{}", memory_table(request));
    log::info("dry run: flags, data and weights are as above; nothing was trained");
  } else if (config.checks_plan) {
    require_memory(config, request, available);
  }
}

void check_validation(const TrainConfig& config, const PreparedData& data) {
  if (data.validation) return;
  for (const char* asked : {"eval_strategy", "eval_steps", "eval_iters", "do_eval"}) {
    if (config.output.evaluate == Interval::kNo || !config.given_as.count(asked)) continue;
    log::warning("{}: nothing is held out, so nothing is evaluated (--val_dataset, --val_ratio)",
                 config.flag(asked));
    break;
  }
  if (!config.output.load_best_at_end) return;
  throw UsageError(tr("[train] {} true: nothing is held out to evaluate on",
                      config.flag("load_best_model_at_end")),
                   tr("give --val_dataset FILE or --val_ratio 0.01"));
}

/// Errors: UsageError where a rank would never see a sample of its own.
void require_samples(const TrainConfig& config, int64_t samples) {
  if (samples >= config.batch.ranks) return;
  throw UsageError(tr("[train] {} training samples for {} processes that share them", samples,
                      config.batch.ranks),
                   tr("start at most as many processes as there are samples"));
}

bool is_newest(const checkpoint::Loaded& checkpoint, const fs::path& run_dir) {
  const std::vector<checkpoint::Found> found = checkpoint::list(run_dir);
  return !found.empty() && found.back().directory.filename() == checkpoint.directory.filename();
}

/// Returns the number of samples that the interrupted run had consumed.
int64_t restore(const checkpoint::Loaded& from, RunProgress& progress, TrainState& state) {
  checkpoint::load_optimizer(from, *state.optimizer);
  restore_progress(from.trainer_state, progress, state);
  log::info("resuming from {} at step {}", from.directory.string(), state.step);
  const auto consumed = json_get<int64_t>(from.data_state, "consumed_samples");
  if (!consumed) {
    throw IoError(tr("{}: data_state.json lacks consumed_samples", from.directory.string()));
  }
  return *consumed;
}

bool is_complete(const TrainConfig& config, const RunPlan& plan, const TrainState& state,
                 const Ranks& ranks) {
  if (state.step < plan.total_steps) return false;
  if (ranks.from_first(is_finished(config.output.directory) ? "finished" : "").empty())
    return false;
  log::info(
      "this run is complete: {} steps are done, {} are asked for. To train on, raise {} and add "
      "--resume {}",
      state.step, plan.total_steps,
      config.flag(config.batch.max_steps > 0       ? "max_steps"
                  : config.batch.train_samples > 0 ? "train_samples"
                                                   : "epochs"),
      (config.output.directory / fmt::format("checkpoint-{}", state.step)).string());
  return true;
}

/// The other ranks, which all write into rank 0's directory and leave speaking to it.
Ranks connect(TrainConfig& config) {
  Json settings = config.args;
  for (const std::string& name : config.of_machine) settings.erase(name);
  if (config.mesh.sharers > 0) settings["nproc_per_node"] = config.place.local_size;
  Ranks ranks = config.dry_run ? Ranks({}, {}, config.dist_timeout_s, settings)
                               : Ranks(config.place, config.mesh, config.dist_timeout_s, settings);
  config.output.directory = ranks.from_first(config.output.directory.string());
  const std::string host = ranks.from_first(host_name());
  if (ranks.rank() == ranks.lead() && host != host_name()) {
    log::info("[ranks] ranks from {} of {} train here; rank 0 on {} speaks for all: {}",
              ranks.rank(), ranks.size(), host, (config.output.directory / "train.log").string());
  }
  if (!ranks.is_first()) log::set_level(log::Level::kError);
  config.output.resume = ranks.from_first(config.output.resume);
  return ranks;
}

/// For the first checkpoint, before hours are spent on what it is to hold.
void require_space_to_save(const TrainConfig& config, const models::CausalLM& model,
                           const checkpoint::Saver& saver, const Shared& run_dir) {
  if (config.output.save == Interval::kNo) return;
  const bool adapter = config.tuner == Tuner::kLora;
  checkpoint::SaveRequest request;
  request.run_dir = config.output.directory;
  request.keeper = run_dir.keeper;
  request.model_bytes = model_file_bytes(model, adapter);
  request.with_state = !config.output.save_only_model;
  request.exact_weights = adapter;
  saver.require_room(request, tr("a checkpoint"));
}

/// Of the finished model, before it is trained.
void require_space(const TrainConfig& config, const models::CausalLM& model, const Ranks& ranks) {
  const uint64_t bytes = model_file_bytes(model, config.tuner == Tuner::kLora);
  if (!ranks.is_first()) return;
  require_free_space(config.output.directory, bytes, "the finished model");
}

/// The finished model and its reports.
void finish(Run& job) {
  job.observer.look_after_directory(job.progress.log_history, /*needed=*/true);
  publish(job);
  job.megatron_copies.wait();
  if (job.ranks.is_first()) {
    job.observer.on_finish(summarise(job));
    // Last of all: what is killed before this is made good by the same command.
    mark_finished(job.config.output.directory, job.state.step);
  }
  job.ranks.wait_for(0);
}

/// The run's directory, made and held by whoever keeps it.
struct HeldDirectory {
  using Moment = std::optional<std::pair<int64_t, int64_t>>;  ///< s, ns; none: there is no file
  static Moment changed_at(const fs::path& file) {
    struct stat found{};
    if (::stat(file.c_str(), &found) != 0) return std::nullopt;
    return std::pair<int64_t, int64_t>{found.st_ctim.tv_sec, found.st_ctim.tv_nsec};
  }
  fs::path settings;
  Moment settings_at;
  std::optional<MadeDirectory> made;
  std::optional<FileLock> lock;
  Shared shared;

  HeldDirectory(const TrainConfig& config, const Ranks& ranks) {
    shared = find_shared(config.output.directory, ranks, [&] {
      made.emplace(config.output.directory);
      if (!config.dry_run) lock.emplace(lock_run_directory(config.output.directory));
    });
    if (!shared.by_all()) {
      log::info("machines do not share {}: ranks {} each keep what theirs need",
                config.output.directory.string(), fmt::join(shared.keepers, ", "));
    }
  }
  /// Both go with the directory; one may be lost by itself.
  bool is_ours() const { return !lock || lock->is_held() || changed_at(settings) == settings_at; }
  void remember(const fs::path& run_dir) {
    settings = run_dir / "args.json";
    settings_at = changed_at(settings);
  }
  /// After somebody has removed it. Errors: IoError, also where another run has taken it.
  void make_again(const TrainConfig& config) {
    fs::create_directories(config.output.directory);
    lock.reset();
    lock.emplace(lock_run_directory(config.output.directory));
  }
};

/// Who prepares the data that this rank reads.
int64_t preparer_of(const TrainConfig& config, const Ranks& ranks) {
  if (ranks.leads().size() == 1 || config.data.cache_dir.empty()) return 0;
  if (!config.shares_cache) return ranks.lead();
  const Shared cache = find_shared(config.data.cache_dir, ranks, [&] {
    std::error_code ignored;  // said by who writes there
    std::filesystem::create_directories(config.data.cache_dir, ignored);
  });
  if (!cache.by_all()) {
    log::info("machines do not share {}: ranks {} prepare the data, each for its own",
              config.data.cache_dir.string(), fmt::join(cache.keepers, ", "));
  }
  return cache.keeper;
}

/// Errors: UsageError where a rank would train something else.
void require_same_run(const Ranks& ranks, const TrainConfig& config, const at::Device& device,
                      const Json& identity, const PreparedData& data,
                      const std::optional<checkpoint::Loaded>& checkpoint) {
  ranks.require_same("version", DANLU_VERSION);
  ranks.require_same("checkpoint", checkpoint ? checkpoint->directory.string() : "-");
  ranks.require_same("device", at::DeviceTypeName(device.type(), /*lower_case=*/true));
  ranks.require_same("precision", precision_name(config.precision));
  ranks.require_same("data set", fmt::format("{:016x}", data.content_hash), host_name());
  for (const auto& [key, value] : identity.items()) ranks.require_same(key, dump_text(value));
}

std::unique_ptr<RunObserver> observe(const TrainConfig& config, const RunPlan& plan,
                                     const TrainState& state, const PreparedText& text,
                                     const PreparedData& data, const Ranks& ranks,
                                     HeldDirectory& held, const LogFile& log_file) {
  const auto make_again = [&] {
    if (ranks.is_first()) {
      held.make_again(config);
      prepare_run_directory(config, text, data);
      held.remember(config.output.directory);
    } else if (held.shared.keeper == ranks.rank() && !fs::exists(config.output.directory)) {
      held.make_again(config);
    }
    log_file.begin_again();
  };
  if (ranks.is_first()) held.remember(config.output.directory);
  const DirectoryHold hold{[&held] { return held.is_ours(); }, make_again};
  if (!ranks.is_first()) return make_silent_observer(hold);
  const RunDescription description{data.train->size(), fmt::format("{:016x}", data.content_hash),
                                   config.model.from_scratch};
  return make_observer(config, plan, state.step, description, hold);
}

/// What a kill behind the newest checkpoint left undone.
void make_good(Run& job, const checkpoint::Loaded& from) {
  const bool keeps = job.run_dir.keeper == job.ranks.rank();
  if (!keeps || !is_newest(from, job.config.output.directory)) return;
  settle_checkpoints(job.config.output, from.directory, job.progress.best_step);
  if (job.ranks.is_first()) job.megatron_copies.catch_up();
}

int run_connected(TrainConfig& config, const at::Device& device, const Ranks& ranks) {
  const weights::CheckpointSource source = open_checked(config);
  HeldDirectory held(config, ranks);
  const std::optional<checkpoint::Loaded> checkpoint =
      find_checkpoint_everywhere(config, ranks, held.shared);
  const bool continuing = checkpoint && is_of_run(*checkpoint, config.output.directory);
  if (!continuing) refuse_to_lose_files(config);
  const PreparedText text = prepare_text(config, source.config);
  record_template(text.choice, config);
  const PreparedData data = ranks.in_turn(preparer_of(config, ranks), [&] {
    return prepare_data(config, text, samples_of_step(config.batch));
  });
  record_tokenised_template(data.tokenised_with, config);
  check_validation(config, data);
  require_samples(config, data.train->size());
  const RunPlan plan = plan_run(config, data.train->size(), data.last_batch);
  const Json identity = settings::run_identity(config, source, plan);
  require_same_run(ranks, config, device, identity, data, checkpoint);
  if (checkpoint) check_resumable(*checkpoint, config, identity, data.content_hash);
  const LogFile log_file(config);
  if (device.is_cpu()) ranks.compare_threads();
  std::string origin = describe_weights(config.model, source, config.seed);
  std::optional<Continued> continued;
  if (!checkpoint) continued = continued_from(config, source, identity, origin);
  plan::Request planned = plan_request(config, source.config, data.lengths.max, device);
  announce(config, {config, device, source.config, origin, text, data, plan}, ranks, device,
           planned);
  if (config.dry_run) return 0;
  CountedMemory counted(device);
  TrainState state =
      make_state(config, make_model(config, source, device, checkpoint, ranks.mesh()));
  RunProgress progress;
  const int64_t consumed = checkpoint  ? restore(*checkpoint, progress, state)
                           : continued ? restore_continued(*continued, plan, config, state)
                                       : 0;
  log::info("{}", parameter_line(*state.model));
  if (is_complete(config, plan, state, ranks)) return 0;
  if (!continuing) progress.forget_best();
  require_space(config, *state.model, ranks);
  watch_interrupts();
  const bool keeps = held.shared.keeper == ranks.rank();
  if (keeps && config.output.overwrite && !continuing) clear_run_directory(config.output.directory);
  if (ranks.is_first()) prepare_run_directory(config, text, data);
  data::BatchStream stream(data.train, data.order,
                           stream_options(config, plan, data, source.config.vocab_size), consumed);
  const auto observer = observe(config, plan, state, text, data, ranks, held, log_file);
  checkpoint::Saver saver(ranks.mesh(), *state.optimizer);
  require_space_to_save(config, *state.model, saver, held.shared);
  MegatronCopies megatron_copies(config);
  Run job{config, plan,  identity,        data,        state,   progress, stream, *observer,
          ranks,  saver, megatron_copies, held.shared, planned, counted};
  job.flops_per_token = flops_per_token(*state.model, data.lengths);
  job.peak_flops = peak_flops(config, device) * static_cast<double>(ranks.size());
  if (checkpoint) job.last_saved_step = state.step;
  if (continuing) make_good(job, *checkpoint);
  device::release_host_memory();  // what loading alone needed
  run_loop(job);
  finish(job);
  return 0;
}

/// Where the run lies.
void place_output(TrainConfig& config) {
  if (!config.output.versioned) return;
  const auto own = run_of_job(config.output, restart_from_environment());
  config.output.directory = own ? *own : choose_version(config);
}

}  // namespace

int run(const TrainConfig& given) {
  TrainConfig config = given;
  at::Device device = at::kCPU;
  bool is_done = false;
  try {
    config.validate();
    place_output(config);
    is_done = go_on_with_own(config);
    device = select_device(config);
    settle_activation_offload(device, config);
  } catch (...) {
    tell_ranks(config.place, current_error());
    throw;
  }
  if (config.dry_run && config.place.rank > 0) return 0;  // rank 0 says it all, and needs nobody
  const Ranks ranks = connect(config);
  if (!ranks.from_first(is_done ? "done" : "").empty()) return 0;
  return ranks.do_or_give_up([&] { return run_connected(config, device, ranks); });
}

}  // namespace danlu::train
