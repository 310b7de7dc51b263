#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "arch/gated_delta.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/rank_place.h"
#include "board/board.h"
#include "board/page.h"
#include "board/serve_board.h"
#include "cli/api_keys.h"
#include "cli/engine/answer_rules.h"
#include "cli/engine/engine.h"
#include "cli/engine/infer_vectors.h"
#include "cli/engine/load_for_inference.h"
#include "cli/engine/model_ranks.h"
#include "cli/engine/serve_adapters.h"
#include "cli/engine/served_engine.h"
#include "cli/engine/served_numbers.h"
#include "cli/engine/served_vectors.h"
#include "cli/engine/speculation.h"
#include "device/memory.h"
#include "http/guards.h"
#include "http/server.h"
#include "infer/engine.h"
#include "ops/pages.h"
#include "serve/answer.h"
#include "serve/service.h"
#include "text/encoder_tools.h"
#include "text/gguf_tokenizer.h"
#include "text/jinja_encoder.h"
#include "text/template_record.h"
#include "text/tool_format.h"

namespace danlu::cli {
namespace {

/// EngineSettings::form_work: some 2 ms, and each thread's last step may take 3 more. A mask of a
/// large vocabulary whose form is simple costs some 20,000.
constexpr int64_t kFormWork = 1 << 15;
constexpr const char* kKeyVariable = "API_KEY";

int64_t page_bytes_of(const models::CausalLM& model) {
  return infer::page_shape_of(model).elements() *
         static_cast<int64_t>(c10::elementSize(model.dtype()));
}

/// The most tokens of a prompt and its answer; 0: no limit is known.
int64_t wanted_length(const Options& options, const models::CausalLM& model) {
  const int64_t window = model.config().max_positions;
  if (!options.is_set("max_model_len")) return window;
  const int64_t wanted = options.get_int("max_model_len");
  if (window > 0 && wanted > window) {
    throw UsageError(tr("[{}] {} tokens are more than the model's window of {}",
                        options.given_as("max_model_len"), wanted, window));
  }
  return wanted;
}

/// Processes of this machine that take keys and values of the model.
uint64_t sharers_of_machine(const models::CausalLM& model) {
  if (model.mesh().shape().size() == 1) return 1;
  return static_cast<uint64_t>(std::max<int64_t>(1, rank_place_from_environment().local_size));
}

/// The pages that memory has room for, and no more than the requests can use; 0: how much memory is
/// free is not known, and there is no limit. Errors: MemoryError if not even one page fits, or not
/// as many tokens as --max_model_len asks for.
int64_t pages_in_memory(const Options& options, const models::CausalLM& model, int64_t length) {
  const int64_t page_bytes = page_bytes_of(model);
  double bytes = 0;
  if (options.is_set("kv_cache_memory_gb")) {
    bytes = options.get_float("kv_cache_memory_gb") * 1e9;
  } else {
    const uint64_t available = device::available_memory(model.device(), sharers_of_machine(model));
    if (available == 0) return 0;
    bytes = static_cast<double>(available) * options.get_float("gpu_memory_utilization");
  }
  auto pages = static_cast<int64_t>(bytes / static_cast<double>(page_bytes));
  if (length > 0) {
    const int64_t most = options.get_int("max_num_seqs") * ops::pages_for(length);
    pages = std::min(pages, most);
  }
  const bool is_short = options.is_set("max_model_len") && pages < ops::pages_for(length);
  if (pages < 1 || is_short) {
    throw MemoryError(tr("[serve] {} hold the keys and values of {} tokens, which are too few",
                         format_bytes(static_cast<uint64_t>(bytes)), pages * ops::kPageTokens),
                      tr("give a smaller --max_model_len, or more with --kv_cache_memory_gb"));
  }
  return pages;
}

infer::EngineSettings engine_settings(const Options& options, const models::CausalLM& model,
                                      int64_t length) {
  infer::EngineSettings settings;
  settings.max_sequences = options.get_int("max_num_seqs");
  settings.max_batched_tokens = options.get_int("max_num_batched_tokens");
  settings.prefix_caching = options.get_bool("enable_prefix_caching");
  settings.deterministic = options.get_bool("deterministic");
  settings.max_adapters = options.get_int_or("max_loras", 0);
  const infer::Speculation speculation = speculation_from(options);
  if (speculation.guesses() && options.get_bool("deterministic")) {
    throw UsageError(tr("[{}] guesses change how sums are rounded, which --deterministic rules out",
                        options.given_as("speculative_config")));
  }
  settings.lookup = speculation.lookup;
  settings.predicted_tokens = speculation.predicted_tokens;
  if (arch::has_gated_delta(model.config())) {
    log::notice(
        "a model of {} has linear attention: requests share no prefixes, and nothing is guessed",
        model.config().family);
  }
  settings.form_work = kFormWork;
  settings.max_pages = pages_in_memory(options, model, length);
  return settings;
}

/// The pages that every process has room for.
void agree_on_pages(const parallel::Ranks& ranks, infer::EngineSettings& settings) {
  if (ranks.size() > 1) settings.max_pages = -ranks.largest(-settings.max_pages);
}

std::optional<text::ToolFormat> tool_format_from(const Options& options,
                                                 const InferenceModel& loaded) {
  const std::string named = options.get_string("tool_call_parser");
  if (named == "none") return std::nullopt;
  if (named != "auto") return text::tool_format_of_name(named);
  if (!loaded.encoder) return std::nullopt;
  return text::tool_format_of_encoder(*loaded.encoder, *loaded.tokenizer,
                                      options.get_string_or("prompt_type", ""),
                                      options.get_string_or("prompt_type_path", ""));
}

/// Errors: UsageError where a line asks for calls to be read that cannot be.
void refuse_unknown_calls(const Options& options, const std::optional<text::ToolFormat>& format) {
  const bool is_asked =
      options.is_given("enable_auto_tool_choice") && options.get_bool("enable_auto_tool_choice");
  if (!is_asked || format) return;
  throw UsageError(
      tr("[{}] how this model writes calls is not known",
         options.given_as("enable_auto_tool_choice")),
      tr("--tool_call_parser names the form: {}", fmt::join(text::tool_format_names(), ", ")));
}

/// Errors: UsageError for settings of vLLM's engine of forms that would change answers.
void refuse_form_settings(const Options& options) {
  const char* const name = "structured_outputs_config";
  if (!options.is_set(name)) return;
  const auto settings = try_parse_json(options.get_string(name));
  if (!settings || !settings->is_object()) return;
  for (const char* key : {"disable_any_whitespace", "disable_additional_properties"}) {
    const auto found = settings->find(key);
    if (found == settings->end() || *found == false || found->is_null()) continue;
    throw UsageError(tr("[{}] {} is not built in", options.given_as(name), key),
                     tr("schemas say additionalProperties themselves, and where JSON has white "
                        "space is the model's choice"));
  }
}

serve::MakeEncoder encoders_from(const Options& options, const ModelLocation& where,
                                 const InferenceModel& loaded) {
  return [&options, &where, &loaded](const Json& arguments, const std::string* chat_template) {
    Json all = template_arguments_from(options);
    all.update(loaded.recorded_variables);
    for (const auto& [name, value] : arguments.items()) all[name] = value;
    if (chat_template)
      return text::make_jinja_encoder(loaded.tokenizer, *chat_template, "chat_template", all);
    return encoder_with(options, where, loaded, all);
  };
}

std::vector<std::string> names_from(const Options& options, const ModelLocation& where) {
  if (options.has_value("served_model_name")) return options.get_list("served_model_name");
  const std::filesystem::path& named = where.adapter.empty() ? where.model : where.adapter;
  const auto directory = std::filesystem::absolute(named).lexically_normal();
  const auto name = directory.has_filename() ? directory : directory.parent_path();
  return {(text::is_gguf(name) ? name.stem() : name.filename()).string()};
}

serve::ModelDescription describe(const Options& options, const ModelLocation& where,
                                 const InferenceModel& loaded) {
  serve::ModelDescription model;
  model.names = names_from(options, where);
  model.takes_any_name = options.get_bool("any_model_name");
  model.tokenizer = loaded.tokenizer;
  model.encoder = loaded.encoder;
  model.make_encoder = encoders_from(options, where, loaded);
  if (loaded.media) {
    model.encode_media = [&loaded](const text::ChatEncoder& encoder,
                                   const text::Conversation& conversation, int64_t max_tokens,
                                   infer::Request* request) {
      loaded.media->encode(encoder, conversation, {}, "request", request,
                           [&](int64_t count, int64_t tokens) {
                             serve::refuse_many_visual_tokens(max_tokens, count, tokens);
                           });
    };
  }
  model.stop_ids = infer::end_ids(loaded.defaults.stop_ids, *loaded.tokenizer, /*encoder=*/nullptr);
  infer::GenerationDefaults defaults = loaded.defaults;
  if (options.get_string("generation_config") == "vllm") defaults = {};  // OpenAI's
  const bool is_as_swift = options.get_string("generation_config") == "swift";
  defaults.sampling =
      is_as_swift ? infer::sampling_of_swift(defaults) : infer::sampling_of_server(defaults);
  model.sampling = sampling_from(options, defaults);
  const bool is_told = options.is_set("do_sample") || options.is_set("temperature");
  if (!is_told) model.sampling.do_sample = defaults.sampling.do_sample;
  if (!is_told && is_as_swift && !model.sampling.do_sample) {
    log::notice(
        "requests without a temperature get the likeliest tokens, as ms-swift's deploy gives them: "
        "generation_config.json does not say do_sample: true; --generation_config auto draws");
  }
  model.sampling.num_beams = 1;
  if (options.is_set("max_new_tokens")) {
    model.max_new_tokens = options.get_int("max_new_tokens");
  } else {
    model.max_new_tokens = defaults.max_new_tokens;
  }
  model.stop = stop_words_from(options);
  model.system = loaded.system;
  model.tool_format = tool_format_from(options, loaded);
  model.leaves_calls = options.get_string("tool_call_parser") == "none";
  refuse_unknown_calls(options, model.tool_format);
  model.splits_reasoning = options.get_string("reasoning_parser") != "none";
  model.created_s = static_cast<int64_t>(std::time(nullptr));
  // Where the first adapter said which model it is, its record is not the model's.
  model.vectors =
      text_vectors(options, where.model, text::directory_of_record(where.model, where.adapter));
  model.vector_size = loaded.model->config().hidden_size;
  return model;
}

/// Errors: those of the loader; UsageError for a name of the base model's.
void add_adapters(const AdapterFlags& adapters, const serve::LoadAdapter& load,
                  serve::ModelDescription* model) {
  for (const AdapterFlags::Named& named : adapters.named) {
    if (std::count(model->names.begin(), model->names.end(), named.name) > 0) {
      throw UsageError(tr("[--lora_modules] {} is the base model's name", named.name),
                       tr("call one of them otherwise: --served_model_name NAME"));
    }
    serve::OpenedAdapter opened = load(named.path.string());
    model->adapters.push_back({.name = named.name,
                               .adapter = std::move(opened.adapter),
                               .parent = named.parent,
                               .created_s = model->created_s,
                               .prompt = std::move(opened.prompt)});
  }
}

/// A path may hold what would begin a line of its own, or a terminal's commands.
std::string one_word_of_a_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return text.empty() ? "-" : text;
}

/// When, who, what, the status, how long it took, and the id that the client was told.
void log_answer(const http::Answered& answered) {
  const http::Request& request = answered.request;
  const std::string* id = http::find_header(answered.headers, "X-Request-Id");
  log::info("{:%Y-%m-%dT%H:%M:%SZ} {} {} {} {} {:.3f} s {}", fmt::gmtime(std::time(nullptr)),
            one_word_of_a_line(request.peer), one_word_of_a_line(request.method),
            one_word_of_a_line(request.path), answered.status, answered.seconds, id ? *id : "-");
}

http::Settings http_settings(const Options& options) {
  http::Settings settings;
  settings.host = options.get_string("host");
  settings.port = static_cast<uint16_t>(options.get_int("port"));
  settings.max_body_bytes = static_cast<size_t>(options.get_int("max_body_mb")) * 1000 * 1000;
  settings.max_connections = static_cast<size_t>(options.get_int("max_connections"));
  if (options.get_bool("log_requests")) settings.on_answer = log_answer;
  const bool has_certificate = options.has_value("ssl_certfile");
  if (has_certificate != options.has_value("ssl_keyfile")) {
    throw UsageError(tr("[{}] a certificate needs its key, and a key its certificate",
                        options.given_as(has_certificate ? "ssl_certfile" : "ssl_keyfile")),
                     tr("give --ssl_certfile FILE --ssl_keyfile FILE"));
  }
  if (has_certificate) {
    settings.tls = {.certificate = options.get_string("ssl_certfile"),
                    .key = options.get_string("ssl_keyfile")};
  }
  return settings;
}

http::AccessSettings access_from(const Options& options) {
  http::AccessSettings access;
  access.api_keys = api_keys_from(options, kKeyVariable);
  if (options.has_value("allowed_origins"))
    access.allowed_origins = options.get_list("allowed_origins");
  access.host = options.get_string("host");
  access.is_loopback = http::is_loopback(access.host);
  access.refusal = serve::access_refusal;
  access.allowing_flag = "--allowed-origins";
  access.open_paths = board::page_paths();
  return access;
}

/// The page, and where runs are to be shown their board.
std::unique_ptr<board::Board> add_page(const Options& options, http::Router* router) {
  std::unique_ptr<board::Board> runs;
  std::vector<std::filesystem::path> directories;
  for (const std::string& directory : options.get_list("runs")) directories.emplace_back(directory);
  board::require_directories(directories);
  if (!directories.empty()) {
    runs = std::make_unique<board::Board>(directories);
    runs->add_routes(*router);
  }
  board::add_page(*router, {.has_runs = runs != nullptr,
                            .has_chat = true,
                            .needs_key = options.has_value("api_key"),
                            .version = DANLU_VERSION});
  return runs;
}

void say_start(const http::Server& server, const serve::ModelDescription& model,
               const InferenceModel& loaded, const infer::EngineSettings& engine) {
  const std::string pages =
      engine.max_pages == 0
          ? tr("keys and values grow as they are needed")
          : tr("keys and values of {} tokens in {}",
               format_count(static_cast<uint64_t>(engine.max_pages * ops::kPageTokens)),
               format_bytes(
                   static_cast<uint64_t>(engine.max_pages * page_bytes_of(*loaded.model))));
  log::info("{}{}, template {}", loaded.model_directory.string(),
            loaded.adapter_directory.empty() ? "" : " + " + loaded.adapter_directory.string(),
            loaded.encoder ? loaded.encoder->description() : tr("none"));
  log::info("{}; up to {} tokens a request, {} requests at a time, {} tokens a pass", pages,
            model.max_model_len > 0 ? format_count(static_cast<uint64_t>(model.max_model_len))
                                    : tr("any number of"),
            engine.max_sequences, engine.max_batched_tokens);
  if (!model.adapters.empty()) {
    std::vector<std::string> names;
    for (const serve::ServedAdapter& adapter : model.adapters) names.push_back(adapter.name);
    log::info("adapters beside it: {}", fmt::join(names, ", "));
  }
  if (model.encoder && model.completes && !model.tool_format && !model.leaves_calls) {
    log::info(
        "how this model writes calls is not known: requests with tools get a 400, unless "
        "--tool_call_parser names the form, or none");
  }
  if (model.judging)
    log::info("{}: texts are judged at {}/classify", model.names.front(), server.url());
  if (model.ranking) {
    log::info("{}: documents are ranked at {}/v1/rerank and {}/v1/score", model.names.front(),
              server.url(), server.url());
  }
  log::info("the page is at {}/", server.url());
  log::info("serving {} at {}/v1 (Ctrl-C ends)", fmt::join(model.names, ", "), server.url());
}

/// Waits for a signal, or for an engine that failed and could not be made again. Then it lets the
/// answers under way end for so long; those that do not are ended with an error, which has a while
/// to leave. A signal only sets a flag, so the flag is polled.
void await_end(http::Server& server, serve::EngineLoop& loop, board::Board* runs, double drain_s) {
  while (pending_interrupt() == 0 && !loop.is_dead())
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (runs) runs->end();
  const size_t open = server.counts().exchanges;
  if (pending_interrupt() != 0 && open > 0) {
    log::info("{}: {} request(s) under way have {:g} s to end", interrupt_name(pending_interrupt()),
              open, drain_s);
  }
  constexpr double kLeave_s = 5;
  const bool is_clean = server.drain(drain_s);
  if (!is_clean) log::warning("requests that were under way were ended with an error");
  loop.end();
  loop.await_end();
  server.stop(is_clean ? 0 : kLeave_s);
}

/// While it lives clients hear of it when another process is lost, before that ends this one.
class LastAnswers {
 public:
  LastAnswers(const parallel::Ranks& ranks, EngineMaker& engines, serve::Service& service,
              const http::Server& server)
      : ranks_(ranks), engines_(engines) {
    if (ranks.size() == 1) return;
    engines_.on_loss([&service] { service.end_answers(); });
    ranks_.world().before_end([&service, &server] {
      constexpr int kTimes = 80;
      constexpr std::chrono::milliseconds kPause(10);
      service.end_answers();
      for (int i = 0; i < kTimes && server.counts().exchanges > 0; ++i)
        std::this_thread::sleep_for(kPause);
    });
  }
  ~LastAnswers() {
    if (ranks_.size() == 1) return;
    engines_.on_loss({});
    ranks_.world().before_end({});
  }
  LastAnswers(const LastAnswers&) = delete;
  LastAnswers& operator=(const LastAnswers&) = delete;

