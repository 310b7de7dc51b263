#include "cli/commands/gguf_export.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/gguf_header.h"
#include "text/gguf_metadata.h"
#include "text/gguf_tokenizer.h"

namespace danlu::cli {
namespace {

using weights::gguf::Metadata;

/// Copies its entries as they are: whoever wrote them, they go with these weights.
void copy_vocabulary(const std::filesystem::path& file, int64_t vocab_size, Metadata& metadata) {
  const MappedFile mapped(file);
  const gguf::Header header = gguf::parse_header(mapped.bytes(), file.string());
  const auto tokens = text::token_list_in(header.metadata, file.string()).tokens.size();
  if (tokens == 0) {
    throw UsageError(tr("[convert] {} holds no tokenizer, and GGUF holds one", file.string()),
                     tr("name it: --tokenizer-model DIR"));
  }
  if (static_cast<int64_t>(tokens) > vocab_size) {
    throw ModelError(tr("{}: the tokenizer has {} ids, but vocab_size is {}", file.string(), tokens,
                        vocab_size));
  }
  for (const auto& [key, value] : header.metadata) {
    if (key.starts_with("tokenizer.") || key == "danlu.tokenizer")
      metadata.emplace_back(key, value);
  }
}

void add_vocabulary(const arch::ModelConfig& config, const std::filesystem::path& directory,
                    weights::gguf::ModelPlan& plan) {
  text::GgufVocabulary vocabulary = text::read_gguf_vocabulary(directory, config.vocab_size);
  if (!vocabulary.bos) vocabulary.bos = config.bos_id;
  if (!vocabulary.eos && !config.eos_ids.empty()) vocabulary.eos = config.eos_ids.front();
  text::append_vocabulary(vocabulary, plan.metadata);
  // Whoever generates stops at these too.
  const char* const keys[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  size_t next = 0;
  for (const int64_t id : config.eos_ids) {
    if (id == vocabulary.eos || id < 0 || next == std::size(keys)) continue;
    plan.metadata.emplace_back(keys[next++], static_cast<uint32_t>(id));
  }
  plan.notes.insert(plan.notes.end(), vocabulary.notes.begin(), vocabulary.notes.end());
}

}  // namespace

weights::gguf::TensorType gguf_type_named(const std::string& name) {
  using weights::gguf::TensorType;
  static const std::map<std::string, TensorType> kTypes = {{"f32", TensorType::kF32},
                                                           {"f16", TensorType::kF16},
                                                           {"bf16", TensorType::kBF16},
                                                           {"q8_0", TensorType::kQ8_0},
                                                           {"q4_0", TensorType::kQ4_0}};
  return kTypes.at(name);
}

weights::gguf::ModelPlan plan_gguf(const arch::ModelConfig& config,
                                   const std::vector<weights::TensorInfo>& globals,
                                   const std::filesystem::path& tokenizer,
                                   const weights::gguf::ModelOptions& options) {
  weights::gguf::ModelPlan plan = weights::gguf::plan_model(config, globals, options);
  if (text::is_gguf(tokenizer)) {
    copy_vocabulary(tokenizer, config.vocab_size, plan.metadata);
  } else {
    add_vocabulary(config, tokenizer, plan);
  }
  return plan;
}

}  // namespace danlu::cli
