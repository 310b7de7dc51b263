#include "serve/served_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/refusal.h"

namespace danlu::serve {

ServedAdapters::ServedAdapters(std::vector<ServedAdapter> adapters, std::vector<std::string> taken)
    : taken_(std::move(taken)), adapters_(std::move(adapters)) {}

std::vector<ServedAdapter>::const_iterator ServedAdapters::place_of(const std::string& name) const {
  return std::find_if(adapters_.begin(), adapters_.end(),
                      [&](const ServedAdapter& adapter) { return adapter.name == name; });
}

std::optional<ServedAdapter> ServedAdapters::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = place_of(name);
  return found == adapters_.end() ? std::nullopt : std::optional(*found);
}

std::vector<ServedAdapter> ServedAdapters::all() const {
  const std::lock_guard lock(mutex_);
  return adapters_;
}

void ServedAdapters::require_free(const std::string& name, bool replaces) const {
  if (std::count(taken_.begin(), taken_.end(), name) > 0)
    throw api::Refusal(fmt::format("'{}' is the base model's name", name), "lora_name");
  if (!replaces && find(name)) {
    throw api::Refusal(fmt::format("The lora adapter '{}' has already been loaded. If you want to "
                                   "load the adapter in place, set 'load_inplace' to True.",
                                   name),
                       "lora_name");
  }
}

void ServedAdapters::add(ServedAdapter adapter, bool replaces) {
  require_free(adapter.name, /*replaces=*/true);
  {
    const std::lock_guard lock(mutex_);
    const auto found = place_of(adapter.name);
    if (found == adapters_.end()) {
      adapters_.push_back(std::move(adapter));
      return;
    }
    if (replaces) {
      adapters_[static_cast<size_t>(found - adapters_.begin())] = std::move(adapter);
      return;
    }
  }
  require_free(adapter.name, replaces);  // another request was first
}

void ServedAdapters::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = place_of(name);
  if (found == adapters_.end()) {
    throw api::Refusal(fmt::format("The lora adapter '{}' cannot be found.", name), "lora_name",
                       404);
  }
  adapters_.erase(found);
}

}  // namespace danlu::serve
