#include "base/nearest_name.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <system_error>

#include "base/message.h"

namespace danlu {
namespace {

/// What users see as the same name: case and the kind of dash do not count.
std::string folded(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

/// Insertions, deletions, substitutions and swaps of neighbours, each at cost 1.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t substitution = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view word,
                                        const std::vector<std::string>& candidates) {
  const std::string wanted = folded(word);
  if (wanted.empty() || wanted.size() > 200) return std::nullopt;
  const size_t limit = std::max<size_t>(1, wanted.size() / 3);
  std::optional<std::string> best;
  size_t best_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(wanted, folded(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (best) return best;
  // "--batch" for "--batch_size": an unfinished name that fits exactly one candidate.
  for (const std::string& candidate : candidates) {
    if (wanted.size() < 3 || !folded(candidate).starts_with(wanted)) continue;
    if (best) return std::nullopt;
    best = candidate;
  }
  return best;
}

std::string did_you_mean_path(const std::filesystem::path& path) {
  std::error_code unknown;
  if (std::filesystem::is_regular_file(path, unknown)) return tr("it is a file: ");
  if (std::filesystem::exists(path, unknown)) return "";
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(path, unknown)))
    return tr("it is a link to {}, where nothing is: ",
              std::filesystem::read_symlink(path, unknown).string());
  const auto parent = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    names.push_back(entry.path().filename().string());
    if (names.size() == 1000) break;
  }
  const auto near = nearest_name(path.filename().string(), names);
  if (!near) return "";
  return tr("did you mean {}? ", (path.parent_path() / *near).string());
}

std::string hint_of_models_below(const std::filesystem::path& directory,
                                 const std::function<bool(const std::filesystem::path&)>& is_one) {
  constexpr size_t kLookedAt = 1000, kShown = 5;
  std::vector<std::string> models;
  std::error_code error;
  size_t looked = 0;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    if (++looked > kLookedAt) break;
    std::error_code unknown;
    if (at->path().filename().string().starts_with('.') || !at->is_directory(unknown)) continue;
    if (is_one(at->path())) models.push_back(at->path().string());
  }
  std::sort(models.begin(), models.end());
  if (models.empty()) return "";
  if (models.size() == 1) return tr("did you mean {}? A model lies there", models.front());
  const size_t count = models.size();
  models.resize(std::min(count, kShown));
  return tr("{} models lie below it, of which one is given: {}{}", count, fmt::join(models, ", "),
            count > kShown ? ", …" : "");
}

}  // namespace danlu
