// Flags of lines that ask a model elsewhere are known here: taken, taken with a notice, or refused
// with what to do. Sources: vLLM 0.11 (engine/arg_utils.py, entrypoints/openai/cli_args.py),
// ms-swift 4 (arguments/), LLaMA-Factory 0.9 (hparams/: model, data and generating arguments).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/commands/commands.h"
#include "cli/commands/train_options.h"
#include "options/typed_line.h"

namespace danlu::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const char* const kVllmServe = R"(
additional_config aggregate_engine_logging all2all_backend allow_credentials allowed_headers
allowed_local_media_path allowed_media_domains allowed_methods allowed_origins api_key
api_server_count async_scheduling attention_backend block_size calculate_kv_scales
chat_template chat_template_content_format code_revision collect_detailed_traces
compilation_config config_format convert cpu_offload_gb cuda_graph_sizes data_parallel_address
data_parallel_backend data_parallel_external_lb data_parallel_hybrid_lb data_parallel_rank
data_parallel_rpc_port data_parallel_size data_parallel_size_local data_parallel_start_rank
decode_context_parallel_size default_chat_template_kwargs default_mm_loras device
disable_access_log_for_endpoints disable_async_output_proc disable_cascade_attn
disable_chunked_mm_input disable_custom_all_reduce disable_fastapi_docs
disable_frontend_multiprocessing disable_hybrid_kv_cache_manager disable_log_requests
disable_log_stats disable_mm_preprocessor_cache disable_sliding_window
disable_uvicorn_access_log distributed_executor_backend download_dir dtype ec_transfer_config
enable_auto_tool_choice enable_chunked_prefill enable_dbo enable_eplb enable_expert_parallel
enable_force_include_usage enable_log_deltas enable_log_outputs enable_log_requests enable_lora
enable_lora_bias enable_mm_embeds enable_multimodal_encoder_data_parallel enable_offline_docs
enable_per_request_metrics enable_prefix_caching enable_prompt_adapter enable_prompt_embeds
enable_prompt_tokens_details enable_reasoning enable_request_id_headers
enable_server_load_tracking enable_sleep_mode enable_ssl_refresh enable_tokenizer_info_endpoint
enforce_eager eplb_config exclude_tools_when_tool_choice_none fingerprint_mode
fingerprint_value fully_sharded_loras generation_config gpu_memory_utilization
guided_decoding_backend guided_decoding_disable_additional_properties
guided_decoding_disable_any_whitespace guided_decoding_disable_fallback h11_max_header_count
h11_max_incomplete_event_size headless hf_config_path hf_overrides hf_token host
ignore_patterns interleave_mm_strings io_processor_plugin kv_cache_dtype kv_cache_memory_bytes
kv_cache_metrics kv_events_config kv_offloading_backend kv_offloading_size
kv_sharing_fast_prefill kv_transfer_config limit_mm_per_prompt load_format log_config_file
log_error_stack logits_processor_pattern logits_processors logprobs_mode
long_lora_scaling_factors long_prefill_token_threshold lora_dtype lora_extra_vocab_size
lora_modules mamba_block_size mamba_cache_dtype mamba_ssm_cache_dtype master_addr master_port
max_cpu_loras max_log_len max_logprobs max_long_partial_prefills max_lora_rank max_loras
max_model_len max_num_batched_tokens max_num_partial_prefills max_num_seqs
max_parallel_loading_workers max_prompt_adapter_token max_prompt_adapters
max_seq_len_to_capture media_io_kwargs middleware mm_encoder_attn_backend mm_encoder_tp_mode
mm_processor_cache_gb mm_processor_cache_type mm_processor_kwargs
mm_shm_cache_max_object_size_mb model_impl model_loader_extra_config multi_step_stream_outputs
ngram_prompt_lookup_max ngram_prompt_lookup_min nnodes node_rank num_gpu_blocks_override
num_lookahead_slots num_redundant_experts num_scheduler_steps num_speculative_tokens
optimization_level otlp_traces_endpoint override_attention_dtype override_generation_config
override_neuron_config override_pooler_config pipeline_parallel_size pooler_config port
preemption_mode prefill_context_parallel_size prefix_caching_hash_algo prompt_adapters
pt_load_map_location qlora_adapter_name_or_path quantization ray_workers_use_nsight
reasoning_parser reasoning_parser_plugin response_role return_tokens_as_token_ids revision
root_path rope_scaling rope_theta runner safetensors_load_strategy scheduler_cls
scheduler_delay_factor scheduling_policy seed served_model_name show_hidden_metrics_for_version
shutdown_timeout skip_mm_profiling skip_tokenizer_init spec_decoding_acceptance_method
speculative_config speculative_disable_by_batch_size speculative_draft_tensor_parallel_size
speculative_max_model_len speculative_model ssl_ca_certs ssl_cert_reqs ssl_certfile ssl_ciphers
ssl_keyfile stream_interval structured_outputs_config swap_space task tensor_parallel_size
tokenizer tokenizer_mode tokenizer_pool_size tokenizer_pool_type tokenizer_revision tokens_only
tool_call_parser tool_parser_plugin tool_server trust_remote_code trust_request_chat_template
uds use_tqdm_on_load use_v2_block_manager uvicorn_log_level video_pruning_rate worker_cls
worker_extension_cls worker_use_ray)";

