// Flags of ms-swift's infer, HF's generate scripts and MindSpeed-LLM's inference.py that Danlu does
// not have. What cannot change an answer is taken with a notice; what would is refused.
#include "cli/commands/foreign_options.h"
#include "cli/commands/inference_options.h"

namespace danlu::cli {
std::vector<OptionSpec> foreign_inference_options() {
  return {
      ignored(
          {"infer_backend", "sft_type", "train_type", "tuner_type", "attn_impl", "flash_attn",
           "vllm_gpu_memory_utilization", "gpu_memory_utilization", "vllm_max_model_len",
           "max_model_len", "vllm_tensor_parallel_size", "transformer_impl", "distributed_backend"},
          "there is one engine, and files say what they are"),
      ignored_switch({"use_kv_cache", "use_flash_attn", "use_mcore_models", "use_fused_rmsnorm",
                      "use_fused_swiglu", "use_fused_rotary_pos_emb",
                      "use_rotary_position_embeddings", "no_masked_softmax_fusion",
                      "attention_softmax_in_fp32", "no_gradient_accumulation_fusion", "use_cache"},
                     "keys and values are always cached; there is one engine"),
      ignored_switch({"trust_remote_code", "use_fast_tokenizer", "tokenizer_not_use_fast"},
                     "no code of a model is ever run"),
      ignored({"tokenizer_type", "tokenizer_name_or_path", "tokenizer_model", "tokenizer_path",
               "make_vocab_size_divisible_by", "padded_vocab_size"},
              "the tokenizer is the model's own"),
      ignored({"num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads",
               "num_query_groups", "kv_channels", "max_position_embeddings", "seq_length",
               "normalization", "norm_epsilon", "position_embedding_type", "rotary_base",
               "init_method_std", "attention_dropout", "hidden_dropout", "vocab_size"},
              "the architecture follows from config.json"),
      ignored_switch({"group_query_attention", "swiglu", "untie_embeddings_and_output_weights",
                      "disable_bias_linear", "add_qkv_bias", "qk_layernorm"},
                     "the architecture follows from config.json"),
      ignored({"micro_batch_size", "global_batch_size", "lora_r", "lora_rank", "lora_alpha",
               "lora_target_modules"},
              "requests set the batch, an adapter's files its shape"),
      ignored_switch({"no_load_optim", "no_load_rng", "exit_on_missing_checkpoint"},
                     "weights alone are loaded"),
      ignored_switch({"hf_chat_template"}, "the model's own chat template is what is used anyway"),
      ignored_switch({"merge_lora", "safe_serialization", "show_dataset_sample", "save_result",
                      "verbose", "use_hf", "check_model_is_latest"},
                     "adapters are applied as they are; danlu merge writes merged models"),
      ignored({"load_args_from_ckpt_dir", "load_args"},
              "what a run recorded is read, and flags outweigh it"),
      unavailable({"tensor_model_parallel_size", "pipeline_model_parallel_size",
                   "tensor_parallel_size", "nproc_per_node"},
                  "this version answers in one process", {"1"}),
      unavailable({"quant_method", "quantization_bit", "load_in_8bit", "load_in_4bit",
                   "bnb_4bit_comp_dtype"},
                  "quantised weights are not in this version"),
      unavailable({"num_return_sequences", "best_of"}, "a prompt gets one answer", {"1"}),
      unavailable({"stop_words", "stop"},
                  "answers end at the tokens that generation_config.json and the template name"),
      unavailable({"presence_penalty", "frequency_penalty", "no_repeat_ngram_size", "typical_p",
                   "diversity_penalty", "num_beam_groups"},
                  "--repetition_penalty is what there is"),
      unavailable({"logprobs", "top_logprobs"}, "answers are text"),
      unavailable({"external_plugins", "custom_register_path"}, "no Python is ever run"),
  };
}

}  // namespace danlu::cli
