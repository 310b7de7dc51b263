// serve/served_adapters.h: the adapters beside the served model, by name.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "infer/engine.h"

namespace danlu::serve {

/// How texts become vectors.
struct TextVectors {
  infer::Pooling pooling = infer::Pooling::kLast;
  bool by_template = false;         ///< a text is a user's message; false: it stands for itself
  std::vector<int64_t> sizes = {};  ///< to which vectors may be cut (Matryoshka), ascending
};

/// Words of conversations with an adapter, in place of the base model's.
struct AdapterPrompt {
  std::string system = {};                   ///< where a conversation has no system message
  Json template_arguments = Json::object();  ///< where a request does not say
  std::optional<TextVectors> vectors = {};   ///< nullopt: as the base model makes them
};

struct ServedAdapter {
  std::string name;
  infer::AdapterPtr adapter;
  std::string parent = {};  ///< "": the base model's first name
  int64_t created_s = 0;
  AdapterPrompt prompt = {};
};

struct OpenedAdapter {
  infer::AdapterPtr adapter;
  AdapterPrompt prompt = {};
};
/// Opens the adapter of a directory. Errors: ModelError.
using LoadAdapter = std::function<OpenedAdapter(const std::string& path)>;

/// Thread-safe.
class ServedAdapters {
 public:
  /// taken: names of the base model.
  ServedAdapters(std::vector<ServedAdapter> adapters, std::vector<std::string> taken);

  std::optional<ServedAdapter> find(const std::string& name) const;
  std::vector<ServedAdapter> all() const;
  /// A request that has been accepted keeps the adapter it has; later ones get the new one.
  /// Errors: api::Refusal for a name that is another's, unless `replaces` and it is an adapter's.
  void add(ServedAdapter adapter, bool replaces);
  /// The same before it is loaded. Errors: api::Refusal.
  void require_free(const std::string& name, bool replaces) const;
  /// Requests that have been accepted end with it. Errors: api::Refusal (404).
  void remove(const std::string& name);

 private:
  std::vector<ServedAdapter>::const_iterator place_of(const std::string& name) const;

  const std::vector<std::string> taken_;
  mutable std::mutex mutex_;
  std::vector<ServedAdapter> adapters_;
};

}  // namespace danlu::serve
