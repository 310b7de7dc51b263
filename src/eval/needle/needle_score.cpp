#include "eval/needle/needle_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "text/jinja/python_text.h"
#include "text/tokenizer/unicode_version.h"
#include "text/tokenizer/utf8.h"

namespace danlu::eval {
namespace {

std::u32string code_points(std::string_view text) {
  std::string repaired;
  text = text::sanitize_utf8(text, repaired);
  std::u32string points;
  for (size_t at = 0; at < text.size();) {
    const auto [value, length] = text::decode_utf8(text, at);
    points += value;
    at += length;
  }
  return points;
}

size_t distance(std::u32string_view a, std::u32string_view b) {
  if (a.size() < b.size()) std::swap(a, b);
  std::vector<size_t> above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j)
      row[j + 1] = std::min({above[j + 1] + 1, row[j] + 1, above[j] + (a[i] != b[j])});
    std::swap(above, row);
  }
  return above[b.size()];
}

std::u32string lower(std::string_view text) {
  std::u32string points = code_points(text);
  std::ranges::transform(points, points.begin(), text::to_lower);
  return points;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  return distance(code_points(a), code_points(b));
}

double needle_score(std::string_view answer, std::string_view keyword, std::string_view reference) {
  if (answer.find(keyword) != answer.npos) return 100;
  std::u32string given = code_points(answer), wanted = code_points(reference);
  std::erase_if(given, text::jinja::is_python_space);
  std::erase_if(wanted, text::jinja::is_python_space);
  const size_t longer = std::max(given.size(), wanted.size());
  if (longer == 0) return 20;
  return 20 * (1 - static_cast<double>(distance(given, wanted)) / static_cast<double>(longer));
}

double needle_words_score(std::string_view answer, std::string_view wanted) {
  const std::u32string given = lower(answer), all = lower(wanted);
  size_t words = 0, found = 0;
  for (auto at = all.begin(); at != all.end();) {
    const auto begin = std::find_if_not(at, all.end(), text::jinja::is_python_space);
    at = std::find_if(begin, all.end(), text::jinja::is_python_space);
    if (begin == at) continue;
    ++words;
    found += given.find(std::u32string(begin, at)) != given.npos;
  }
  return words == 0 ? 0 : 100 * static_cast<double>(found) / static_cast<double>(words);
}

std::vector<NeedleCell> needle_cells(const Json& doc, std::string_view answer) {
  const Json& keywords = doc.at("keywords");
  const std::string reference = json_get<std::string>(doc, "reference").value_or("");
  std::vector<NeedleCell> cells;
  for (size_t i = 0; i < keywords.size(); ++i) {
    const auto keyword = keywords[i].get<std::string>();
    double score = answer.find(keyword) != answer.npos ? 100 : 0;
    if (!reference.empty()) score = needle_score(answer, keyword, reference);
    if (json_get<std::string>(doc, "kind") == "m_rs") score = needle_words_score(answer, keyword);
    cells.push_back({doc.at("length").get<int64_t>(), doc.at("depths").at(i).get<double>(), score});
  }
  return cells;
}

double needle_item_score(const Json& doc, std::string_view answer) {
  const std::vector<NeedleCell> cells = needle_cells(doc, answer);
  double sum = 0;
  for (const NeedleCell& cell : cells) sum += cell.score;
  return cells.empty() ? 0 : sum / static_cast<double>(cells.size());
}

HeatMap needle_heat_map(std::string title, const std::vector<NeedleCell>& cells, bool chinese) {
  std::map<std::pair<double, int64_t>, std::pair<double, int64_t>> sums;
  std::set<double> depths;
  std::set<int64_t> lengths;
  for (const auto& [length, depth, score] : cells) {
    auto& [sum, count] = sums[{depth, length}];
    sum += score, ++count;
    depths.insert(depth), lengths.insert(length);
  }
  HeatMap map{.title = std::move(title),
              .column_title = picture_word("length of the text (tokens)", chinese),
              .row_title = picture_word("depth of the needle (%)", chinese),
              .value_title = picture_word("score", chinese)};
  for (const int64_t length : lengths) map.columns.push_back(fmt::format("{}", length));
  for (const double depth : depths) {
    map.rows.push_back(fmt::format("{:g}", depth));
    std::vector<double>& row = map.values.emplace_back();
    for (const int64_t length : lengths) {
      const auto found = sums.find({depth, length});
      row.push_back(found == sums.end()
                        ? std::numeric_limits<double>::quiet_NaN()
                        : found->second.first / static_cast<double>(found->second.second));
    }
  }
  return map;
}

}  // namespace danlu::eval