 private:
  const parallel::Ranks& ranks_;
  EngineMaker& engines_;
};

/// What rank 0 does from here to the end of the server.
void serve_requests(const Options& options, const http::Settings& settings,
                    const InferenceModel& loaded, const infer::EngineSettings& engine,
                    serve::ModelDescription description, const parallel::Ranks& ranks) {
  EngineMaker engines(*loaded.model, engine, ranks, loaded.followers.get());
  serve::EngineLoop loop([&] { return engines.make(); },
                         {.max_queue = static_cast<size_t>(options.get_int("max_queue"))});
  serve::ServedModel model(std::move(description));
  serve::Service service(
      model, loop,
      {.limits = {.max_logprobs = options.get_int("max_logprobs"),
                  .completion_tokens = options.get_string("generation_config") == "swift"
                                           ? std::nullopt
                                           : api::RequestLimits().completion_tokens,
                  .trusts_templates = options.get_bool("trust_request_chat_template"),
                  .follows_priority = options.get_string("scheduling_policy") == "priority"},
       .version = DANLU_VERSION});
  http::Router router;
  http::add_guards(access_from(options), &router);
  service.add_routes(&router);
  const std::unique_ptr<board::Board> runs = add_page(options, &router);
  http::Server server(settings, std::move(router));
  const LastAnswers last(ranks, engines, service, server);
  server.start();
  say_start(server, model.description(), loaded, engine);
  std::thread watcher(
      [&] { await_end(server, loop, runs.get(), options.get_float("shutdown_timeout")); });
  loop.run();
  watcher.join();
  if (loop.is_dead()) std::rethrow_exception(loop.why_dead());
}

/// Errors: UsageError for what one process alone can do.
void refuse_served_in_parts(const Options& options, const parallel::Ranks& ranks) {
  if (ranks.size() == 1 || !options.get_bool("enable_runtime_lora_updating")) return;
  throw UsageError(tr("[{}] adapters come and go in one process alone, and "
                      "--tensor_parallel_size asks for several",
                      options.given_as("enable_runtime_lora_updating")),
                   tr("name the adapters when the server starts: --lora_modules NAME=DIR"));
}

void serve_on(const Options& options, const parallel::Ranks& ranks) {
  refuse_served_in_parts(options, ranks);
  refuse_form_settings(options);
  const http::Settings settings = http_settings(options);
  const bool is_open =
      api_keys_from(options, kKeyVariable).empty() && !http::is_loopback(settings.host);
  if (is_open && ranks.is_first())
    log::warning("whoever reaches {} may use this server: --api-key asks for a key", settings.host);
  const AdapterFlags adapters = adapter_flags(options);
  ModelLocation where = locate_served(options, adapters);
  find_number_head(options, &where);
  where.embeds = embeds_texts(options, where);
  InferenceModel loaded =
      load_for_inference(options, where, /*raw=*/false, /*tells_apart=*/true, ranks.mesh(),
                         /*predicts=*/speculation_from(options).predicted_tokens > 0);
  const int64_t length = wanted_length(options, *loaded.model);
  infer::EngineSettings engine = engine_settings(options, *loaded.model, length);
  serve::ModelDescription description = describe(options, where, loaded);
  take_numbers(options, where, loaded, &description);
  const serve::LoadAdapter load = adapter_loader(options, where, loaded);
  add_adapters(adapters, load, &description);
  if (options.get_bool("enable_runtime_lora_updating")) description.load_adapter = load;
  agree_on_pages(ranks, engine);
  const int64_t held = engine.max_pages * ops::kPageTokens;
  description.max_model_len = length > 0 && held > 0 ? std::min(length, held) : length + held;

  watch_interrupts();
  allow_most_descriptors();
  std::vector<infer::AdapterPtr> beside;
  for (const serve::ServedAdapter& adapter : description.adapters)
    beside.push_back(adapter.adapter);
  if (!ranks.is_first()) return infer::follow(*loaded.model, ranks.all(), ranks.world(), beside);
  if (ranks.size() > 1)
    loaded.followers = std::make_shared<infer::Followers>(ranks.all(), ranks.world(), beside);
  serve_requests(options, settings, loaded, engine, std::move(description), ranks);
  if (loaded.followers) loaded.followers->end();
}

}  // namespace

int run_serve(const Options& options) {
  const parallel::Ranks ranks = model_ranks(options);
  ranks.do_or_give_up([&] { serve_on(options, ranks); });
  return 0;
}

}  // namespace danlu::cli
