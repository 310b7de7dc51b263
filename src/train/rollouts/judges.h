// train/rollouts/judges.h: what reward models need to judge answers as ids: how these end, and the
// same tokens.
#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::train {

/// The token that ends an answer: the template's, else the tokenizer's end of text.
std::optional<text::TokenId> end_of_answers(const text::ChatEncoder* encoder,
                                            const std::vector<text::TokenId>& stop_ids,
                                            const text::Tokenizer& tokenizer);

/// What the template puts behind the token that ends an answer.
std::vector<text::TokenId> tail_of_answers(const text::ChatEncoder* encoder,
                                           const std::vector<text::TokenId>& stop_ids);

/// The last part of judges[own]'s path, or as many as no other judge has.
std::string name_of_judge(const std::vector<std::filesystem::path>& judges, size_t own);

/// Says that the base of such a judge has other numbers than its files: those of NF4, on which its
/// adapters were trained. adapters: of a judge, or empty.
void say_trained_base(const std::filesystem::path& adapters);

/// Errors: ModelError if the tokenizer beside a model gives an id to another token than `own`.
/// named: the flag and its value; hint: beside that one of the same family does.
void require_same_tokens(const text::Tokenizer& own, const std::string& named,
                         const std::filesystem::path& tokenizer, const std::string& hint);
/// The same of a judge of rollouts.
void require_same_tokens(const text::Tokenizer& own, const std::string& named,
                         const std::filesystem::path& tokenizer);

}  // namespace danlu::train
