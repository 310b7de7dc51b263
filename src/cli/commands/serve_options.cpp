// The flags of `danlu serve`: vLLM's names, and those of ms-swift's deploy and LLaMA-Factory's api.
#include "cli/commands/commands.h"
#include "cli/commands/inference_options.h"
#include "cli/commands/inference_profiles.h"
#include "cli/commands/serve_options_foreign.h"
#include "settings/ranking_tokens.h"

namespace danlu::cli {
namespace {

std::vector<OptionSpec> address_options() {
  const std::string group = "Server";
  return {
      {.name = "host",
       .default_text = "127.0.0.1",
       .help = "address to listen on: 127.0.0.1 is this machine alone, 0.0.0.0 every network",
       .group = group,
       .environment = "API_HOST"},
      {.name = "port",
       .type = OptionType::kInt,
       .default_text = "8000",
       .help = "0: one that is free",
       .aliases = {"server_port"},
       .range = at_least(0).up_to(65535),
       .group = group,
       .environment = "API_PORT"},
      {.name = "served_model_name",
       .type = OptionType::kList,
       .help = "names by which requests may call the model (default: its directory's)",
       .aliases = {"api_model_name"},
       .group = group,
       .environment = "API_MODEL_NAME"},
      {.name = "any_model_name",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "requests may name any model, and the served one answers (danlu api: true, as "
               "LLaMA-Factory's)",
       .group = group},
      {.name = "api_key",
       .type = OptionType::kList,
       .help = "keys, one of which each request must bring (default: none is needed)",
       .group = group,
       .environment = "API_KEY"},
      {.name = "runs",
       .type = OptionType::kList,
       .help = "directories with training runs, which the page at / shows beside the chat",
       .group = group},
      {.name = "ssl_certfile",
       .help = "certificate in PEM, with those that lead to its root: https",
       .group = group},
      {.name = "ssl_keyfile", .help = "its key in PEM", .group = group},
      {.name = "allowed_origins",
       .type = OptionType::kList,
       .help = "origins of pages elsewhere that may ask, e.g. https://chat.example.com, or *",
       .group = group},
      {.name = "shutdown_timeout",
       .type = OptionType::kFloat,
       .default_text = "30",
       .help = "seconds that answers under way have after SIGTERM; a second one ends at once",
       .range = at_least(0),
       .group = group},
      {.name = "max_body_mb",
       .type = OptionType::kInt,
       .default_text = "64",
       .help = "longest request, in MB",
       .range = at_least(1).up_to(4096),
       .group = group},
      {.name = "max_connections",
       .type = OptionType::kInt,
       .default_text = "4096",
       .help = "clients at a time",
       .range = at_least(1).up_to(1000000),
       .group = group},
      {.name = "log_requests",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "each request in a line of the log, without its text",
       .aliases = {"enable_log_requests", "verbose"},
       .group = group},
  };
}

/// One adapter of the model, as everywhere, or several beside it.
std::vector<OptionSpec> served_model_options() {
  std::vector<OptionSpec> specs = model_options();
  // A server has it for the length of answers, too.
  std::erase_if(specs, [](const OptionSpec& spec) { return spec.name == "max_model_len"; });
  for (OptionSpec& spec : specs) {
    if (spec.name == "prompt_type") spec.aliases.push_back("chat_template");
    if (spec.name == "chat_template_kwargs") spec.aliases.push_back("default_chat_template_kwargs");
    if (spec.name != "adapters") continue;
    spec.type = OptionType::kList;
    spec.help = "adapter directory; or several beside one model, by name: NAME=DIR NAME=DIR …";
  }
  return specs;
}

std::vector<OptionSpec> adapter_options() {
  const std::string group = "Adapters";
  return {
      {.name = "lora_modules",
       .type = OptionType::kList,
       .help = "adapters that requests name as their model: NAME=DIR, or JSON with name and path",
       .group = group},
      {.name = "max_loras",
       .type = OptionType::kInt,
       .help = "different adapters answered at a time; requests of others wait (default: any "
               "number)",
       .range = at_least(1).up_to(1 << 20),
       .group = group},
      {.name = "max_lora_rank",
       .type = OptionType::kInt,
       .help = "adapters of a higher rank are refused (default: none is)",
       .aliases = {"vllm_max_lora_rank"},
       .range = at_least(1).up_to(1 << 20),
       .group = group},
      {.name = "enable_runtime_lora_updating",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "/v1/load_lora_adapter and /v1/unload_lora_adapter are there: whoever may ask can "
               "have any directory of this machine opened as an adapter",
       .group = group,
       .environment = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"},
  };
}

std::vector<OptionSpec> batching_options() {
  const std::string group = "Batching";
  return {
      {.name = "max_model_len",
       .type = OptionType::kInt,
       .help = "longest prompt and answer together, in tokens (default: the model's window); "
               "--rope_scaling "
               "linear, dynamic or yarn stretches positions to it",
       .aliases = {"max_length", "vllm_max_model_len", "vllm_maxlen", "sglang_maxlen",
                   "sglang_context_length", "lmdeploy_session_len"},
       .range = at_least(1).up_to(1 << 24),
       .group = group},
      {.name = "max_num_seqs",
       .type = OptionType::kInt,
       .default_text = "128",
       .help = "requests answered at a time; more wait",
       .aliases = {"vllm_max_num_seqs"},
       .range = at_least(1).up_to(65536),
       .group = group},
      {.name = "max_num_batched_tokens",
       .type = OptionType::kInt,
       .default_text = "2048",
       .help = "tokens of a pass: longer prompts are read in parts",
       .range = at_least(1).up_to(1 << 24),
       .group = group},
      {.name = "max_queue",
       .type = OptionType::kInt,
       .default_text = "1024",
       .help =
           "requests that wait, the choices and texts of one counted once; more are answered 429",
       .range = at_least(1).up_to(1 << 20),
       .group = group},
      {.name = "scheduling_policy",
       .default_text = "fcfs",
       .help = "priority: requests of a lower `priority` are answered earlier, whoever sends them",
       .choices = {"fcfs", "priority"},
       .group = group},
      {.name = "kv_cache_memory_gb",
       .type = OptionType::kFloat,
       .help = "memory for the KV cache (default: --gpu_memory_utilization of what is free)",
       .range = above(0),
       .group = group},
      {.name = "gpu_memory_utilization",
       .type = OptionType::kFloat,
       .default_text = "0.9",
       .help = "share of the free memory, a GPU's or the host's, that the KV cache may take",
       .aliases = {"vllm_gpu_memory_utilization", "vllm_gpu_util"},
       .range = above(0).up_to(1),
       .group = group},
      {.name = "enable_prefix_caching",
       .type = OptionType::kBool,
       .default_text = "true",
       .help = "what prompts begin with alike is computed once",
       .aliases = {"vllm_enable_prefix_caching"},
       .group = group},
      speculation_option(group),
      {.name = "deterministic",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "answers are equal to the bit whatever else is asked; slower under load",
       .group = group},
  };
}

std::vector<OptionSpec> protocol_options() {
  const std::string group = "Protocol";
  return {
      {.name = "task_type",
       .help =
           "what a model does beside answering: it ranks documents by a head of one score "
           "(reranker) or by two of its tokens (generative_reranker), sorts texts (seq_cls), or "
           "makes vectors of texts as danlu infer does (embedding) (default: as its files or "
           "args.json say)",
       .choices = {"causal_lm", "seq_cls", "embedding", "reranker", "generative_reranker"},
       .group = group},
      {.name = "problem_type",
       .help = "of models that sort texts: what their labels are (default: as the files say)",
       .choices = {"single_label_classification", "multi_label_classification", "regression"},
       .group = group},
      {.name = "reranker_use_activation",
       .type = OptionType::kBool,
       .default_text = "true",
       .help = "scores go through the sigmoid, where a request does not say",
       .group = group},
      {.name = "max_logprobs",
       .type = OptionType::kInt,
       .default_text = "20",
       .help = "most likely tokens that a request may ask for",
       .range = at_least(0).up_to(1000),
       .group = group},
      {.name = "trust_request_chat_template",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "a request may bring its own chat template",
       .group = group},
      {.name = "tool_call_parser",
       .default_text = "auto",
       .help = "how the model writes tool calls (auto: as its template tells it to)",
       .choices = {"auto", "none", "hermes", "llama3_json", "mistral", "deepseek_v3",
                   "deepseek_v31", "glm45", "qwen3_coder", "qwen3_xml"},
       .group = group},
      {.name = "pooling",
       .default_text = "auto",
       .help = "what /v1/embeddings makes of a text: the mean of its tokens or the last one (auto: "
               "as 1_Pooling/config.json beside the model says, else last)",
       .choices = {"auto", "mean", "last"},
       .group = group},
      {.name = "reasoning_parser",
       .default_text = "auto",
       .help = "auto, or vLLM's name for a model that thinks: what stands in <think> is reasoning; "
               "none: it is content",
       .aliases = {"vllm_reasoning_parser"},
       .choices = {"auto", "none", "deepseek_r1", "deepseek_v3", "qwen3", "glm45"},
       .group = group},
      {.name = "generation_config",
       .default_text = "auto",
       .help = "defaults for sampling: auto, the numbers of the model's generation_config.json; "
               "swift, the same, and the likeliest token unless its do_sample is true (default of "
               "danlu deploy and app, as ms-swift's); vllm, OpenAI's",
       .choices = {"auto", "swift", "vllm"},
       .group = group},
  };
}

/// A request's pictures come within it.
std::vector<OptionSpec> served_processor_options() {
  std::vector<OptionSpec> specs = processor_options();
  for (OptionSpec& spec : specs) {
    if (spec.name == "media_dir" || spec.name == "allow_media_domains")
      spec.ignored_because = "requests bring their pictures as data: URLs";
  }
  return specs;
}

/// sampling_options() as what holds where a request does not say.
std::vector<OptionSpec> default_sampling_options() {
  const std::string group = "Where a request does not say";
  std::vector<OptionSpec> specs = sampling_options();
  specs.push_back(stop_words_option(group));
  for (OptionSpec& spec : specs) {
    spec.group = group;
    if (spec.name == "seed") spec.ignored_because = "requests have seeds of their own";
    if (spec.name == "num_beams" || spec.name == "length_penalty")
      spec.ignored_because = "requests are answered without beams";
  }
  return specs;
}

}  // namespace

OptionTable serve_options() {
  const std::vector<OptionSpec> own =
      joined({served_model_options(), adapter_options(), served_processor_options(),
              address_options(), batching_options(), model_parts_options(), protocol_options(),
              settings::ranking_token_options("Protocol"), default_sampling_options(),
              foreign_serve_options()});
  return with_generating_profile(
      OptionTable("serve", "Answer requests over HTTP, as OpenAI's API does",
                  "danlu serve --model DIR [--adapters DIR | NAME=DIR …] [--port N]",
                  joined({own, foreign_inference_options(own)})));
}

}  // namespace danlu::cli