/// BaseArguments, InferArguments and DeployArguments.
const char* const kSwift = R"(
adapters add_non_thinking_prefix agent_template api_key async_generate attn_impl
bnb_4bit_compute_dtype bnb_4bit_quant_storage bnb_4bit_quant_type bnb_4bit_use_double_quant
cached_dataset cached_val_dataset columns custom_dataset_info custom_register_path data_seed
dataset dataset_num_proc dataset_shuffle ddp_backend ddp_timeout device_map
disable_auto_column_mapping disable_ignore_empty_think download_mode
enable_flattened_weight_sync enable_npu_model_patch enable_thinking experts_impl
external_plugins generation_batch_size host hqq_axis hub_token ignore_args_error infer_backend
init_strategy interleave_prob is_binary_loss_scale lazy_tokenize lmdeploy_cache_max_entry_count
lmdeploy_quant_policy lmdeploy_session_len lmdeploy_tp lmdeploy_vision_batch_size load_args
load_data_args load_from_cache_file local_repo_path log_interval log_level logprobs lora_rank
loss_scale max_batch_size max_length max_logprobs max_memory max_model_len max_new_tokens
max_pixels max_shard_size merge_lora metric min_p model model_author model_kwargs model_name
model_revision model_type move_model_batches new_special_tokens norm_bbox num_beams num_labels
offload_model offload_optimizer owned_by packing packing_length packing_num_proc
packing_strategy padding_free padding_side port preserve_thinking problem_type quant_bits
quant_method remove_unused_columns repetition_penalty reranker_use_activation response_prefix
result_path rope_scaling safe_serialization seed sequence_parallel_size served_model_name
sglang_context_length sglang_disable_cuda_graph sglang_disable_custom_all_reduce sglang_dp_size
sglang_enable_dp_attention sglang_enable_ep_moe sglang_ep_size sglang_kv_cache_dtype
sglang_mem_fraction_static sglang_pp_size sglang_quantization sglang_speculative_algorithm
sglang_speculative_eagle_topk sglang_speculative_num_draft_tokens sglang_speculative_num_steps
sglang_tp_size shuffle_buffer_size sleep_level split_dataset_ratio ssl_certfile ssl_keyfile
steps_per_generation stop_words stopping_strategy stream streaming strict
structured_outputs_regex system task_type teacher_tag_key temperature template template_backend
top_k top_logprobs top_p torch_dtype truncation_strategy tuner_backend tuner_type
use_chat_template use_hf use_swift_lora use_vllm val_dataset val_dataset_sample
val_dataset_shuffle verbose vllm_data_parallel_size vllm_disable_cascade_attn
vllm_disable_custom_all_reduce vllm_enable_expert_parallel vllm_enable_lora
vllm_enable_prefix_caching vllm_enforce_eager vllm_engine_kwargs vllm_gpu_memory_utilization
vllm_limit_mm_per_prompt vllm_max_lora_rank vllm_max_model_len vllm_max_num_seqs
vllm_mm_processor_cache_gb vllm_mode vllm_pipeline_parallel_size vllm_quantization
vllm_reasoning_parser vllm_server_base_url vllm_server_group_port vllm_server_host
vllm_server_port vllm_server_timeout vllm_speculative_config vllm_tensor_parallel_size
vllm_use_async_engine wandb_log_unique_prompts write_batch_size)";

/// SamplingArguments.
const char* const kSwiftSample = R"(
cache_files data_range easy_query_threshold engine_kwargs n_best_to_keep num_return_sequences
num_sampling_batch_size num_sampling_batches orm_model output_dir output_file
override_exist_file prm_model prm_threshold resume sampler_engine sampler_type temperature)";

