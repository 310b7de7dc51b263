// text/query_and_document.h: what a model that ranks is asked about.
#pragma once
#include <string>

#include "base/error.h"
#include "text/conversation.h"

namespace danlu::text {

struct QueryAndDocument {
  std::string instruction = {};  ///< what documents are judged by; "": the template's own
  std::string query = {}, document = {};
};

/// A pair that no id says anything of.
class UnrankablePair : public DataError {
 public:
  /// reason: one that rows are counted by.
  UnrankablePair(const char* reason, const std::string& message)
      : DataError(message), reason_(reason) {}
  const char* reason() const { return reason_; }

 private:
  const char* reason_;
};

/// As messages: the instruction is the system's, the query the user's, the document the
/// assistant's.
Conversation conversation_of(const QueryAndDocument& pair);
/// Errors: UnrankablePair for other messages, or for pictures.
QueryAndDocument query_and_document(const Conversation& pair);

/// The ids at whose last a model says how well they go together. encoder: null for query and
/// document as the tokenizer's own template has two texts (Tokenizer::encode_two), else as one text
/// with its special tokens. most: where it is above 0 and there
/// are more ids, the end of the document is left out. Errors: as ChatEncoder::encode_pair;
/// UnrankablePair where `most` ids have no room for the query alone.
std::vector<TokenId> pair_ids(const Conversation& pair, const Tokenizer& tokenizer,
                              const ChatEncoder* encoder, int64_t most = 0);

}  // namespace danlu::text
