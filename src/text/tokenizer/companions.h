// text/tokenizer/companions.h: the small files that lie beside a tokenizer's vocabulary.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer/added_tokens.h"

namespace danlu::text {

/// What tokenizer_config.json, special_tokens_map.json, added_tokens.json and chat_template.* say.
struct Companions {
  Json config = Json::object();  ///< tokenizer_config.json
  SpecialTokens special;
  std::vector<AddedToken> added;  ///< tokens with ids: added_tokens_decoder, added_tokens.json
  std::string chat_template;
  std::string tool_template;  ///< the one named "tool_use"
  std::vector<std::filesystem::path> files;  ///< those that were there

  std::string tokenizer_class() const;
  /// config[key] if it is a boolean.
  std::optional<bool> flag(const char* key) const;
};

/// Reads what is present in `directory`. Errors: ModelError naming file and key.
Companions read_companions(const std::filesystem::path& directory);

/// The same of a tokenizer_config.json in memory, beside no other file.
Companions companions_of(Json config, const std::string& origin);

/// Every token that SpecialTokens names, once each.
std::vector<std::string> named_tokens(const SpecialTokens& special);

/// Adds the companions' tokens to `added`: those with ids as they are, named ones if
/// `find(content)` knows an id for them (it returns -1 otherwise).
void add_companion_tokens(const Companions& companions,
                          FunctionRef<TokenId(const std::string&)> find, AddedTokens& added);

}  // namespace danlu::text