const char* const kLlamaFactory = R"(
adapter_folder adapter_name_or_path add_special_tokens add_tokens audio_sampling_rate
block_diag_attn buffer_size cache_dir compute_dtype crop_to_patches cutoff_len
data_shared_file_system dataset dataset_dir default_system device_map
disable_gradient_checkpointing do_sample double_quantization enable_liger_kernel
enable_thinking eval_dataset eval_num_beams eval_on_each_dataset flash_attn hf_hub_token
ignore_pad_token_for_loss image_do_pan_and_scan image_max_pixels image_min_pixels infer_backend
infer_dtype init_special_tokens interleave_probs kt_cpu_activation kt_expert_checkpoint_path
kt_lora_expert_intermediate_size kt_lora_expert_num kt_non_expert_weight_path
kt_use_lora_experts kt_weight_path length_penalty low_cpu_mem_usage mask_history max_length
max_new_tokens max_samples media_dir mix_strategy mixture_of_depths model_max_length
model_name_or_path model_revision moe_aux_loss_coef ms_hub_token neat_packing
new_special_tokens_config num_beams offload_folder om_hub_token overwrite_cache packing
preprocessing_batch_size preprocessing_num_workers preserve_thinking print_param_status
quantization_bit quantization_device_map quantization_method quantization_type
repetition_penalty resize_vocab rope_scaling sglang_config sglang_lora_backend sglang_maxlen
sglang_mem_fraction sglang_tp_size shift_attn skip_special_tokens split_special_tokens
streaming temperature template tokenized_path tool_format top_k top_p train_from_scratch
train_on_prompt trust_remote_code upcast_layernorm upcast_lmhead_output use_audio_in_video
use_fast_tokenizer use_kt use_kv_cache use_reentrant_gc use_unsloth use_unsloth_gc
use_v1_kernels val_size video_fps video_max_pixels video_maxlen video_min_pixels vllm_config
vllm_enforce_eager vllm_gpu_util vllm_max_lora_rank vllm_maxlen)";

Words unknown_to(const OptionTable& table, const char* names, const Words& others_own = {}) {
  Words unknown;
  std::istringstream words(names);
  for (std::string name; words >> name;) {
    if (std::find(others_own.begin(), others_own.end(), name) != others_own.end()) continue;
    if (!table.find_spec(name)) unknown.push_back(name);
  }
  return unknown;
}

TEST(OtherServers, EveryFlagIsKnown) {
  EXPECT_THAT(unknown_to(cli::serve_options(), kVllmServe), IsEmpty());
  EXPECT_THAT(unknown_to(cli::serve_options(), kSwift), IsEmpty());
  EXPECT_THAT(unknown_to(cli::serve_options(), kLlamaFactory), IsEmpty());
  const Words of_servers = {"host",        "port",      "api_key",           "ssl_certfile",
                            "ssl_keyfile", "log_level", "served_model_name", "owned_by",
                            "max_logprobs"};
  for (const OptionTable& table : {cli::infer_options(), cli::chat_options()}) {
    EXPECT_THAT(unknown_to(table, kSwift, of_servers), IsEmpty()) << table.command();
    EXPECT_THAT(unknown_to(table, kLlamaFactory), IsEmpty()) << table.command();
  }
  EXPECT_THAT(unknown_to(cli::rollout_options(), kSwiftSample), IsEmpty());
}

