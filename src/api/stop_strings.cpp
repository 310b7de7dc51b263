#include "api/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace danlu::api {
namespace {

std::vector<size_t> borders_of(std::string_view text) {
  std::vector<size_t> borders(text.size() + 1, 0);
  for (size_t i = 1, border = 0; i < text.size(); ++i) {
    while (border > 0 && text[i] != text[border]) border = borders[border];
    if (text[i] == text[border]) ++border;
    borders[i + 1] = border;
  }
  return borders;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops, bool include) : include_(include) {
  for (std::string& text : stops) {
    if (text.empty()) throw UsageError(tr("a stop string must not be empty"));
    auto borders = borders_of(text);
    stops_.push_back({std::move(text), std::move(borders)});
  }
}

std::string StopStrings::push(std::string_view piece) {
  std::string out;
  for (size_t i = 0; i < piece.size() && !found_; ++i) {
    const char c = piece[i];
    held_ += c;
    const Stop* hit = nullptr;
    size_t longest = 0;
    for (Stop& stop : stops_) {
      if (stop.matched == stop.text.size()) stop.matched = stop.borders[stop.matched];
      while (stop.matched > 0 && stop.text[stop.matched] != c)
        stop.matched = stop.borders[stop.matched];
      if (stop.text[stop.matched] == c) ++stop.matched;
      longest = std::max(longest, stop.matched);
      if (stop.matched == stop.text.size() && (!hit || hit->text.size() < stop.text.size()))
        hit = &stop;
    }
    if (hit) {
      found_ = hit->text;
      found_at_ = sent_ + held_.size() - hit->text.size();
      out += include_ ? held_ : held_.substr(0, held_.size() - hit->text.size());
      held_.clear();
      return out;
    }
    const size_t ready = held_.size() - longest;
    out.append(held_, 0, ready);
    held_.erase(0, ready);
    sent_ += ready;
  }
  return out;
}

std::string StopStrings::finish() {
  sent_ += held_.size();
  return std::exchange(held_, {});
}

}  // namespace danlu::api
