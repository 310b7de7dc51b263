#include "cli/commands/stage_lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/error.h"

namespace danlu::cli {
namespace {

constexpr int64_t kMostLayers = 1'000'000;
constexpr size_t kMostStages = 4096;

[[noreturn]] void refuse_list(const Options& options, const std::string& name,
                              const std::string& text) {
  throw UsageError(tr("[{}] expected a list of whole numbers such as [[1,10,10,7]] or 1,10,10,7, "
                      "got \"{}\"",
                      options.given_as(name), text.substr(0, 80)),
                   tr("one number for each pipeline stage; with virtual stages one such list for "
                      "each chunk"));
}

}  // namespace

StageLists stage_lists(const Options& options, const std::string& name) {
  if (!options.is_set(name)) return {};
  const std::string text = fmt::format("{}", fmt::join(options.get_list(name), ","));
  StageLists lists;
  std::vector<int64_t> current;
  const auto close = [&] {
    if (!current.empty()) lists.push_back(std::move(current));
    current.clear();
  };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c >= '0' && c <= '9') {
      int64_t number = 0;
      const auto [stop, error] =
          std::from_chars(text.data() + at, text.data() + text.size(), number);
      if (error != std::errc() || number > kMostLayers) refuse_list(options, name, text);
      current.push_back(number);
      at = static_cast<size_t>(stop - text.data());
      continue;
    }
    if (std::string_view(" \t\n,'\"[]").find(c) == std::string_view::npos)
      refuse_list(options, name, text);
    if (c == '[' || c == ']') close();
    ++at;
  }
  close();
  const bool possible =
      !lists.empty() && lists.front().size() <= kMostStages &&
      std::all_of(lists.begin(), lists.end(), [&](const std::vector<int64_t>& chunk) {
        return chunk.size() == lists.front().size();
      });
  if (!possible) refuse_list(options, name, text);
  return lists;
}

void put_stage_lists(const Options& options, const std::string& layers_name,
                     const std::string& blocks_name, weights::megatron::Split& split) {
  split.chunk_list = stage_lists(options, layers_name);
  split.block_list = stage_lists(options, blocks_name);
  if (split.chunk_list.empty() && split.block_list.empty()) return;
  for (const auto& [given, missing] :
       {std::pair{layers_name, blocks_name}, std::pair{blocks_name, layers_name}}) {
    const StageLists& lists = missing == layers_name ? split.chunk_list : split.block_list;
    if (!lists.empty()) continue;
    throw UsageError(tr("[{}] is given, but --{} is not", options.given_as(given), missing),
                     tr("the two lists go together: vision blocks and layers of each stage"));
  }
  if (split.chunk_list.size() != split.block_list.size() ||
      split.chunk_list.front().size() != split.block_list.front().size()) {
    throw UsageError(tr("[{}] {} and [{}] {} must be of equal lengths",
                        options.given_as(layers_name), stage_lists_text(split.chunk_list),
                        options.given_as(blocks_name), stage_lists_text(split.block_list)),
                     tr("a stage without layers or without vision blocks has a 0"));
  }
  split.pp = static_cast<int64_t>(split.chunk_list.front().size());
}

std::string stage_lists_text(const StageLists& lists) {
  std::vector<std::string> chunks;
  for (const std::vector<int64_t>& chunk : lists)
    chunks.push_back(fmt::format("[{}]", fmt::join(chunk, ",")));
  return fmt::format("[{}]", fmt::join(chunks, ","));
}

}  // namespace danlu::cli
