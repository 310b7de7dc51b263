#include "grammar/compiler.h"

#include <algorithm>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

#include "grammar/grammar.h"
#include "grammar/json_parts.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/tool_grammar.h"

namespace danlu::grammar {
namespace {

constexpr size_t kKeptGrammars = 32;
constexpr size_t kMaxTokenBytes = 0x100 - kFirstTokenByte;

class FollowedGrammar final : public text::TokenConstraint {
 public:
  explicit FollowedGrammar(std::shared_ptr<const Grammar> grammar)
      : grammar_(std::move(grammar)), place_(grammar_->start()) {}

  bool prepare(int64_t& work) override {
    if (!mask_) mask_ = has_ended_ ? grammar_->stops() : grammar_->allowed(place_, work);
    return mask_ != nullptr;
  }

  std::span<const uint64_t> allowed() override {
    int64_t all = INT64_MAX;
    while (!prepare(all)) all = INT64_MAX;
    return *mask_;
  }

  void accept(text::TokenId id) override {
    const auto mask = std::exchange(mask_, nullptr);
    if (grammar_->is_stop(id)) {
      has_ended_ = true;
      return;
    }
    const bool may_come = !has_ended_ && (mask ? is_in(*mask, id) : grammar_->advance(place_, id));
    if (!may_come) throw InternalError("[grammar] a token came that was not allowed");
    if (mask) grammar_->advance_later(place_, id);
  }

  std::unique_ptr<text::TokenConstraint> clone() const override {
    return std::make_unique<FollowedGrammar>(*this);
  }

 private:
  static bool is_in(const Mask& mask, text::TokenId id) {
    const auto word = static_cast<size_t>(id) / 64;
    return id >= 0 && word < mask.size() && (mask[word] >> (id % 64) & 1) != 0;
  }

  std::shared_ptr<const Grammar> grammar_;
  Grammar::Place place_;
  std::shared_ptr<const Mask> mask_;
  bool has_ended_ = false;
};

}  // namespace

struct Compiler::Parts {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<text::TokenId> stop_ids;
  std::shared_ptr<const Vocabulary> vocabulary;
  size_t num_ids = 0;
  std::mutex mutex;
  std::list<std::pair<std::string, std::shared_ptr<const Grammar>>> kept;  ///< last used first

  using Write = std::function<void(AutomatonBuilder& builder, const Rule& root,
                                   std::vector<TokenByte>& token_bytes)>;
  std::shared_ptr<const Grammar> known(const std::string& key) {
    const std::lock_guard lock(mutex);
    const auto found = std::find_if(kept.begin(), kept.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    if (found == kept.end()) return nullptr;
    kept.splice(kept.begin(), kept, found);
    return kept.front().second;
  }

  /// The grammar of `key`, which `write` makes if it is not kept. Nobody waits for it who asks for
  /// another one.
  std::shared_ptr<const Grammar> find(const std::string& key, const Write& write) {
    if (auto found = known(key)) return found;
    AutomatonBuilder builder;
    const Rule root = builder.add_rule();
    std::vector<TokenByte> token_bytes;
    write(builder, root, token_bytes);
    auto grammar = std::make_shared<Grammar>(std::move(builder).finish(root), vocabulary, stop_ids,
                                             num_ids, std::move(token_bytes));
    const std::lock_guard lock(mutex);
    kept.emplace_front(key, grammar);
    if (kept.size() > kKeptGrammars) kept.pop_back();
    return grammar;
  }

  /// A mark as the special token that it is to the model.
  void add_mark(AutomatonBuilder& builder, State from, State to, const std::string& mark,
                std::vector<TokenByte>& token_bytes) const {
    const auto id = tokenizer->token_to_id(mark);
    if (!id || !tokenizer->is_special(*id)) return builder.literal(from, to, mark);
    auto known = std::find_if(token_bytes.begin(), token_bytes.end(),
                              [&](const TokenByte& token) { return token.id == *id; });
    if (known == token_bytes.end()) {
      if (token_bytes.size() == kMaxTokenBytes) return builder.literal(from, to, mark);
      token_bytes.push_back({*id, static_cast<uint8_t>(kFirstTokenByte + token_bytes.size())});
      known = token_bytes.end() - 1;
    }
    builder.bytes(from, to, known->byte, known->byte);
  }
};

Compiler::Compiler(std::shared_ptr<const text::Tokenizer> tokenizer,
                   std::vector<text::TokenId> stop_ids)
    : parts_(std::make_unique<Parts>()) {
  if (stop_ids.empty())
    throw UsageError(tr("answers cannot be constrained without a token that ends them"));
  parts_->vocabulary = std::make_shared<Vocabulary>(*tokenizer, stop_ids);
  parts_->num_ids = tokenizer->size();
  for (const text::TokenId id : stop_ids)
    parts_->num_ids = std::max(parts_->num_ids, static_cast<size_t>(id) + 1);
  parts_->tokenizer = std::move(tokenizer);
  parts_->stop_ids = std::move(stop_ids);
}

Compiler::~Compiler() = default;

std::shared_ptr<const Grammar> Compiler::json_schema(const Json& schema) const {
  return parts_->find("schema " + dump_text(schema), [&](auto& builder, const Rule& root, auto&) {
    JsonParts parts(builder);
    SchemaWriter(builder, parts, schema, "schema").add(root.begin, root.end);
  });
}

std::shared_ptr<const Grammar> Compiler::json_object() const {
  return parts_->find("object", [&](auto& builder, const Rule& root, auto&) {
    JsonParts(builder).any_object(root.begin, root.end);
  });
}

std::shared_ptr<const Grammar> Compiler::regex(const std::string& pattern) const {
  return parts_->find("regex " + pattern, [&](auto& builder, const Rule& root, auto&) {
    add_regex(builder, root.begin, root.end, pattern, RegexUse::kWhole, Spelling::kPlain);
  });
}

std::shared_ptr<const Grammar> Compiler::choice(std::span<const std::string> choices) const {
  std::string key = "choice";
  for (const std::string& one : choices) {
    if (one.empty()) throw GrammarError(tr("a choice must not be empty"));
    key += " " + std::to_string(one.size()) + " " + one;
  }
  if (choices.empty()) throw GrammarError(tr("there is nothing to choose from"));
  return parts_->find(key, [&](auto& builder, const Rule& root, auto&) {
    builder.words(root.begin, root.end, choices);
  });
}

std::shared_ptr<const Grammar> Compiler::tool_calls(const ToolCallRules& rules) const {
  const std::string key = dump_text(Json::array(
      {"tools", text::tool_format_name(rules.format), rules.tools, rules.name, rules.many}));
  return parts_->find(key, [&](auto& builder, const Rule& root, auto& token_bytes) {
    add_tool_calls(builder, root.begin, root.end, rules,
                   [&](State from, State to, const std::string& mark) {
                     parts_->add_mark(builder, from, to, mark, token_bytes);
                   });
  });
}

std::unique_ptr<text::TokenConstraint> Compiler::begin(
    std::shared_ptr<const Grammar> grammar) const {
  return std::make_unique<FollowedGrammar>(std::move(grammar));
}

}  // namespace danlu::grammar
