// data/preprocess_output.h: a finished token store into Megatron's files.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/preprocess_report.h"
#include "data/preprocess_store.h"
#include "data/sample_kind.h"

namespace danlu::data {

enum class PackMode {
  kNone,  ///< one document per sample
  kPack,  ///< --pack: greedy, padded to seq_length, mask 1 everywhere
  kNeat,  ///< --neat-pack: the same, mask 1, 2, 3, … per sample and 0 on padding
};

/// `<prefix>_<key>_document`, int32, one document per text. Stream i of `store` holds keys[i].
void write_text_datasets(const TokenStore& store, const std::filesystem::path& prefix,
                         const std::vector<std::string>& keys);

struct PackSettings {
  PackMode mode = PackMode::kNone;
  int64_t seq_length = 0;  ///< REQUIRES: > every sample, when packing
  int32_t pad_id = 0;
};

/// `<prefix>_packed_{input_ids,attention_mask,labels}_document`, int32, from streams 0 (ids) and 1
/// (labels), and, if stream 2 says that samples have pictures or videos, media_output_of(prefix).
/// Sets report->packed_sequences and padding_tokens.
/// Source  MindSpeed-LLM: groups hold at most seq_length - 1 tokens of samples.
void write_instruction_datasets(const TokenStore& store, const std::filesystem::path& prefix,
                                const PackSettings& settings, PreprocessReport* report);

/// Samples of other kinds than kTokens: "<prefix>_packed_<field>_document" each. kPairs:
/// chosen_input_ids, chosen_labels, rejected_input_ids, rejected_labels, and margin if a sample has
/// one; kUnpaired: input_ids, labels, liked; kSteps: input_ids, attention_mask, labels; kPrompts:
/// input_ids, attention_mask, columns, and each additional key. REQUIRES: the streams of
/// num_sample_streams.
void write_kind_datasets(const TokenStore& store, const std::filesystem::path& prefix,
                         SampleKind kind, const std::vector<std::string>& additional_keys);
/// The fields that it writes, without those that samples may lack.
std::vector<std::string> fields_of_kind(SampleKind kind,
                                        const std::vector<std::string>& additional_keys);

}  // namespace danlu::data
