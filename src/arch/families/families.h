// arch/families/families.h: one factory per model family; registry.cpp calls them, nobody else.
#pragma once
#include "arch/model_config.h"

namespace danlu::arch {

Family llama_family();
Family qwen2_family();
Family qwen3_family();
Family mistral_family();
Family baichuan_family();
Family internlm2_family();
Family llama4_text_family();
Family mixtral_family();
Family qwen2_moe_family();
Family qwen3_moe_family();
Family glm4_moe_family();
Family phimoe_family();
Family qwen2_vl_family();
Family qwen2_5_vl_family();
Family deepseek_v2_family();
Family deepseek_v3_family();
Family minicpm3_family();
Family phi3_family();
Family gemma_family();
Family gemma2_family();
Family gemma3_text_family();
Family glm_family();
Family glm4_family();
Family chatglm_family();
Family minicpm_family();
Family internlm3_family();
Family internlm_family();
Family qwen_family();
Family bloom_family();
Family gpt2_family();
Family bert_family();
Family roberta_family();
Family xlm_roberta_family();
Family qwen3_next_family();
Family qwen3_5_text_family();
Family qwen3_5_moe_text_family();

}  // namespace danlu::arch
