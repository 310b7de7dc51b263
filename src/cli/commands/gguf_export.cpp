#include "cli/commands/gguf_export.h"

namespace danlu::cli {

using weights::gguf::Metadata;

void append_vocabulary(const text::GgufVocabulary& vocabulary, Metadata& metadata) {
  const auto add = [&](std::string_view key, weights::gguf::Value value) {
    metadata.emplace_back("tokenizer.ggml." + std::string(key), std::move(value));
  };
  add("model", vocabulary.model);
  add("pre", vocabulary.pre);
  add("tokens", weights::gguf::string_array(vocabulary.tokens));
  if (!vocabulary.scores.empty()) add("scores", weights::gguf::number_array(vocabulary.scores));
  std::vector<int32_t> types;
  types.reserve(vocabulary.types.size());
  for (const text::GgufTokenType type : vocabulary.types)
    types.push_back(static_cast<int32_t>(type));
  add("token_type", weights::gguf::number_array(types));
  // llama.cpp wants the key even where there is nothing to merge.
  if (vocabulary.model == "gpt2") add("merges", weights::gguf::string_array(vocabulary.merges));
  const auto add_id = [&](std::string_view key, const std::optional<int64_t>& id) {
    if (id) add(key, static_cast<uint32_t>(*id));
  };
  add_id("bos_token_id", vocabulary.bos);
  add_id("eos_token_id", vocabulary.eos);
  add_id("unknown_token_id", vocabulary.unk);
  add_id("padding_token_id", vocabulary.pad);
  add("add_bos_token", vocabulary.add_bos);
  add("add_eos_token", vocabulary.add_eos);
  if (vocabulary.add_space_prefix) add("add_space_prefix", *vocabulary.add_space_prefix);
  if (!vocabulary.chat_template.empty())
    metadata.emplace_back("tokenizer.chat_template", vocabulary.chat_template);
}

weights::gguf::ModelPlan plan_gguf(const arch::ModelConfig& config,
                                   const std::vector<weights::TensorInfo>& globals,
                                   const std::filesystem::path& tokenizer_directory,
                                   const weights::gguf::ModelOptions& options) {
  weights::gguf::ModelPlan plan = weights::gguf::plan_model(config, globals, options);
  text::GgufVocabulary vocabulary =
      text::read_gguf_vocabulary(tokenizer_directory, config.vocab_size);
  if (!vocabulary.bos) vocabulary.bos = config.bos_id;
  if (!vocabulary.eos && !config.eos_ids.empty()) vocabulary.eos = config.eos_ids.front();
  append_vocabulary(vocabulary, plan.metadata);
  plan.notes.insert(plan.notes.end(), vocabulary.notes.begin(), vocabulary.notes.end());
  return plan;
}

}  // namespace danlu::cli
