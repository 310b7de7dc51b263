#include "weights/hf/wrapped_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "weights/hf/renamed_source.h"

namespace danlu::weights {
namespace {

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The name without wrappers' parts, which are added to `found`.
std::string unwrapped(const std::string& name, std::set<std::string>& found) {
  constexpr std::array kWrappers = {"_orig_mod", "_fsdp_wrapped_module",
                                    "_checkpoint_wrapped_module", "_forward_module"};
  std::vector<std::string> kept;
  for (const std::string& part : parts_of(name)) {
    const bool is_wrapper = std::find(kWrappers.begin(), kWrappers.end(), part) != kWrappers.end();
    if (!is_wrapper && !(kept.empty() && part == "module")) {
      kept.push_back(part);
      continue;
    }
    found.insert(part);
  }
  return fmt::format("{}", fmt::join(kept, "."));
}

/// The name as PEFT writes it into files, without the adapter's own, which is added to `found`.
std::string unnamed(const std::string& name, std::set<std::string>& found) {
  constexpr std::array kBeforeWeight = {"lora_A", "lora_B"};
  constexpr std::array kLast = {"lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector"};
  std::vector<std::string> parts = parts_of(name);
  const auto drop = [&](size_t at) {
    found.insert(parts[at]);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto is_one_of = [](const auto& list, const std::string& part) {
    return std::find(list.begin(), list.end(), part) != list.end();
  };
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const size_t behind = parts.size() - i - 1;
    if (is_one_of(kBeforeWeight, parts[i]) && behind == 2) {
      drop(i + 1);
    } else if (is_one_of(kLast, parts[i])) {
      if (behind == 2 && parts.back() == "weight") parts.pop_back();
      if (parts.size() - i == 2 && parts.back() != "weight") drop(i + 1);
      if (parts.back() == "weight") parts.pop_back();
    } else if (parts[i] == "modules_to_save" && behind == 2) {
      drop(i + 1);
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      continue;
    }
    break;
  }
  return fmt::format("{}", fmt::join(parts, "."));
}

template <typename Change>
std::shared_ptr<const TensorSource> renamed(std::shared_ptr<const TensorSource> source,
                                            const std::filesystem::path& path,
                                            const Change& change) {
  RenamedSource::Names names;
  for (const TensorInfo& info : source->tensors()) {
    const auto [at, is_new] = names.emplace(change(info.name), info.name);
    if (is_new) continue;
    throw ModelError(tr("{}: {} and {} are both {} once what wrappers put into names is left out",
                        path.string(), at->second, info.name, at->first),
                     tr("save the model itself, not its wrapper"));
  }
  return std::make_shared<RenamedSource>(std::move(source), names);
}

}  // namespace

std::shared_ptr<const TensorSource> without_wrappers(std::shared_ptr<const TensorSource> source,
                                                     const std::filesystem::path& path) {
  std::set<std::string> found;
  for (const TensorInfo& info : source->tensors()) unwrapped(info.name, found);
  if (found.empty()) return source;
  log::notice("{}: its tensors' names hold {}, which wrappers put there; it is left out",
              path.string(), fmt::join(found, ", "));
  return renamed(std::move(source), path,
                 [&](const std::string& name) { return unwrapped(name, found); });
}

std::shared_ptr<const TensorSource> as_adapter_file(std::shared_ptr<const TensorSource> source,
                                                    const std::filesystem::path& path) {
  source = without_wrappers(std::move(source), path);
  std::set<std::string> found;
  for (const TensorInfo& info : source->tensors()) unnamed(info.name, found);
  if (found.empty()) return source;
  if (found.size() > 1) {
    throw ModelError(
        tr("{}: holds adapters of several names: {}", path.string(), fmt::join(found, ", ")),
        tr("save each in a directory of its own: model.save_pretrained(DIR, "
           "selected_adapters=[NAME])"));
  }
  log::notice("{}: the adapter is called {} in its tensors' names, as inside a program",
              path.string(), *found.begin());
  return renamed(std::move(source), path,
                 [&](const std::string& name) { return unnamed(name, found); });
}

}  // namespace danlu::weights
