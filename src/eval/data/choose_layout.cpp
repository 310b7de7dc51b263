#include "eval/data/choose_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/lower_case.h"
#include "eval/data/path_pattern.h"

namespace danlu::eval {
namespace {
namespace {

constexpr size_t kShownMissing = 8;

/// A layout at a place of the tree.
struct Place {
  size_t layout = 0;
  DataTree::Root root;
  size_t present = 0;  ///< of all pairs of subject and split
  bool is_named = false;

  /// More is better, in this order.
  auto merit() const { return std::tuple(present, -root.rank, -std::ptrdiff_t(layout), is_named); }
};

std::vector<std::string> subjects_of(const WantedData& wanted) {
  return wanted.subjects.empty() ? std::vector<std::string>{""} : wanted.subjects;
}

bool is_there(const DataTree::Root& root, const Layout& layout, const std::string& split,
              const std::string& subject) {
  const auto patterns = layout.files.find(split);
  if (patterns == layout.files.end()) return false;
  const auto has_files = [&](const std::string& one) {
    return !files_matching(root.path, one, subject).empty();
  };
  return layout.are_named ? std::ranges::all_of(patterns->second, has_files)
                          : std::ranges::any_of(patterns->second, has_files);
}

/// Whether a directory between what the user named and the place has the benchmark's name.
bool has_name_of(const fs::path& path, const std::string& benchmark) {
  return std::any_of(path.begin(), path.end(), [&](const fs::path& part) {
    return lower_case(part.string()) == lower_case(benchmark);
  });
}

std::vector<Place> places_in(const DataTree& tree, const std::vector<Layout>& layouts,
                             const WantedData& wanted) {
  std::vector<Place> places;
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (const DataTree::Root& root : tree.roots()) {
      if (!tree.serves(root, layouts[i])) continue;
      Place place{i, root, 0, has_name_of(root.path, wanted.benchmark)};
      for (const std::string& subject : subjects_of(wanted)) {
        for (const std::string& split : wanted.splits)
          place.present += is_there(root, layouts[i], split, subject) ? 1 : 0;
      }
      if (place.present > 0) places.push_back(std::move(place));
    }
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.merit() > b.merit(); });
  return places;
}

/// The first pattern of each split, with an own subject in it.
std::string looked_for(const Layout& layout, const WantedData& wanted) {
  std::vector<std::string> names;
  for (const std::string& split : wanted.splits) {
    const auto patterns = layout.files.find(split);
    if (patterns == layout.files.end() || patterns->second.empty()) continue;
    names.push_back(with_subject(patterns->second.front(), subjects_of(wanted).front()));
  }
  return fmt::format("{} ({})", fmt::join(names, ", "), layout.name);
}

[[noreturn]] void fail_without_any(const DataTree& tree, const std::vector<Layout>& layouts,
                                   const WantedData& wanted) {
  std::vector<std::string> tried;
  for (const Layout& layout : layouts) tried.push_back(looked_for(layout, wanted));
  std::string hint = wanted.source;
  if (hint.empty() && !wanted.splits.empty()) {
    hint =
        tr("put its rows there as {}.jsonl, or name them in the task file (docs/formats/"
           "task_file.md)",
           wanted.splits.front());
  }
  throw DataError(tr("{}: holds no data of {}; looked for: {}", tree.path().string(),
                     wanted.benchmark, fmt::format("{}", fmt::join(tried, "; "))),
                  hint);
}

std::vector<std::string> incomplete_subjects(const Place& place, const Layout& layout,
                                             const WantedData& wanted) {
  std::vector<std::string> incomplete;
  for (const std::string& subject : wanted.subjects) {
    const auto has = [&](const std::string& split) {
      return is_there(place.root, layout, split, subject);
    };
    if (!std::ranges::all_of(wanted.splits, has)) incomplete.push_back(subject);
  }
  return incomplete;
}

/// The subjects that lack a split and have another, with those that they lack.
std::vector<std::string> subjects_in_part(const Place& place, const Layout& layout,
                                          const WantedData& wanted) {
  std::vector<std::string> in_part;
  for (const std::string& subject : wanted.subjects) {
    std::vector<std::string> lacking;
    for (const std::string& split : wanted.splits) {
      if (!is_there(place.root, layout, split, subject)) lacking.push_back(split);
    }
    if (!lacking.empty() && lacking.size() < wanted.splits.size())
      in_part.push_back(fmt::format("{} ({})", subject, fmt::join(lacking, ", ")));
  }
  return in_part;
}

/// Errors: DataError if a split lacks its files for every subject, as where the questions are there
/// and not those that the examples come from.
void require_some_of_each_split(const Place& place, const Layout& layout,
                                const WantedData& wanted) {
  for (const std::string& split : wanted.splits) {
    const auto has = [&](const std::string& subject) {
      return is_there(place.root, layout, split, subject);
    };
    const auto patterns = layout.files.find(split);
    if (wanted.subjects.size() < 2 || std::ranges::any_of(wanted.subjects, has) ||
        patterns == layout.files.end() || patterns->second.empty())
      continue;
    throw DataError(
        tr("{}: no files of the split '{}' of {} are there ({}); looked for: {}",
           place.root.path.string(), split, wanted.benchmark, layout.name,
           fmt::format("{}", fmt::join(patterns->second, ", "))),
        tr("put its folder beside or inside the other one; where examples come from it, "
           "--num_fewshot 0 asks without examples"));
  }
}

[[noreturn]] void fail_in_part(const Place& place, const Layout& layout, const WantedData& wanted) {
  require_some_of_each_split(place, layout, wanted);
  std::vector<std::string> missing;
  std::set<std::string> subjects;
  for (const std::string& split : wanted.splits) {
    for (const std::string& subject : subjects_of(wanted)) {
      if (is_there(place.root, layout, split, subject)) continue;
      const auto patterns = layout.files.find(split);
      const bool has_pattern = patterns != layout.files.end() && !patterns->second.empty();
      missing.push_back(has_pattern ? with_subject(patterns->second.front(), subject) : split);
      subjects.insert(subject);
    }
  }
  const size_t count = missing.size();
  missing.resize(std::min(count, kShownMissing));
  const std::string shown =
      fmt::format("{}{}", fmt::join(missing, ", "),
                  count > kShownMissing ? tr(" and {} more", count - kShownMissing) : "");
  if (wanted.subjects.empty()) {
    throw DataError(tr("{}: files of {} are missing ({}): {}", place.root.path.string(),
                       wanted.benchmark, layout.name, shown),
                    wanted.source);
  }
  throw DataError(
      tr("{}: {} of {} subjects of {} are missing or incomplete ({}): {}", place.root.path.string(),
         subjects.size(), wanted.subjects.size(), wanted.benchmark, layout.name, shown),
      wanted.source.empty()
          ? tr("name in --tasks only the subjects that are there")
          : tr("name in --tasks only the subjects that are there, or complete them: {}",
               wanted.source));
}

/// Errors: DataError if another place is as good as the first.
void require_one(const std::vector<Place>& places, const DataTree& tree,
                 const std::string& benchmark) {
  if (places.size() < 2 || places[0].merit() != places[1].merit()) return;
  std::error_code unknown;
  if (fs::equivalent(places[0].root.path, places[1].root.path, unknown)) return;
  throw DataError(tr("{}: holds data of {} twice: {} and {}", tree.path().string(), benchmark,
                     places[0].root.path.string(), places[1].root.path.string()),
                  tr("name the directory that is meant"));
}

}  // namespace
}  // namespace

ChosenLayout choose_layout(const DataTree& tree, const std::vector<Layout>& layouts,
                           const WantedData& wanted) {
  const size_t whole = subjects_of(wanted).size() * wanted.splits.size();
  std::vector<Place> places = places_in(tree, layouts, wanted);
  if (places.empty() || places[0].present < whole) {
    bool has_new = false;
    for (const Layout& layout : layouts) has_new |= tree.open_archives(layout);
    if (has_new) places = places_in(tree, layouts, wanted);
  }
  if (places.empty() || places[0].present < whole) tree.refuse_broken_archives();
  if (places.empty()) fail_without_any(tree, layouts, wanted);
  const Place& best = places.front();
  std::vector<std::string> left_out = incomplete_subjects(best, layouts[best.layout], wanted);
  if (best.present < whole && (!wanted.takes_part || left_out.size() == wanted.subjects.size()))
    fail_in_part(best, layouts[best.layout], wanted);
  require_one(places, tree, wanted.benchmark);
  return {best.layout, tree.at(best.root), std::move(left_out),
          subjects_in_part(best, layouts[best.layout], wanted)};
}

}  // namespace danlu::eval