std::string refusal_of(const OptionTable& table, const Words& words) {
  try {
    table.parse(Words{"--model", "m"} + words);
  } catch (const UsageError& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "taken";
}

TEST(OtherServers, WhatChangesAnswersIsRefusedWithWhatToDo) {
  const OptionTable serve = cli::serve_options();
  EXPECT_THAT(refusal_of(serve, {"--revision", "v2"}), HasSubstr("danlu download"));
  EXPECT_THAT(refusal_of(serve, {"--disable-sliding-window", "true"}), HasSubstr("config.json"));
  EXPECT_THAT(refusal_of(serve, {"--quantization", "awq"}), HasSubstr("bitsandbytes"));
  EXPECT_THAT(refusal_of(serve, {"--pipeline-parallel-size", "2"}),
              HasSubstr("--tensor_parallel_size"));
  EXPECT_THAT(refusal_of(serve, {"--kv-cache-dtype", "fp8"}), HasSubstr("--dtype"));
  EXPECT_THAT(refusal_of(serve, {"--num-speculative-tokens", "3"}),
              HasSubstr("--speculative-config"));
  EXPECT_THAT(refusal_of(serve, {"--enable-log-outputs"}), HasSubstr("never logged"));
  EXPECT_THAT(refusal_of(cli::infer_options(), {"--resume_from_checkpoint", "run/last"}),
              HasSubstr("--adapters DIR"));
  EXPECT_THAT(refusal_of(cli::rollout_options(),
                         {"--dataset", "d", "--output", "o", "--data_range", "1", "3"}),
              HasSubstr("--max_samples"));
}

TEST(OtherServers, WhatChangesNothingIsTaken) {
  const OptionTable serve = cli::serve_options();
  const std::vector<Words> lines = {
      {"--revision", "main"},
      {"--dtype", "half"},
      {"--vllm_enable_lora", "true", "--vllm_max_lora_rank", "64"},
      {"--reasoning-parser", "deepseek_r1", "--enable-reasoning"},
      {"--kv-cache-dtype", "auto", "--load-format", "safetensors"},
      {"--no-enable-prefix-caching"},
      {"--finetuning_type", "lora", "--cutoff_len", "1024", "--dataset", "a", "b"},
      {"--task", "generate", "--distributed-executor-backend", "mp", "--disable-custom-all-reduce"},
      {"--default-chat-template-kwargs", R"({"enable_thinking": false})"}};
  for (const Words& line : lines) EXPECT_EQ(refusal_of(serve, line), "taken") << line[0];
  const Options options = serve.parse({"--model", "m", "--vllm_max_lora_rank", "64", "--dtype",
                                       "half", "--chat-template", "a.jinja"});
  EXPECT_EQ(options.get_int("max_lora_rank"), 64);
  EXPECT_EQ(options.get_string("prompt_type"), "a.jinja");
}

/// The verbs that ask a model, with what their tables require.
std::vector<std::pair<OptionTable, Words>> asking_tables() {
  return {{cli::infer_options(), {"--prompt", "x"}},
          {cli::chat_options(), {}},
          {cli::serve_options(), {}},
          {cli::eval_options(), {}},
          {cli::rollout_options(), {"--dataset", "d", "--output", "o"}}};
}

TEST(OtherServers, HowTrainingDrawsItsAnswersIsNotLeftAlone) {
  // These say how steps learn from answers.
  const Words of_steps = {"partial_rollout_max_split", "num_mini_batches", "steps_per_generation",
                          "generation_batch_size",     "num_iterations",   "log_completions"};
  for (const OptionSpec& spec : cli::train_reinforcement_options()) {
    if (spec.group != "Answers that the model draws") continue;
    if (std::count(of_steps.begin(), of_steps.end(), spec.name) > 0) continue;
    Words names = spec.aliases;
    names.push_back(spec.name);
    for (const auto& [table, words] : asking_tables()) {
      for (const std::string& name : names) {
        const OptionSpec* own = table.find_spec(name);
        ASSERT_NE(own, nullptr) << table.command() << " " << name;
        EXPECT_THAT(own->ignored_because, Not(HasSubstr("for training")))
            << table.command() << " " << name;
      }
    }
  }
}

TEST(OtherServers, WhatTrainingRefusesIsNotTakenWhereItWouldChangeAnswers) {
  const std::vector<Words> lines = {{"--add_bos_token", "false"},
                                    {"--config_overrides", "{\"a\": 1}"},
                                    {"--fp8", "true"},
                                    {"--pure_bf16", "true"},
                                    {"--tp_2d", "true"},
                                    {"--tokenized_path", "d"},
                                    {"--use_gym_env", "true"},
                                    {"--vocab_file", "v.json"},
                                    {"--rl_config", "c.yaml"},
                                    {"--dry_run"},
                                    {"--write_samples", "d"}};
  for (const auto& [table, words] : asking_tables()) {
    for (const Words& line : lines) {
      EXPECT_THAT(refusal_of(table, words + line), HasSubstr("is not available"))
          << table.command() << " " << line[0];
    }
    EXPECT_EQ(refusal_of(table, words + Words{"--dry_run", "false"}), "taken");
    // What is about the loss and the optimizer has nothing to change.
    EXPECT_EQ(refusal_of(table, words + Words{"--use_galore", "true", "--label_smoothing_factor",
                                              "0.1", "--teacher_adapters", "a"}),
              "taken");
  }
  const OptionTable infer = cli::infer_options();
  const Options own =
      infer.parse({"--model", "m", "--max_completion_length", "4", "--templates_file", "f",
                   "--vllm_guided_decoding_regex", "[0-9]+", "--eval_num_beams", "3"});
  EXPECT_EQ(own.get_int("max_new_tokens"), 4);
  EXPECT_EQ(own.get_string("prompt_type_path"), "f");
  EXPECT_EQ(own.get_string("guided_regex"), "[0-9]+");
  EXPECT_EQ(own.get_int("num_beams"), 3);
  EXPECT_THAT(refusal_of(infer, {"--num_generations", "4"}), HasSubstr("one answer"));
  EXPECT_THAT(refusal_of(infer, {"--reward_funcs", "accuracy"}), HasSubstr("danlu rollout"));
  EXPECT_THAT(refusal_of(cli::chat_options(), {"--task_type", "seq_cls"}),
              HasSubstr("danlu infer"));
}

TEST(OtherServers, ExaminationsAreDrawnAsGenKwargsSay) {
  const OptionTable eval = cli::eval_options();
  for (const Words& line : {Words{"--repetition_penalty", "1.2"},
                            {"--do_sample", "true"},
                            {"--num_beams", "4"},
                            {"--min_p", "0.1"},
                            {"--presence_penalty", "1"},
                            {"--length_penalty", "2"}})
    EXPECT_THAT(refusal_of(eval, line), HasSubstr("--gen_kwargs")) << line[0];
  for (const Words& line : {Words{"--repetition_penalty", "1.0"},
                            {"--do_sample", "false"},
                            {"--num_beams", "1"},
                            {"--min_p", "0"}})
    EXPECT_EQ(refusal_of(eval, line), "taken") << line[0];
  EXPECT_EQ(eval.parse({"--model", "m", "--max_completion_length", "4"}).get_int("max_new_tokens"),
            4);
}

TEST(OtherServers, SwitchesOfVllmMayBeNegated) {
  const OptionTable serve = cli::serve_options();
  for (const char* flag :
       {"--no-calculate-kv-scales", "--no-enable-prompt-embeds", "--no-enable-sleep-mode",
        "--no-enable-lora-bias", "--no-skip-tokenizer-init", "--no-data-parallel-hybrid-lb",
        "--no-enable-eplb", "--no-use-tqdm-on-load"})
    EXPECT_EQ(refusal_of(serve, {flag}), "taken") << flag;
  // Off is not what it is here.
  EXPECT_THAT(refusal_of(serve, {"--no-skip-special-tokens"}), HasSubstr("is not available"));
}

TEST(OtherServers, ListsHaveAllOfTheirWords) {
  EXPECT_THAT(cli::serve_options().parse({"m", "--cuda-graph-sizes", "1", "2", "4"}).positional(),
              IsEmpty());
  for (const Words& line : {Words{"--interleave_prob", "0.3", "0.7"},
                            {"--interleave_probs", "0.3", "0.7"},
                            {"--custom_dataset_info", "a", "b"},
                            {"--profile_ranks", "0", "1"}}) {
    const Options options = cli::infer_options().parse(Words{"--prompt", "x"} + line);
    EXPECT_THAT(options.positional(), IsEmpty()) << line[0];
    EXPECT_FALSE(options.has_value("model")) << line[0];
  }
}

TEST(OtherServers, NothingIsSaidAsPythonSaysIt) {
  const OptionTable serve = cli::serve_options();
  for (const char* flag : {"--revision", "--load_format", "--kv_cache_dtype", "--cpu_offload_gb",
                           "--pipeline_parallel_size"}) {
    for (const char* nothing : {"None", "null", ""})
      EXPECT_EQ(refusal_of(serve, {flag, nothing}), "taken") << flag << " " << nothing;
  }
}

TEST(OtherServers, MisspeltFlagsAreThoseThatHaveAnEffect) {
  EXPECT_THAT(refusal_of(cli::infer_options(), {"--max_new_token", "4"}),
              HasSubstr("did you mean --max_new_tokens?"));
  for (const auto& [table, words] : asking_tables()) {
    for (const OptionSpec& spec : table.specs()) {
      const bool is_inert = !spec.ignored_because.empty() || !spec.unavailable_because.empty();
      if (!is_inert) EXPECT_FALSE(spec.is_hidden) << spec.name;
    }
  }
  for (const cli::Command& command : cli::commands()) {
    const OptionTable table = command.options();
    for (const OptionSpec& spec : table.specs())
      EXPECT_NE(spec.help, "") << command.name << " " << spec.name;
  }
}

}  // namespace
}  // namespace danlu::test
