// Flags of vLLM's serve, ms-swift's deploy and LLaMA-Factory's api that danlu serve has not.
// Sources: vLLM 0.11 (entrypoints/openai/cli_args.py, engine/arg_utils.py), ms-swift 4
// (arguments/deploy_args.py).
#include "cli/commands/serve_options_foreign.h"

#include "cli/commands/foreign_options.h"

namespace danlu::cli {
namespace {

std::vector<OptionSpec> what_is_served() {
  return {
      ignored_switch({"enable_chunked_prefill", "disable_log_requests", "disable_log_stats",
                      "enforce_eager", "enable_lora", "stream", "enable_reasoning",
                      "enable_request_id_headers", "enable_prompt_tokens_details",
                      "exclude_tools_when_tool_choice_none", "interleave_mm_strings"},
                     "what it names is always on"),
      ignored_switch({"enable_auto_tool_choice"},
                     "calls are read wherever the form is known in which the model writes them"),
      unavailable(
          {"task", "runner", "convert"},
          "a model does what its files say, and /v1/embeddings reads those that answer",
          {"causal_lm", "embedding", "auto", "generate", "embed", "pooling", "none", "classify"},
          tr("--task_type reranker or generative_reranker ranks documents, seq_cls sorts "
             "texts")),
      ignored({"num_labels"}, "the model's files say how many labels there are"),
      ignored({"chat_template_content_format"},
              "whether a template takes messages as texts or as lists of parts is seen by what it "
              "writes"),
      ignored({"lang", "studio_title", "is_multimodal"}, "the page asks the browser and the model"),
      ignored({"block_size", "swap_space"},
              "pages have one size, and what finds no room in them is computed again"),
      ignored({"max_cpu_loras", "lora_dtype", "fully_sharded_loras", "lora_extra_vocab_size"},
              "adapters stay in memory, in the type of the model"),
      ignored(
          {"owned_by", "stop_timeout", "api_server_count", "fingerprint_mode", "fingerprint_value"},
          "one program answers, and --shutdown_timeout says how long it may take to end"),
      unavailable({"enable_lora_bias", "default_mm_loras", "long_lora_scaling_factors",
                   "enable_prompt_adapter", "prompt_adapters", "max_prompt_adapters",
                   "max_prompt_adapter_token"},
                  "adapters are LoRA's, rsLoRA's and DoRA's"),
      unavailable({"qlora_adapter_name_or_path"}, "adapters are named by their directories", {},
                  tr("--adapters DIR")),
      unavailable({"kv_cache_memory_bytes", "num_gpu_blocks_override"},
                  "--kv_cache_memory_gb says how much memory the KV cache has"),
      unavailable({"override_generation_config"}, "its keys are flags of their own here", {"{}"},
                  "--temperature --top_p --top_k --min_p --repetition_penalty --max_new_tokens"),
      unavailable({"override_pooler_config", "pooler_config"}, "--pooling mean or last"),
      unavailable({"response_role"}, "answers are the assistant's", {"assistant"}),
      unavailable({"logprobs_mode"}, "log-probabilities are the model's own", {"raw_logprobs"}),
  };
}

std::vector<OptionSpec> what_requests_may() {
  return {
      ignored({"guided_decoding_backend"}, "there is one engine for the forms of answers"),
      ignored({"structured_outputs_config"}, "there is one engine for the forms of answers"),
      ignored_switch({"guided_decoding_disable_fallback"},
                     "there is one engine for the forms of answers"),
      unavailable({"guided_decoding_disable_any_whitespace"},
                  "where JSON has white space is the model's choice"),
      unavailable({"guided_decoding_disable_additional_properties"},
                  "schemas say it themselves, by additionalProperties"),
      unavailable({"return_tokens_as_token_ids", "enable_force_include_usage",
                   "structured_outputs_regex", "vllm_structured_outputs_regex",
                   "vllm_guided_decoding_regex", "presence_penalty", "frequency_penalty",
                   "num_return_sequences", "best_of", "num_generations", "n_samples_per_prompt"},
                  "requests ask for it themselves", {"0", "0.0", "1", "false", "none"}),
      ignored({"logprobs", "top_logprobs"}, "requests ask for them"),
      unavailable({"skip_special_tokens"}, "requests ask for it themselves", {"true"}),
      ignored({"limit_mm_per_prompt", "vllm_limit_mm_per_prompt", "mm_processor_cache_gb",
               "mm_processor_cache_type", "mm_shm_cache_max_object_size_mb", "mm_encoder_tp_mode",
               "mm_encoder_attn_backend"},
              "a request may have as many pictures as its window has room for"),
      ignored_switch({"disable_mm_preprocessor_cache", "skip_mm_profiling"},
                     "a request may have as many pictures as its window has room for"),
      unavailable({"mm_processor_kwargs", "media_io_kwargs", "video_pruning_rate"},
                  "pictures are sized by --max_pixels, --min_pixels and their like"),
      unavailable({"allowed_local_media_path"}, "requests bring their pictures as data: URLs"),
      unavailable({"enable_prompt_embeds", "enable_mm_embeds"},
                  "prompts are text, ids or messages"),
      unavailable({"middleware", "tool_parser_plugin", "reasoning_parser_plugin", "worker_cls",
                   "worker_extension_cls", "scheduler_cls", "logits_processors",
                   "logits_processor_pattern", "io_processor_plugin"},
                  "no Python is ever run", {"auto", "none"}),
      unavailable({"tool_server"}, "clients run the tools that a model calls"),
      unavailable({"enable_server_load_tracking", "enable_tokenizer_info_endpoint",
                   "enable_per_request_metrics", "enable_sleep_mode", "tokens_only"},
                  "there is no such route", {}, tr("GET /metrics has the server's figures")),
  };
}

std::vector<OptionSpec> how_it_listens() {
  constexpr const char* kLog = "--log_requests logs requests, without their texts";
  return {
      ignored({"uvicorn_log_level", "log_interval", "log_level", "log_config_file", "max_log_len",
               "disable_access_log_for_endpoints", "show_hidden_metrics_for_version"},
              kLog),
      ignored_list({"collect_detailed_traces"}, kLog),
      ignored_switch({"disable_uvicorn_access_log", "enable_log_deltas", "log_error_stack",
                      "kv_cache_metrics"},
                     kLog),
      unavailable({"enable_log_outputs"}, "texts are never logged"),
      unavailable({"otlp_traces_endpoint"}, "nothing is sent anywhere"),
      ignored({"allowed_methods", "allowed_headers"},
              "what the routes take is allowed to --allowed-origins"),
      unavailable({"allow_credentials"}, "keys come in a header, never in cookies"),
      ignored({"h11_max_incomplete_event_size", "h11_max_header_count"},
              "--max_body_mb limits bodies; limits of headers are fixed"),
      ignored_switch(
          {"disable_fastapi_docs", "enable_offline_docs", "disable_frontend_multiprocessing"},
          "there are no pages of documents, and one process listens"),
      unavailable({"ssl_ca_certs", "ssl_cert_reqs", "ssl_ciphers", "enable_ssl_refresh"},
                  "clients show keys, not certificates: --api-key", {"0", "false", "none"}),
      unavailable({"uds", "headless", "root_path"}, "it listens at --host and --port", {},
                  tr("a proxy before it may have sockets and paths of its own")),
      unavailable({"kv_transfer_config", "kv_events_config", "ec_transfer_config"},
                  "one server reads prompts and answers them"),
  };
}

}  // namespace

std::vector<OptionSpec> foreign_serve_options() {
  return joined({what_is_served(), what_requests_may(), how_it_listens()});
}

}  // namespace danlu::cli
