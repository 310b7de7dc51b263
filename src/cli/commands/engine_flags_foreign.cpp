// Flags about engines that vLLM, ms-swift and LLaMA-Factory have for models that answer, and Danlu
// has not. Sources: vLLM 0.11 (engine/arg_utils.py), ms-swift 4 (arguments/), LLaMA-Factory 0.9
// (hparams/).
#include "cli/commands/foreign_options.h"
#include "cli/commands/inference_options.h"

namespace danlu::cli {
namespace {

constexpr const char* kOneEngine = "there is one engine, which plans its passes itself";
constexpr const char* kConfigJson =
    "models follow from their config.json and their tokenizer's files; change them there";

std::vector<OptionSpec> how_weights_are_read() {
  constexpr const char* kFiles = "files say what they are, and are read a tensor at a time";
  return {
      ignored({"config_format", "safetensors_load_strategy", "model_loader_extra_config",
               "pt_load_map_location", "model_impl", "tokenizer_mode", "local_repo_path",
               "init_strategy", "offload_folder", "max_shard_size", "quantization_device_map",
               "device_map", "max_memory", "enable_npu_model_patch", "tuner_backend"},
              kFiles),
      ignored_list({"ignore_patterns"}, kFiles),
      ignored_switch({"low_cpu_mem_usage", "use_tqdm_on_load", "use_swift_lora"}, kFiles),
      unavailable({"load_format"}, "weights are read from files",
                  {"auto", "safetensors", "pt", "hf", "gguf", "mistral", "bitsandbytes"}),
      ignored({"hub_token", "hf_token", "hf_hub_token", "ms_hub_token", "om_hub_token"},
              "HF_TOKEN and MODELSCOPE_API_TOKEN in the environment are the keys of hubs"),
      ignored({"cache_dir", "download_dir"},
              "HF_HOME and MODELSCOPE_CACHE in the environment are where models are kept"),
      unavailable({"revision", "code_revision", "tokenizer_revision", "model_revision"},
                  "models are named as they lie on this machine", {"main", "master"},
                  tr("danlu download ORG/NAME --revision NAME fetches one; name its directory")),
      unavailable({"rope_scaling", "rope_theta", "hf_overrides", "hf_config_path", "model_kwargs",
                   "config_overrides", "disable_sliding_window", "override_attention_dtype",
                   "skip_tokenizer_init", "new_special_tokens_config", "split_special_tokens"},
                  kConfigJson),
      ignored_list({"resize_vocab", "add_tokens", "add_special_tokens", "new_special_tokens"},
                   "a model that was trained with new tokens, or its adapter, brings them"),
      unavailable({"adapter_folder"}, "adapters are named by their directories", {},
                  tr("--adapters DIR")),
      unavailable({"train_from_scratch", "from_scratch"}, "a model that answers has weights"),
      unavailable({"response_prefix"}, "the template writes what stands before an answer"),
      unavailable({"use_kt", "mixture_of_depths", "kt_cpu_activation", "kt_weight_path",
                   "kt_non_expert_weight_path", "kt_expert_checkpoint_path", "kt_use_lora_experts",
                   "kt_lora_expert_num", "kt_lora_expert_intermediate_size"},
                  "this version has no such layers"),
      unavailable({"preserve_thinking"}, "the template says which thoughts of a talk stay"),
      ignored({"tool_format", "agent_template", "init_special_tokens"},
              "tool calls and messages are written and read as the model's template has them"),
      unavailable({"image_do_pan_and_scan", "crop_to_patches", "use_audio_in_video"},
                  "pictures are sized by --max_pixels, --min_pixels and their like"),
      ignored({"audio_sampling_rate"}, "models hear no sound"),
      ignored_switch({"reranker_use_activation"},
                     "models answer here; danlu infer and danlu serve rank documents"),
      unavailable({"hqq_axis"}, "weights are quantised by --quantize q8_0, q4_0 or nf4"),
      ignored({"bnb_4bit_comp_dtype", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage",
               "compute_dtype"},
              "products are computed in --dtype"),
  };
}

std::vector<OptionSpec> how_passes_are_planned() {
  return {
      ignored_list({"cuda_graph_sizes"}, kOneEngine),
      ignored({"max_seq_len_to_capture",
               "compilation_config",
               "additional_config",
               "optimization_level",
               "attention_backend",
               "tokenizer_pool_size",
               "tokenizer_pool_type",
               "max_num_partial_prefills",
               "max_long_partial_prefills",
               "long_prefill_token_threshold",
               "num_lookahead_slots",
               "stream_interval",
               "scheduler_delay_factor",
               "preemption_mode",
               "num_scheduler_steps",
               "prefix_caching_hash_algo",
               "mamba_cache_dtype",
               "mamba_ssm_cache_dtype",
               "mamba_block_size",
               "vllm_max_num_seqs",
               "vllm_gpu_util",
               "sglang_mem_fraction",
               "sglang_lora_backend",
               "lmdeploy_cache_max_entry_count",
               "vllm_mm_processor_cache_gb",
               "template_backend",
               "override_neuron_config",
               "block_diag_attn",
               "use_v1_kernels"},
              kOneEngine),
      ignored({"padding_side"}, "batches hold no padding here"),
      ignored({"model_max_length", "cutoff_len", "seq_length", "max_length"},
              "prompts are asked whole"),
      ignored({"max_model_len", "vllm_max_model_len", "vllm_maxlen", "sglang_maxlen",
               "sglang_context_length", "lmdeploy_session_len"},
              "a prompt and its answer may be as long as the model's window"),
      ignored_switch(
          {"disable_cascade_attn", "disable_async_output_proc", "use_v2_block_manager",
           "kv_sharing_fast_prefill", "disable_chunked_mm_input", "disable_hybrid_kv_cache_manager",
           "async_scheduling", "multi_step_stream_outputs", "vllm_enforce_eager",
           "vllm_use_async_engine", "vllm_disable_cascade_attn", "vllm_enable_prefix_caching",
           "use_vllm", "sglang_disable_cuda_graph", "padding_free", "shift_attn",
           "enable_liger_kernel", "use_unsloth"},
          kOneEngine),
      ignored_switch({"vllm_enable_lora"}, "--adapters names adapters"),
      ignored({"vllm_max_lora_rank"}, "adapters may have any rank"),
      unavailable({"kv_cache_dtype", "calculate_kv_scales", "sglang_kv_cache_dtype",
                   "lmdeploy_quant_policy"},
                  "the KV cache is held in --dtype", {"auto", "0", "false", "none"}),
      unavailable({"cpu_offload_gb", "kv_offloading_size", "kv_offloading_backend"},
                  "weights and KV cache stay on the device", {"0", "0.0", "none"},
                  tr("--quantize makes weights smaller, --max_model_len the KV cache")),
      unavailable({"vllm_config", "vllm_engine_kwargs", "sglang_config"},
                  "what stands in them are flags of their own here", {"{}", "none"},
                  tr("danlu serve --help lists them")),
      unavailable({"speculative_model", "num_speculative_tokens", "ngram_prompt_lookup_max",
                   "ngram_prompt_lookup_min", "speculative_max_model_len",
                   "speculative_disable_by_batch_size", "spec_decoding_acceptance_method",
                   "speculative_draft_tensor_parallel_size", "sglang_speculative_algorithm",
                   "sglang_speculative_num_steps", "sglang_speculative_eagle_topk",
                   "sglang_speculative_num_draft_tokens"},
                  "one flag turns speculative decoding on", {},
                  "--speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 4}'"),
  };
}

std::vector<OptionSpec> how_processes_meet() {
  constexpr const char* kStarted = "--tensor_parallel_size starts the processes";
  return {
      ignored({"distributed_executor_backend", "max_parallel_loading_workers", "all2all_backend",
               "eplb_config", "num_redundant_experts", "data_parallel_address",
               "data_parallel_rpc_port", "data_parallel_backend", "vllm_mode"},
              kStarted),
      ignored_switch(
          {"worker_use_ray", "ray_workers_use_nsight", "disable_custom_all_reduce",
           "vllm_disable_custom_all_reduce", "sglang_disable_custom_all_reduce",
           "enable_expert_parallel", "vllm_enable_expert_parallel", "sglang_enable_ep_moe",
           "enable_eplb", "enable_dbo", "aggregate_engine_logging"},
          kStarted),
      unavailable({"pipeline_parallel_size", "vllm_pipeline_parallel_size", "sglang_pp_size",
                   "data_parallel_size", "vllm_data_parallel_size", "sglang_dp_size",
                   "sglang_ep_size", "sglang_enable_dp_attention", "decode_context_parallel_size",
                   "prefill_context_parallel_size", "data_parallel_size_local",
                   "data_parallel_rank", "data_parallel_start_rank", "data_parallel_hybrid_lb",
                   "data_parallel_external_lb", "enable_multimodal_encoder_data_parallel", "tp_2d"},
                  "processes hold parts of every layer: --tensor_parallel_size",
                  {"1", "0", "false", "none"}),
  };
}

std::vector<OptionSpec> how_rows_are_read() {
  constexpr const char* kRows = "every row is asked, in the order of the file";
  return {
      ignored({"split_dataset_ratio", "data_seed", "dataset_num_proc", "stopping_strategy",
               "shuffle_buffer_size", "download_mode", "packing_length", "packing_num_proc",
               "packing_strategy", "mix_strategy"},
              kRows),
      ignored_list(
          {"interleave_prob", "interleave_probs", "train_dataset_mix_ratio", "custom_dataset_info"},
          kRows),
      ignored_switch(
          {"load_from_cache_file", "dataset_shuffle", "val_dataset_shuffle", "streaming",
           "remove_unused_columns", "strict", "lazy_tokenize", "packing",
           "disable_auto_column_mapping", "eval_on_each_dataset", "data_shared_file_system"},
          kRows),
      ignored({"max_batch_size", "val_dataset_sample"}, "danlu infer asks data sets"),
      ignored_switch({"load_data_args"}, "danlu infer asks data sets"),
      unavailable({"result_path"}, "danlu infer and danlu rollout write answers"),
      unavailable({"cached_dataset", "cached_val_dataset", "tokenized_path"},
                  "files of other programs' caches are not read"),
  };
}

}  // namespace

std::vector<OptionSpec> foreign_engine_options() {
  return joined({how_weights_are_read(), how_passes_are_planned(), how_processes_meet(),
                 how_rows_are_read()});
}

}  // namespace danlu::cli
